package launch

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestCrewLate: one that is started after the others were told to end is told so too. Signals to this process are the
// crew's meanwhile.
// It has to run before the tests of Exec (files run in the order of their names): an Exec that fails leaves SIGTERM to the
// kernel for good, and this test sends it to itself.
func TestCrewLate(t *testing.T) {
	crew := Command{Path: "/bin/sleep", Argv: []string{"sleep", "60"}}.Gather(2)
	defer crew.signals.stop()
	for number := range 2 {
		if err := crew.Start(number, nil); err != nil {
			t.Fatal(err)
		}
		if number == 0 {
			if err := unix.Kill(unix.Getpid(), unix.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case end := <-crew.Ended():
			if end.Number != number || end.Signal != "SIGTERM" || !crew.Meant(time.Now().Add(-time.Minute)) {
				t.Errorf("%+v", end)
			}
		case <-time.After(30 * time.Second):
			crew.Send("SIGKILL")
			t.Fatalf("number %d runs on", number)
		}
	}
}
