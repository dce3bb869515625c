package pick

import (
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// TestHeldApart: a lease of the caller's own shell is given back; the caller is not told to wait for the shell's
// end.
func TestHeldApart(t *testing.T) {
	m, err := gpu.InventMachine("demo:1xL4")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		lease  job.Lease
		remedy string
	}{
		{job.Lease{ID: "k3f9", UID: 7, User: "alice", Command: "bash", Apart: true}, "give lease k3f9 back (gpuard release k3f9)"},
		{job.Lease{ID: "k3f9", UID: 8, User: "bob", Command: "bash", Apart: true}, "wait until lease k3f9"},
		{job.Lease{ID: "k3f9", UID: 7, User: "alice", Command: "bash"}, "wait until lease k3f9"},
	} {
		test.lease.Devices = []gpu.UUID{m.Devices[0].UUID}
		_, refusal := Place(job.Spec{GPUs: 1}, m, []job.Lease{test.lease}, Context{UID: 7, Tolerate: DefaultTolerance()})
		if refusal == nil || !strings.HasPrefix(refusal.Remedy, test.remedy) {
			t.Errorf("%+v: %+v", test.lease, refusal)
		}
	}
}

// TestHeldInContainer: the PID of a lease in another PID namespace is said to count there.
func TestHeldInContainer(t *testing.T) {
	m, err := gpu.InventMachine("demo:1xL4")
	if err != nil {
		t.Fatal(err)
	}
	held := job.Lease{ID: "k3f9", UID: 8, User: "bob", Command: "python", PID: 1, Namespace: 20, Devices: []gpu.UUID{m.Devices[0].UUID}}
	for here, want := range map[uint64]string{0: "(python, PID 1)", 20: "(python, PID 1)", 30: "(python, PID 1 in its container)"} {
		_, refusal := Place(job.Spec{GPUs: 1}, m, []job.Lease{held}, Context{UID: 7, Namespace: here, Tolerate: DefaultTolerance()})
		if refusal == nil || !strings.Contains(refusal.Reasons[0].Text, want) {
			t.Errorf("seen from %d: %+v, want %s", here, refusal, want)
		}
	}
}
