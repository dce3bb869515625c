package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/status"
	"gpuard/internal/gate"
	"gpuard/internal/host/proc"
	"gpuard/test/fakegpu"
)

func TestDriverForeignProcess(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(4)...)
	pid := r.startFakeJob(0, "20G", fakegpu.Compute)
	for range 20 {
		if got := r.givenDevices(); got == fakeUUID(0) {
			t.Fatal("a GPU with 20 GiB of somebody else was given")
		}
	}
	refusal := mustRefuse(t, r.cmd("run", "--json", "--gpus", "4", "--", "true"), 120)
	checkContains(t, refusal.Error, "3 of 4 are free")
	checkContains(t, refusal.Reasons[0].Text, fmt.Sprintf("PID %d", pid), "20 GiB")
	for _, reason := range refusal.Reasons[1:] {
		checkEqual(t, "another device", reason.Code, "order")
	}
}

// TestDriverForeignProcessAlone: the only GPU is in use by another user, and the refusal names that user.
func TestDriverForeignProcessAlone(t *testing.T) {
	gate.Need(t, "root")
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.A100(0))
	job := r.fakeJobCommand(0, "20G", fakegpu.Compute)
	job.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobodyUID, Gid: nobodyUID}}
	startToFirstLine(t, job)
	refusal := mustRefuse(t, r.cmd("run", "--json", "--", "true"), 120)
	user := proc.New("/proc").User(nobodyUID)
	checkContains(t, refusal.Reasons[0].Text, "in use without a lease by", fmt.Sprintf("PID %d of %s", job.Process.Pid, user), "20 GiB", "fakegpu-job --gpu 0")
	if p := refusal.Reasons[0].Processes; len(p) != 1 || p[0].PID != job.Process.Pid || p[0].User != user || *p[0].Memory != 20*gpu.GiB {
		t.Errorf("blocking processes: %+v", p)
	}
	checkContains(t, refusal.Remedy, fmt.Sprintf("the processes of "+user+" there (gpuard evict %d)", job.Process.Pid))

	_ = job.Process.Kill()
	_ = job.Wait()
	checkEqual(t, "after its end", r.givenDevices(), fakeUUID(0))
}

// nobodyUID is a uid that every Linux has.
const nobodyUID = 65534

// TestDriverDesktop: the display of a desktop with one GPU does not keep it from work, and is named.
func TestDriverDesktop(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.GeForce(0))
	xorg := r.fakeJobCommand(0, "800M", fakegpu.Graphics)
	xorg.Args[0] = "/usr/lib/xorg/Xorg"
	startToFirstLine(t, xorg)
	got := r.run("run", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
	checkEqual(t, "run", []any{got.code, got.out}, []any{0, "0\n"})
	checkEqual(t, "lines about the display", strings.Count(got.err, "display"), 1)
	if checkContains(t, got.err, "also drives your display, 800 MiB"); strings.Contains(got.err, "kill") {
		t.Errorf("it says how to end the display: %s", got.err)
	}
	waitUntil(t, "the GPU is free", func() bool {
		s, _ := r.readStatus()
		return s.Devices[0].Use == status.Free
	})
	checkContains(t, r.run("status").out, "Xorg")
}

// TestDesktopIsNeverEnded: nothing that gpuard prints on a desktop says how to end its display, whatever is asked; what
// only renders may be ended.
func TestDesktopIsNeverEnded(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.GeForce(0).With("display_active", "1"), fakegpu.GeForce(1).With("display_active", "0"))
	for name, kind := range map[string]string{"/usr/lib/xorg/Xorg": fakegpu.Graphics, "/usr/bin/gnome-shell": fakegpu.Both, "/opt/google/chrome/chrome": fakegpu.Both} {
		job := r.fakeJobCommand(0, "900M", kind)
		job.Args[0] = name
		startToFirstLine(t, job)
	}
	renderer := r.startFakeJob(1, "300M", fakegpu.Graphics)
	for _, words := range []string{"run --no-wait --device 0 -- true", "run --no-wait --share 22G --device 0 -- true", "status", "evict", "run --dry-run --device 0 -- true", "doctor"} {
		got := r.run(strings.Fields(words)...)
		for _, bad := range []string{"kill ", "end it"} {
			if text := got.out + got.err; strings.Contains(text, bad) {
				t.Errorf("%s says %q:\n%s", words, bad, text)
			}
		}
	}
	got := strings.Join(strings.Fields(r.run("run", "--no-wait", "--device", "0", "--", "true").err), " ")
	checkContains(t, got, "in use by its display", "more than the 2 GiB that gpuard tolerates", "raise tolerate.display in /etc/gpuard/config.yaml")
	checkContains(t, r.run("run", "--no-wait", "--device", "1", "--", "true").err, fmt.Sprintf("kill %d", renderer))
	checkEqual(t, "leftovers", r.runEvict(0).leftoverPIDs(), []int{renderer})
}

