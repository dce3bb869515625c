package run

import (
	"path/filepath"
	"slices"
	"testing"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/host/proc"
	"gpuard/test/hosts"
)

// TestPreferDrifts: a job that shall move away from the device that it has is not held there because it had it before.
func TestPreferDrifts(t *testing.T) {
	t.Parallel()
	host := &machine.Host{Machine: "demo:4xL4", Env: []string{"GPUARD_STATE=" + filepath.Join(t.TempDir(), "state")}, Proc: proc.New("/proc"),
		PrivateState: true, Messages: machine.Messages{Say: func(string) {}}}
	var ids []gpu.UUID
	for _, d := range hosts.InventMachine(t, host.Machine).Devices {
		ids = append(ids, d.UUID)
	}
	l, err := Prepare(t.Context(), host, job.Spec{GPUs: 1, Prefer: ids[1:2], Command: []string{"sleep"}, Waiting: job.Waiting{No: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.releaseLease()
	s := &supervision{host: host, spec: l.spec}
	next := s.leaseOtherDevice(t.Context(), l, moveRequest{reason: "hot", avoid: []gpu.UUID{ids[3]}})
	if next == nil {
		t.Fatal("it stays where it is")
	}
	if !slices.Equal(l.Plan.UUIDs(), ids[1:2]) || !slices.Equal(next.Plan.UUIDs(), ids[2:3]) || !slices.Equal(next.spec.Prefer, ids[1:2]) {
		t.Errorf("it moves from %v to %v, and later prefers %v", l.Plan.UUIDs(), next.Plan.UUIDs(), next.spec.Prefer)
	}
	next.releaseLease()
	again := s.leaseAvoiding(t.Context(), nil)
	if again == nil || !slices.Equal(again.Plan.UUIDs(), ids[3:]) {
		t.Fatalf("while somebody has its device it starts again on %+v", again)
	}
	again.releaseLease()
}
