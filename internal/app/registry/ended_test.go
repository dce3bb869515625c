package registry

import (
	"testing"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/job"
	"gpuard/internal/host/proc"
)

// TestStoppedElsewhere: nobody is told to continue a process by a number that counts in another PID namespace.
func TestStoppedElsewhere(t *testing.T) {
	host := &machine.Host{Proc: proc.New("/proc")}
	l := job.Lease{ID: "k3f9", Ended: true, HeldBy: []job.Blocker{{PID: 3, Command: "sleep", Stopped: true}}}
	for namespace, told := range map[uint64]bool{host.Proc.PIDNamespace(): true, host.Proc.PIDNamespace() + 1: false} {
		l.Namespace = namespace
		if got := FindUnattended(host, nil, l, true); (got.StoppedHolder() != nil) != told || len(got.HeldBy) != 1 {
			t.Errorf("namespace %d: %+v", namespace, got.HeldBy)
		}
	}
	if l.StoppedHolder() == nil {
		t.Error("the lease of the caller has changed")
	}
}
