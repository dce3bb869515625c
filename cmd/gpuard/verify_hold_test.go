package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gpuard/internal/core/proof"
	"gpuard/internal/gate"
)

// leaseForPID gives a running process a lease of a device.
func (r *fakeDriverMachine) leaseForPID(pid, device int) (lease string) {
	r.t.Helper()
	args := []string{"reserve", "--any", "--device", fmt.Sprint(device), "--pid", fmt.Sprint(pid)}
	if isContained() {
		args = append(args, "--private-state")
	}
	got := r.run(args...)
	_, lease, _ = strings.Cut(got.out, ", lease ")
	lease, _, _ = strings.Cut(lease, ",")
	if got.code != 0 || lease == "" {
		r.t.Fatalf("exit %d, %q, %s", got.code, got.out, got.err)
	}
	return lease
}

// startHeldShell is a shell that has a lease of GPU 0 since after its start, with a job on a GPU.
func (r *fakeDriverMachine) startHeldShell(on int, env ...string) (lease string, shell int) {
	r.t.Helper()
	start := filepath.Join(r.t.TempDir(), "start")
	script := fmt.Sprintf(`echo; until test -e %s; do sleep 0.1; done; CUDA_VISIBLE_DEVICES=%d fakegpu-job --gpu %[2]d & wait`, start, on)
	shell = r.startUnleased(env, script)
	lease = r.leaseForPID(shell, 0)
	if err := os.WriteFile(start, nil, 0o644); err != nil {
		r.t.Fatal(err)
	}
	waitUntil(r.t, "the job is on its GPU", func() bool {
		s, _ := r.readStatus()
		return len(s.Devices[on].Processes) == 1
	})
	return lease, shell
}

// TestVerifyHeld: the lease is found for the process and for its children, also if GPUARD_LEASE names an old one.
func TestVerifyHeld(t *testing.T) {
	t.Parallel()
	for _, stale := range []string{"", "GPUARD_LEASE=gone"} {
		r := newFakeDriverMachine(t, makeA100s(2)...)
		lease, shell := r.startHeldShell(1, stale)
		v := r.mustVerify(proof.OutsideLease, 1, fmt.Sprint(shell))
		checkEqual(t, "lease of the shell", v.Lease, lease)
		v = r.mustVerify(proof.OutsideLease, 1, fmt.Sprint(v.Sightings[0].PID))
		checkEqual(t, "lease of its child", v.Lease, lease)
	}
}

// TestVerifyHeldEarlier: an environment that is older than the lease proves nothing.
func TestVerifyHeldEarlier(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	lease, shell := r.startHeldShell(0, "CUDA_VISIBLE_DEVICES=1")
	for _, target := range []string{lease, fmt.Sprint(shell)} {
		v := r.mustVerify(proof.Proven, 0, target)
		checkEqual(t, "lease", v.Lease, lease)
		checkContains(t, strings.Join(v.Notes, "; "), "the lease alone counts")
	}
}

// TestVerifyHeldForAnother: root's lease for a user's process is that process's.
func TestVerifyHeldForAnother(t *testing.T) {
	t.Parallel()
	gate.Need(t, "root")
	r := newFakeDriverMachine(t, makeA100s(1)...)
	cmd := exec.Command("/bin/sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobodyUID, Gid: nobodyUID}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	pid := cmd.Process.Pid
	lease := r.leaseForPID(pid, 0)
	checkEqual(t, "lease", r.mustVerify(proof.TooEarly, 123, "--for", "300ms", fmt.Sprint(pid)).Lease, lease)
}
