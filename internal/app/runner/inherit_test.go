package runner

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"gpuard/internal/app/machine"

	"gpuard/internal/core/batchlog"
	"gpuard/internal/host/batch"
	"gpuard/internal/host/interrupt"
	"gpuard/internal/host/journal"
	"gpuard/internal/host/proc"
)

// left is a conductor of three runs of which a runner that was killed left something, as it may be between any two of
// its steps.
func left(t *testing.T) *runsParent {
	dir := t.TempDir()
	j, err := journal.Open(filepath.Join(dir, "journal"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	f := &Folder{Dir: dir, Mark: "GPUARD_SWEEP_DIR", Host: &machine.Host{Proc: proc.New("/proc"), Messages: machine.Messages{Say: func(string) {}}}, Journal: j, State: batchlog.NewState(3, batchlog.Retry{})}
	return &runsParent{Folder: f, strays: make(chan orphanedRunEnd), show: func(Progress) {}, caught: &interrupt.SignalCatcher{}}
}

// child is a process in a session of its own, which ends with 3 when stdin does; it is that of run number of.
func (c *runsParent) child(t *testing.T, of int) (pid int, ticks uint64, end func()) {
	t.Helper()
	cmd := exec.Command("sh", "-c", "read x; exit 3")
	cmd.Env = append(os.Environ(), "GPUARD_SWEEP_DIR="+c.Path(of))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	stat, err := c.Host.Proc.Stat(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	end = func() { _ = stdin.Close() }
	t.Cleanup(func() {
		end()
		_, _ = cmd.Process.Wait() // it may be buried already
	})
	return cmd.Process.Pid, stat.Start, end
}

func (c *runsParent) happened(t *testing.T, events ...batchlog.Event) {
	t.Helper()
	for _, e := range events {
		if err := c.Add(e); err != nil {
			t.Fatal(err)
		}
	}
}

func (c *runsParent) inherits(t *testing.T) {
	t.Helper()
	if err := c.inheritRuns(0); err != nil {
		t.Fatal(err)
	}
}

// TestInheritOther: a run of which only the beginning was written is none of the processes that other runs have left,
// though they are as young: it is done again, and not taken for done.
func TestInheritOther(t *testing.T) {
	c := left(t)
	ended, born, end := c.child(t, 0)
	end()
	if _, err := batch.AwaitChild(ended); err != nil { // not buried: the runner was killed before it did that
		t.Fatal(err)
	}
	_, _, _ = c.child(t, 2) // something that another run has left, in a session of its own
	c.happened(t, batchlog.Event{Kind: batchlog.Begin, Run: 0, Ticks: born}, batchlog.Event{Kind: batchlog.Start, Run: 0, PID: ended, Ticks: born},
		batchlog.Event{Kind: batchlog.End, Run: 0}, batchlog.Event{Kind: batchlog.Begin, Run: 1, Ticks: born})
	c.inherits(t)
	if got := c.State.Runs[1]; got.Phase != batchlog.Waiting || got.Starts != 0 {
		t.Errorf("a run that was never there: %+v", got)
	}
}

// TestInheritBegun: the process of a run with only a Begin is found, also if it has put another one into a session of
// its own, and among those of other runs.
func TestInheritBegun(t *testing.T) {
	c := left(t)
	_, before, _ := c.child(t, 0)
	_, _, end := c.child(t, 1)
	_, _, _ = c.child(t, 1)
	c.happened(t, batchlog.Event{Kind: batchlog.Begin, Run: 1, Ticks: before})
	time.AfterFunc(50*time.Millisecond, end)
	c.inherits(t)
	if got := c.State.Runs[1]; got.Phase != batchlog.Failed || got.Starts != 1 || got.LastEvent().Exit != 3 {
		t.Errorf("a run that ended with 3: %+v", got)
	}
}

// TestSurvivorIsBeingExecuted: a process that the kernel is just executing has no environment yet, and is found when it
// has one. Here a shell without an environment takes the part of the kernel.
func TestSurvivorIsBeingExecuted(t *testing.T) {
	c := left(t)
	cmd := exec.Command("sh", "-c", "echo; read x; export "+c.Mark+"="+c.Path(1)+"; exec sleep 60")
	cmd.Env, cmd.SysProcAttr = []string{}, &syscall.SysProcAttr{Setsid: true}
	in, err := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err = errors.Join(err, outErr); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	_, _ = out.Read(make([]byte, 1)) // it has been executed once, without an environment
	stat, err := c.Host.Proc.Stat(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if pid, _, unclear := c.processOf(1, batchlog.Event{Ticks: stat.Start}); pid != 0 || !unclear {
		t.Errorf("process %d, unclear: %v", pid, unclear)
	}
	c.happened(t, batchlog.Event{Kind: batchlog.Begin, Run: 1, Ticks: stat.Start})
	_ = in.Close()
	if pid, _, _ := c.survivingProcess(1, batchlog.Event{Ticks: stat.Start}); pid != cmd.Process.Pid {
		t.Errorf("the process of the run is %d, not %d", pid, cmd.Process.Pid)
	}
}
