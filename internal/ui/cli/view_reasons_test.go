package cli

import (
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
)

func refused4(t *testing.T, spec job.Spec, held ...job.Lease) string {
	t.Helper()
	m := invented(t, "demo")
	for i := range held {
		held[i].Devices = []gpu.UUID{m.Devices[i].UUID}
	}
	_, r := pick.Place(spec, m, held, pick.Context{UID: 1000, Tolerate: pick.DefaultTolerance()})
	if r == nil {
		t.Fatal("this must be refused")
	}
	if len(r.Reasons) != len(m.Devices) {
		t.Errorf("JSON has %d reasons, want one per device", len(r.Reasons))
	}
	var out strings.Builder
	Refusal(&out, r, Term{UTF8: true})
	return out.String()
}

// TestRefusalOnce: the reason and the remedy are each written once.
func TestRefusalOnce(t *testing.T) {
	alice := func(id string) job.Lease {
		return job.Lease{ID: id, UID: 1001, User: "alice", Command: "train", PID: 77}
	}
	tests := []struct {
		name string
		spec job.Spec
		held []job.Lease
		want string
	}{
		{"an unknown name", job.Spec{Devices: []string{"9"}}, nil, `gpuard: cannot find device 9: this machine has 0-3
gpuard: write an index, a UUID or its unique beginning, or a PCI id; gpuard status lists them
`},
		{"one named device", job.Spec{Devices: []string{"0"}}, []job.Lease{alice("k3f9")}, `gpuard: cannot give GPU 0: leased as k3f9 by alice (train, PID 77)
gpuard: wait until lease k3f9 of alice ends, or name another device, or none to have one chosen
`},
		{"two named devices", job.Spec{Devices: []string{"0", "3"}}, []job.Lease{alice("k3f9")}, `gpuard: cannot give GPU 0: leased as k3f9 by alice (train, PID 77)
  GPU 0  busy    leased as k3f9 by alice (train, PID 77)
  GPU 3  free
gpuard: wait until lease k3f9 of alice ends, or name another device, or none to have one chosen
`},
		{"any devices", job.Spec{GPUs: 4}, []job.Lease{alice("k3f9")}, `gpuard: cannot give 4 GPUs: 3 of 4 are free
  GPU 0  busy    leased as k3f9 by alice (train, PID 77)
  GPU 1  free
  GPU 2  free
  GPU 3  free
gpuard: ask for 3 GPUs (--gpus 3), or wait until lease k3f9 of alice ends
`},
	}
	for _, tt := range tests {
		if got := refused4(t, tt.spec, tt.held...); got != tt.want {
			t.Errorf("%s:\n%s\nwant:\n%s", tt.name, got, tt.want)
		}
	}
}

// TestPlanOnlyAsked: a plan has no remedies, and no devices that --device does not name.
func TestPlanOnlyAsked(t *testing.T) {
	m := invented(t, "demo")
	m.Devices[1].Name = strings.Repeat("long ", 60)
	held := job.Lease{ID: "k3f9", UID: 1001, User: "alice", PID: 77, Devices: []gpu.UUID{m.Devices[0].UUID}}
	plan, r := pick.Place(job.Spec{Devices: []string{"1"}}, m, []job.Lease{held}, pick.Context{Tolerate: pick.DefaultTolerance()})
	if r != nil {
		t.Fatal(r)
	}
	var out strings.Builder
	Plan(&out, plan, Term{})
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || len(lines[0]) > 120 || !strings.Contains(lines[1], "GPU 1  chosen") {
		t.Errorf("%q", lines)
	}
	plan, _ = pick.Place(job.Spec{GPUs: 1}, m, []job.Lease{held}, pick.Context{Tolerate: pick.DefaultTolerance()})
	out.Reset()
	Plan(&out, plan, Term{})
	if text := out.String(); strings.Contains(text, "wait until") || !strings.Contains(text, "leased as k3f9 by alice") {
		t.Error(text)
	}
}
