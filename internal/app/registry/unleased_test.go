package registry

import (
	"os"
	"os/exec"
	"reflect"
	"slices"
	"syscall"
	"testing"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/host/proc"
)

// TestLeasesByPID: a process belongs to the lease of its nearest ancestor, in whatever order the leases come; a lease
// with the PID of another user's process, or of one that has ended, has no processes.
func TestLeasesByPID(t *testing.T) {
	host := &machine.Host{Proc: proc.New("/proc")}
	user := os.Getuid()
	cmd := exec.Command("sleep", "60")
	if user == 0 {
		user = 65534
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	cmd.Env = []string{}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	lease := func(id string, pid, uid int) job.Lease {
		s, err := host.Proc.Stat(pid)
		if err != nil {
			t.Fatal(err)
		}
		return job.Lease{ID: id, PID: pid, Start: s.Start, UID: uint32(uid), Namespace: host.Proc.PIDNamespace(), Devices: []gpu.UUID{gpu.UUID("GPU-" + id)}}
	}
	child := cmd.Process.Pid
	outer, inner := lease("outer", os.Getpid(), os.Getuid()), lease("inner", child, user)
	forged, late := lease("forged", child, user+1), lease("late", child, user)
	late.Start--
	m := gpu.Machine{Processes: []gpu.Process{{PID: child, UID: new(uint32(user)), GPU: "GPU-x"}}}
	for _, c := range []struct {
		held []job.Lease
		want string
	}{
		{[]job.Lease{outer, inner}, "inner"},
		{[]job.Lease{inner, outer}, "inner"},
		{[]job.Lease{forged, outer}, "outer"},
		{[]job.Lease{outer, forged}, "outer"},
		{[]job.Lease{outer, late}, "outer"},
		{[]job.Lease{forged}, ""},
	} {
		var ids []string
		for _, l := range c.held {
			ids = append(ids, l.ID)
		}
		got := LeasesByPID(host, m, c.held)
		if got[child] != c.want || slices.Contains(ids, "outer") && got[os.Getpid()] != "outer" {
			t.Errorf("%v: the process belongs to %q, want %q", ids, got[child], c.want)
		}
	}
}

// TestServerOfMPS: the server through which the programs of a lease compute belongs to it, of one user and on its devices only. It was
// started for no lease and names none.
func TestServerOfMPS(t *testing.T) {
	host := &machine.Host{Proc: proc.New(t.TempDir())}
	m := gpu.Machine{Devices: []gpu.Device{{UUID: "GPU-a"}, {UUID: "GPU-b"}}}
	for i, p := range []gpu.Process{
		{GPU: "GPU-a", UID: new(uint32(7)), Command: "nvidia-cuda-mps-server"},
		{GPU: "GPU-a", UID: new(uint32(7)), Command: "/usr/bin/nvidia-cuda-mps-server -x"},
		{GPU: "GPU-b", UID: new(uint32(7)), Command: "nvidia-cuda-mps-server"},
		{GPU: "GPU-a", UID: new(uint32(8)), Command: "nvidia-cuda-mps-server"},
		{GPU: "GPU-a", Command: "nvidia-cuda-mps-server"},
		{GPU: "GPU-a", UID: new(uint32(7)), Command: "python nvidia-cuda-mps-server"},
	} {
		p.PID = 100 + i
		m.Processes = append(m.Processes, p)
	}
	held := []job.Lease{
		{ID: "watched", UID: 7, Share: 1, Quota: job.Watch, Devices: []gpu.UUID{"GPU-b"}, Namespace: 9},
		{ID: "through", UID: 7, Share: 1, Quota: job.MPS, Devices: []gpu.UUID{"GPU-a"}, Namespace: 9},
	}
	if got, want := LeaseTrees(host, m, held), (map[string][]int{"through": {100, 101}}); !reflect.DeepEqual(got, want) {
		t.Errorf("the trees are %v, want %v", got, want)
	}
	for pid, want := range map[int]string{100: "through", 101: "through", 103: ""} {
		if got := LeasesByPID(host, m, held)[pid]; got != want {
			t.Errorf("process %d belongs to %q, want %q", pid, got, want)
		}
	}
}