// leaveChildOnGPU runs a job that leaves a child on GPU 0 for some seconds, without any of the lease's descriptors, and returns
// the child.
func (r *fakeDriverMachine) leaveChildOnGPU(seconds int) int {
	r.t.Helper()
	got := r.run("run", "-q", "--device", "0", "--", r.Job, "--gpu", "0", "--mem", "1G", "--fork-child", fmt.Sprint(seconds), "--close-fds")
	found, err := os.ReadDir(filepath.Join(r.Dir, "gpus", "0", "procs.d"))
	if got.code != 0 || err != nil {
		r.t.Fatalf("exit %d, %v\n%s", got.code, err, got.err)
	}
	for _, f := range found {
		if pid, err := strconv.Atoi(f.Name()); err == nil && proc.New("/proc").IsAlive(pid, 0) {
			r.t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGKILL) })
			return pid
		}
	}
	r.t.Fatal("the job has left no child")
	return 0
}

// TestDriverLeftChild: a lease's end is not the end of its use. The device stays busy with the reason, and is free when
// the child is gone.
func TestDriverLeftChild(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.A100(0))
	child := r.leaveChildOnGPU(60)
	waitUntil(t, "the lease has ended", func() bool {
		s, _ := r.readStatus()
		return len(s.Devices[0].Leases) == 0
	})
	s, _ := r.readStatus()
	checkEqual(t, "use", s.Devices[0].Use, status.Busy)
	checkContains(t, s.Devices[0].Reason, fmt.Sprintf("PID %d", child), "1 GiB", "fakegpu-job")
	refusal := mustRefuse(t, r.hastyCommand("run", "--json", "--", "true"), 120)
	checkContains(t, refusal.Reasons[0].Text, fmt.Sprintf("PID %d", child), "1 GiB", "fakegpu-job")

	if err := unix.Kill(child, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	got := runWithin(t, 9*time.Second, r.cmd("run", "-q", "--", "sh", "-c", "echo $GPUARD_GPUS"))
	checkEqual(t, "afterwards", []any{got.code, got.out}, []any{0, fakeUUID(0) + "\n"})
}

// TestDriverLeftChildEnds: a request gets the device if the child that was left behind is about to end.
func TestDriverLeftChildEnds(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.A100(0))
	child := r.leaveChildOnGPU(60)
	asks := r.startRun("run", "--", "sh", "-c", "echo $GPUARD_GPUS")
	asks.waitForText("waiting for 1 GPU, 1st of 1")
	if len(asks.over) > 0 {
		t.Error("the device was given while the child was on it")
	}
	killProcess(t, child)
	got := <-asks.over
	checkEqual(t, "run", []any{got.code, got.out}, []any{0, fakeUUID(0) + "\n"})
}

// TestDriverRace: two launches whose readings both show the last free device.
func TestDriverRace(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	r.startFakeJob(0, "20G", fakegpu.Compute)
	r.Delay("nvmlDeviceGetTemperature", fakegpu.AnyGPU, 100)
	for round := range 4 {
		over := filepath.Join(r.Dir, fmt.Sprint("over", round))
		codes := make(chan int, 2)
		for range 2 {
			go func() {
				got := runCommand(t, r.cmd("run", "-q", "--no-wait", "--", "sh", "-c", `while ! test -e "$0"; do sleep 0.1; done`, over))
				codes <- got.code
			}()
		}
		first := <-codes // the winner waits for the loser
		if err := os.WriteFile(over, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if second := <-codes; first != 120 || second != 0 {
			t.Fatalf("round %d: the runs ended with %d and %d", round, first, second)
		}
	}
}

// TestDriverStaleReading: while one launch reads the machine, another one comes and goes and leaves a child on the
// device. The first one must not trust what it read before.
func TestDriverStaleReading(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.A100(0))
	if got := r.run("run", "-q", "--", "true"); got.code != 0 { // makes the folder
		t.Fatal(got.err)
	}
	ecc := filepath.Join(r.Dir, "gpus", "0", "ecc") // read after the processes
	if err := unix.Mkfifo(ecc, 0o644); err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	defer wait.Wait()
	wait.Go(func() {
		refusal := mustRefuse(t, r.patientCommand("run", "--json", "--", "true"), 120)
		checkContains(t, refusal.Reasons[0].Text, "fakegpu-job")
	})
	var gate int
	waitUntil(t, "the first launch reads the health", func() (ok bool) {
		var err error
		gate, err = unix.Open(ecc, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		return err == nil
	})
	other := &fakeDriverMachine{fakegpu.New(t, fakegpu.A100(0)), t, r.state, nil}
	child := other.leaveChildOnGPU(60)
	waitUntil(t, "the second lease has ended", func() bool {
		s, _ := other.readStatus()
		return len(s.Devices[0].Leases) == 0
	})
	r.TrackProcess(0, child, 1<<30, fakegpu.Compute)
	r.SetValue(0, "ecc", "1")
	if _, err := unix.Write(gate, []byte("1\n")); err != nil {
		t.Error(err)
	}
	_ = unix.Close(gate)
}

// fakeJobCommand prepares a process without a lease on a device.
func (r *fakeDriverMachine) fakeJobCommand(index int, memory, kind string) *exec.Cmd {
	cmd := exec.Command(r.Job, "--gpu", fmt.Sprint(index), "--mem", memory, "--kind", kind)
	cmd.Env = append(os.Environ(), r.Env()...)
	return cmd
}

// startFakeJob starts one and returns its PID.
func (r *fakeDriverMachine) startFakeJob(index int, memory, kind string) int {
	r.t.Helper()
	cmd := r.fakeJobCommand(index, memory, kind)
	startToFirstLine(r.t, cmd)
	return cmd.Process.Pid
}
