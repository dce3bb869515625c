package fakegpu

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startJob starts fakegpu-job and waits until it is on its devices.
func startJob(t *testing.T, d *Driver, args ...string) *exec.Cmd {
	t.Helper()
	cmd := machineCommand(d, "fakegpu-job", args...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("fakegpu-job says %q, %v", line, err)
	}
	return cmd
}

func computePIDs(t *testing.T, d *Driver) []string {
	t.Helper()
	out, _ := runSMI(t, d, "--query-compute-apps=pid", "--format=csv,noheader")
	return strings.Fields(out)
}

func TestJobHoldsItsPlacesWhileItLives(t *testing.T) {
	d := New(t, A100(0), A100(1))
	job := startJob(t, d, "--gpu", "0", "--gpu", "1", "--mem", "20G")
	pid := strconv.Itoa(job.Process.Pid)
	if got := computePIDs(t, d); len(got) != 2 || got[0] != pid || got[1] != pid {
		t.Errorf("on the devices: %v, want %s twice", got, pid)
	}
	if got := queryGPUs(t, d, "memory.used"); got != "20480 MiB\n20480 MiB\n" {
		t.Errorf("memory used: %q", got)
	}
	if err := job.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	awaitZombie(t, job.Process.Pid)
	if got := computePIDs(t, d); len(got) != 0 {
		t.Errorf("a zombie still holds a device: %v", got)
	}
	job.Wait()
	if got := queryGPUs(t, d, "memory.used"); got != "0 MiB\n0 MiB\n" {
		t.Errorf("memory used after the end: %q", got)
	}
}

func awaitZombie(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(stat), ") Z ") {
			return
		}
	}
	t.Fatalf("process %d does not die", pid)
}

func TestJobLeavesAChild(t *testing.T) {
	d := New(t, A100(0))
	lock, err := os.Open(d.Dir + "/driver")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	job := machineCommand(d, "fakegpu-job", "--gpu", "0", "--mem", "3G", "--fork-child", "30", "--close-fds")
	job.ExtraFiles = []*os.File{lock}
	if out, err := job.Output(); err != nil || string(out) != "ready\n" {
		t.Fatalf("fakegpu-job: %q, %v", out, err)
	}
	got := computePIDs(t, d)
	if len(got) != 1 || got[0] == strconv.Itoa(job.Process.Pid) {
		t.Fatalf("on the device: %v, want a child of %d", got, job.Process.Pid)
	}
	child, _ := strconv.Atoi(got[0])
	t.Cleanup(func() { syscall.Kill(child, syscall.SIGKILL) })
	awaitDescriptors(t, got[0], 3)
	if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); len(computePIDs(t, d)) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the dead child still holds the device")
		}
	}
}

// awaitDescriptors waits until the process has no more than that many: it closes them after its parent has gone.
func awaitDescriptors(t *testing.T, pid string, most int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		open, err := os.ReadDir("/proc/" + pid + "/fd")
		if err != nil {
			t.Fatal(err)
		}
		if len(open) <= most {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %s has %d descriptors, want at most %d", pid, len(open), most)
		}
	}
}

func TestTrackedProcessEndsWithItsPID(t *testing.T) {
	d := New(t, A100(0))
	sleep := exec.Command("sleep", "60")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	d.TrackProcess(0, sleep.Process.Pid, 1<<30, Compute)
	d.AddProcess(0, 999999998, 1<<30, Compute)
	if got := computePIDs(t, d); len(got) != 2 {
		t.Errorf("both processes: %v", got)
	}
	sleep.Process.Kill()
	sleep.Wait()
	if got := computePIDs(t, d); len(got) != 1 || got[0] != "999999998" {
		t.Errorf("after the tracked one died: %v", got)
	}
}
