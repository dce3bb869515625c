package holder

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/job"
	"gpuard/internal/host/proc"
)

// uptime is the time since the machine was started.
func uptime(t *testing.T) time.Duration {
	t.Helper()
	up, err := proc.New("/proc").Uptime()
	if err != nil {
		t.Fatal(err)
	}
	return up
}

// TestMomentOfEnd: a lease without a limit never expires; one with a limit does at its moment, but not while a gpuard
// that sees to the limit itself lives, and not after the command has ended.
func TestMomentOfEnd(t *testing.T) {
	t.Parallel()
	processes, open, closed := proc.New("/proc"), make(chan struct{}), make(chan struct{})
	close(closed)
	self, err := processes.Stat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	past, soon := int64(uptime(t))-1, int64(uptime(t)+200*time.Millisecond)
	for name, c := range map[string]struct {
		orders Orders
		done   chan struct{}
		want   bool
	}{
		"no limit":                  {Orders{}, open, false},
		"over":                      {Orders{Until: past}, open, true},
		"soon":                      {Orders{Until: soon}, open, true},
		"ended before":              {Orders{Until: soon + int64(time.Hour)}, closed, false},
		"another sees to it":        {Orders{Until: past, InTime: &Process{os.Getpid(), self.Start}}, closed, false},
		"another that is gone":      {Orders{Until: past, InTime: &Process{os.Getpid(), self.Start + 1}}, open, true},
		"another that never was":    {Orders{Until: past, InTime: &Process{1 << 29, 1}}, open, true},
		"a limit below zero":        {Orders{Until: -1}, open, false},
		"over, and ended meanwhile": {Orders{Until: past}, closed, true},
	} {
		if got := awaitMoment(processes, &c.orders, c.done); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if c.want && int64(uptime(t)) < c.orders.Until {
			t.Errorf("%s: before its moment", name)
		}
	}
}

// TestExpired: the command of a lease whose time is over is asked to end with all that it started, and killed after its
// grace; the user is told why.
func TestExpired(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"obeys":   "sleep 1000 & echo $! $$; wait",
		"refuses": "trap '' TERM; sleep 1000 & echo $! $$; wait; sleep 1000",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := exec.Command("sh", "-c", script)
			reason, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			command.Stderr = write
			out, err := command.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			_ = write.Close()
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			pidfd, err := unix.PidfdOpen(command.Process.Pid, 0)
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				_ = command.Wait()
				close(ended)
			}()

			processes := proc.New("/proc")
			s, err := processes.Stat(command.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			lease := job.Lease{ID: "k3f9", PID: command.Process.Pid, Start: s.Start}
			if !endExpired(pidfd, nil, lease, &Orders{Until: 1}, 200*time.Millisecond, make(chan struct{})) {
				t.Error("its time is not over")
			}
			<-ended
			for _, word := range strings.Fields(line) {
				pid, err := strconv.Atoi(word)
				if err != nil {
					t.Fatal(err)
				}
				if s, err := processes.Stat(pid); err == nil && s.State != "Z" {
					t.Errorf("process %d of the command lives", pid)
				}
			}
			says, err := bufio.NewReader(reason).ReadString('\n')
			if err != nil || says != "gpuard: the time of lease k3f9 is over: ending the command\n" {
				t.Errorf("it is told %q, %v", says, err)
			}
		})
	}
}
