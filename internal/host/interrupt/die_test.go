package interrupt

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const role = "INTERRUPT_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(role) != "" {
		die()
	}
	os.Exit(m.Run())
}

// die dies of a signal that takes a moment: it is sent by one thread, and taken by the first, which has to wait for the
// one processor of both.
func die() {
	var one, all unix.CPUSet
	_ = unix.SchedGetaffinity(0, &all)
	for cpu := 0; one.Count() == 0; cpu++ {
		if all.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	runtime.LockOSThread()
	_ = unix.SchedSetaffinity(0, &one)
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0)
	go func() {
		runtime.LockOSThread()
		_ = unix.SchedSetaffinity(0, &one)
		_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}, 0)
		DieBySignal(unix.SIGQUIT)
	}()
	<-make(chan bool)
}

// TestDie: it dies of the signal, also where that takes a moment, and Go has nothing to say.
func TestDie(t *testing.T) {
	for range 20 {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), role+"=dies")
		out, _ := cmd.CombinedOutput()
		if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !s.Signaled() || s.Signal() != syscall.SIGQUIT || len(out) > 0 {
			t.Fatalf("%v: %.200s", cmd.ProcessState, out)
		}
	}
}
