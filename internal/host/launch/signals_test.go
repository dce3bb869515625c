package launch

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// roleSignal NUMBER: gpuard on its way to the command, when a signal arrives.
func roleSignal(args []string) error {
	DefaultSignals()
	number, err := strconv.Atoi(args[0])
	if err == nil {
		err = unix.Kill(os.Getpid(), unix.Signal(number))
	}
	time.Sleep(5 * time.Second) // unless the signal ends us, which a busy machine may do late
	return err
}

// TestDefaultSignals: without the call, Go would print goroutines, or do nothing at all.
func TestDefaultSignals(t *testing.T) {
	for _, sig := range []unix.Signal{unix.SIGQUIT, unix.SIGABRT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGXCPU, unix.SIGTERM, unix.SIGINT, unix.SIGHUP} {
		cmd := exec.Command(self(t), strconv.Itoa(int(sig)))
		cmd.Env = append(os.Environ(), roleVar+"=signal")
		cmd.Dir = t.TempDir() // for a core, where these are made
		out, _ := cmd.CombinedOutput()
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != sig || len(out) > 0 {
			t.Errorf("%s: ended with %v and said %q", unix.SignalName(sig), cmd.ProcessState, out)
		}
	}
}

// TestInheritIgnored: a shell ignores SIGINT and SIGQUIT for its background jobs, and just SIGINT where a trap says so.
func TestInheritIgnored(t *testing.T) {
	library := filepath.Join(t.TempDir(), "library")
	if err := os.WriteFile(library, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for script, want := range map[string][]string{
		`"$0" "$@"; exit $?`:                      nil,
		`"$0" "$@" & wait $!`:                     {"SIGINT", "SIGQUIT"},
		`trap '' INT; "$0" "$@"; exit $?`:         {"SIGINT"},
		`trap '' INT QUIT; "$0" "$@"; exit $?`:    {"SIGINT", "SIGQUIT"},
		`trap '' HUP; "$0" "$@"; exit $?`:         {"SIGHUP"},
		`trap '' TTOU TSTP; "$0" "$@"; exit $?`:   {"SIGTSTP", "SIGTTOU"},
		`(trap '' INT QUIT; "$0" "$@" & wait $!)`: {"SIGINT", "SIGQUIT"},
	} {
		cmd := exec.Command("sh", "-c", script, self(t), library, "cat", "/proc/self/status")
		cmd.Env = append(os.Environ(), roleVar+"=exec")
		status, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", script, err)
		}
		if got := signals(t, string(status), "SigIgn"); !slices.Equal(got, want) {
			t.Errorf("%s: the command ignores %v, want %v", script, got, want)
		}
	}
	if set := ignoredSignals(1 << 30); set != 0 {
		t.Errorf("a process that is not there ignores %#x", set)
	}
}
