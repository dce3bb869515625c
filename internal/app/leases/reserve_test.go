package leases

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/job"
	"gpuard/internal/host/proc"
)

// TestSleeperThatIsJustStarting: the process of a reservation ends with it also while it has no arguments yet, and no other does.
func TestSleeperThatIsJustStarting(t *testing.T) {
	for arguments, ended := range map[string]bool{"gpuard\x00" + ReserveFlag + "\x001000\x00": true, "gpuard\x00serve\x00": false} {
		sleeper := exec.Command("sleep", "60")
		if err := sleeper.Start(); err != nil {
			t.Fatal(err)
		}
		over := make(chan error, 1)
		go func() { over <- sleeper.Wait() }()
		own, err := proc.New("/proc").Stat(sleeper.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		root := t.TempDir()
		folder := filepath.Join(root, strconv.Itoa(sleeper.Process.Pid))
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		show := func(name, text string) {
			t.Helper()
			if err := os.WriteFile(filepath.Join(folder, name+".new"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(folder, name+".new"), filepath.Join(folder, name)); err != nil {
				t.Fatal(err)
			}
		}
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(sleeper.Process.Pid), "stat"))
		if err != nil {
			t.Fatal(err)
		}
		starting := strings.Fields(string(stat)) // the name has no space
		starting[50-1] = "0"
		show("stat", strings.Join(starting, " "))
		show("cmdline", "")
		shown := make(chan struct{})
		begun := time.AfterFunc(20*time.Millisecond, func() {
			defer close(shown)
			show("cmdline", arguments)
			show("stat", string(stat))
		})
		wakeSleeper(&machine.Host{Proc: proc.New(root)}, job.Lease{PID: sleeper.Process.Pid, Start: own.Start, Apart: true, Until: int64(time.Hour), Time: time.Hour})
		if begun.Stop() {
			t.Fatal("it has not waited for the arguments")
		}
		<-shown
		if !ended {
			_ = sleeper.Process.Kill()
		}
		if err := <-over; ended && (err == nil || !strings.Contains(err.Error(), "killed")) {
			t.Errorf("%q: %v", arguments, err)
		}
	}
}
