package main

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gpuard/internal/host/proc"
	"gpuard/internal/host/sys"
	"gpuard/test/fakegpu"
	"gpuard/test/pace"
)

// processorTime is what the processes that hold and measure leases in the state folder have taken, with those below them that
// read the devices.
func (r *fakeDriverMachine) processorTime() (spent time.Duration) {
	measures := measurersOf(r.state)
	for _, pid := range append(holdersOf(r.state), measures...) {
		if s, err := proc.New("/proc").Stat(pid); err == nil {
			spent += s.CPU
		}
	}
	for _, p := range sys.ReadProcesses() {
		if s, err := proc.New("/proc").Stat(p.PID); err == nil && slices.Contains(measures, p.Parent) {
			spent += s.CPU
		}
	}
	return spent
}

// TestQuotaMany: 60 shares that one process measures take at most 3 % of two processors; when that process is killed the next one
// measures them, too, and a job above its share is ended as soon as if it were alone.
func TestQuotaMany(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.GeForce(0))
	const shares = 60
	speed := pace.Start(t)
	var all sync.WaitGroup
	for range shares {
		all.Go(func() { r.startJobWithShare("300M", "200M", "-q") })
	}
	all.Wait()
	one := r.waitForMeasurer(0)
	time.Sleep(2 * time.Second) // for the last ones to be seen
	before, began := r.processorTime(), time.Now()
	time.Sleep(5 * time.Second)
	checkEqual(t, "who measures", r.waitForMeasurer(0), one)
	took := time.Since(began)
	spent := r.processorTime() - before
	t.Logf("%d shares take %v in %v", shares, spent, took)
	if most := speed.ScaleCPU(took * 6 / 100); spent > most {
		t.Errorf("that is more than %v", most)
	}
	killProcess(t, one)
	r.waitForMeasurer(one)
	checkTookAtMost(t, 3*time.Second+3*time.Second, func() time.Duration { // its grace, and a breach is to be seen
		cmd, heard, over := r.startJobWithShare("300M", "400M", "-q")
		began := time.Now()
		<-over
		checkEqual(t, "how it ended", cmd.ProcessState.String(), "signal: terminated")
		checkContains(t, heard.String(), "uses 400 MiB on GPU 0", "to end (SIGTERM)")
		return time.Since(began)
	})
}

// TestQuotaUnseen: a share on a GPU that the process does not see that measures those of its user has one of its own.
func TestQuotaUnseen(t *testing.T) {
	t.Parallel()
	r, narrow := newFakeDriverMachine(t, fakegpu.GeForce(0), fakegpu.GeForce(1)), newFakeDriverMachine(t, fakegpu.GeForce(0))
	narrow.state = r.state
	_, _, quiet := narrow.startShareJob("6G")
	first := r.waitForMeasurer(0)
	cmd := r.cmd("run", "--no-wait", "--share", "8G", "--device", "1", "--", "fakegpu-job", "--gpu", "1", "--mem", "16G")
	heard := &outputBuffer{}
	cmd.Stdout, cmd.Stderr = heard, heard
	_ = cmd.Run()
	checkEqual(t, "how it ended", cmd.ProcessState.String(), "signal: terminated")
	checkContains(t, heard.String(), "uses 16 GiB on GPU 1", "Next time ask for --share 18G")
	if isClosed(quiet) || !slices.Contains(measurersOf(r.state), first) {
		t.Errorf("the other share: %v is over, measured by %v, was by %d", isClosed(quiet), measurersOf(r.state), first)
	}
}

// TestQuotaHandedOver: what measures ends with the job for which it was started, and the next one knows what belongs to the
// others, also what has left their tree and forgotten its lease.
func TestQuotaHandedOver(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.GeForce(0))
	first, _, over := r.startShareJob("6G")
	one := r.waitForMeasurer(0)
	marks := t.TempDir()
	script := strings.ReplaceAll(`sh -c 'env -u GPUARD_LEASE setsid sh -c "echo \$\$ >@/on; until test -e @/go; do sleep 0.1; done; exec fakegpu-job --gpu 0 --mem 9G" & until test -e @/leave; do sleep 0.1; done'
		echo left; exec sleep 600`, "@", marks)
	other, heard := r.cmd("run", "--no-wait", "--share", "8G", "--", "sh", "-c", script), &outputBuffer{}
	other.Stdout, other.Stderr = heard, heard
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = other.Process.Kill(), other.Wait() })
	waitUntil(t, "its child is there", func() bool { text, _ := os.ReadFile(marks + "/on"); return len(text) > 0 })
	_, _, seen := r.startJobWithShare("300M", "400M") // ended by who has seen the child, too
	<-seen
	writeFile(t, marks+"/leave", "", 0o600)
	waitUntil(t, "the child has left its tree", func() bool { return strings.Contains(heard.String(), "left") })
	killProcess(t, first.Process.Pid)
	<-over
	r.waitForMeasurer(one)
	writeFile(t, marks+"/go", "", 0o600)
	waitUntil(t, "it is ended", func() bool { return strings.Contains(heard.String(), "to end (SIGTERM)") })
	checkContains(t, heard.String(), "uses 9 GiB on GPU 0")
	text, _ := os.ReadFile(marks + "/on")
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	waitUntil(t, "it is gone", func() bool { return !isProcessAlive(pid) })
}
