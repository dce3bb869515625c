package store

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/job"
	"gpuard/internal/host/ownproc"
)

// roleCtrlZ PATH: gets the signal of Ctrl-Z while it has the folder lock, and again after that.
func roleCtrlZ(args []string) error {
	if err := unix.Setpgid(0, 0); err != nil { // nothing is stopped in a group that no shell watches
		return err
	}
	ownproc.SetAction(unix.SIGTSTP, ownproc.SignalAction{}) // some shells start what they start with it ignored
	f, err := Open(args[0], nil, time.Second)
	if err != nil {
		return err
	}
	refused := errors.New("refused")
	if _, err = f.Claim(testBoot, nil, func(View) (job.Lease, error) {
		return job.Lease{}, errors.Join(refused, unix.Kill(os.Getpid(), unix.SIGTSTP))
	}); !errors.Is(err, refused) {
		return err
	}
	fmt.Println("let go")
	err = unix.Kill(os.Getpid(), unix.SIGTSTP)
	waitForEOF() // the signal may reach another thread, a little later
	return err
}

// TestCtrlZUnderTheLock: Ctrl-Z does not stop a process that holds the folder lock, and stops it after the release.
func TestCtrlZUnderTheLock(t *testing.T) {
	path := newStateFolder(t).Path
	a := startRole(t, ownUID(), "ctrl-z", path)
	timer := time.AfterFunc(10*time.Second, func() { _ = a.cmd.Process.Kill() })
	defer timer.Stop()
	a.expectLine("let go")
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", a.cmd.Process.Pid))
		if _, rest, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(rest, "T") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it is not stopped: %s", stat)
		}
	}
}
