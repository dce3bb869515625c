package launch

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// roleLate starts a crew, and its second member after the first was told to end. It is a process of its own: signals to it
// are the crew's, and an Exec that fails, as other tests make, would leave SIGTERM to the kernel for good.
func roleLate([]string) error {
	crew := Command{Path: "/bin/sleep", Argv: []string{"sleep", "60"}}.NewChildGroup(2)
	defer crew.signals.stopForwarding()
	for number := range 2 {
		if err := crew.Start(number, nil); err != nil {
			return err
		}
		if number == 0 {
			if err := unix.Kill(unix.Getpid(), unix.SIGTERM); err != nil {
				return err
			}
		}
		select {
		case end := <-crew.Ended():
			if end.Number != number || end.Signal != "SIGTERM" || !crew.HasSignalSince(time.Now().Add(-time.Minute)) {
				return fmt.Errorf("it ended as %+v", end)
			}
		case <-time.After(30 * time.Second):
			crew.SendSignal("SIGKILL")
			return fmt.Errorf("number %d runs on", number)
		}
	}
	fmt.Println("late both were told to end")
	return nil
}

// roleHeard starts what ends by a signal that this process gets a moment later, as one for the whole group may come.
func roleHeard([]string) error {
	command := Command{Path: "/bin/sh", Argv: []string{"sh", "-c", "kill -TERM $$"}}
	later := func() { time.AfterFunc(50*time.Millisecond, func() { _ = unix.Kill(unix.Getpid(), unix.SIGTERM) }) }
	crew := command.NewChildGroup(1)
	if err := crew.Start(0, nil); err != nil {
		return err
	}
	later()
	if end := <-crew.Ended(); end.Signal != "SIGTERM" || !crew.HasSignalSince(time.Now().Add(-time.Minute)) {
		return fmt.Errorf("it ended as %+v, and nothing was heard of why", end)
	}
	crew.signals.stopForwarding()
	child, err := command.Start()
	if err != nil {
		return err
	}
	later()
	<-child.Ended()
	if child.LastSignalSince(time.Now().Add(-time.Minute)) != "SIGTERM" {
		return fmt.Errorf("a child ended, and nothing was heard of why")
	}
	fmt.Println("heard of it")
	return nil
}

// TestHeard: an end by a signal that was sent to this process too is not taken for one that the command has had by itself.
func TestHeard(t *testing.T) {
	if got := play(t, nil, "heard").expect("heard "); got != "of it" {
		t.Error(got)
	}
}

// TestCrewLate: one that is started after the others were told to end is told so too.
func TestCrewLate(t *testing.T) {
	if got := play(t, nil, "late").expect("late "); got != "both were told to end" {
		t.Error(got)
	}
}
