package planview

import (
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
	"gpuard/internal/ui/console"
	"gpuard/internal/ui/translate"
	"gpuard/test/golden"
)

func refused4(t *testing.T, spec job.Spec, held ...job.Lease) string {
	t.Helper()
	m := golden.InventMachine(t, "demo")
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
	WriteRefusal(&out, r, console.Term{UTF8: true})
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
  GPU 0    busy    leased as k3f9 by alice (train, PID 77)
  GPU 1-3  free
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
	m := golden.InventMachine(t, "demo")
	m.Devices[1].Name = strings.Repeat("long ", 60)
	held := job.Lease{ID: "k3f9", UID: 1001, User: "alice", PID: 77, Devices: []gpu.UUID{m.Devices[0].UUID}}
	plan, r := pick.Place(job.Spec{Devices: []string{"1"}}, m, []job.Lease{held}, pick.Context{Tolerate: pick.DefaultTolerance()})
	if r != nil {
		t.Fatal(r)
	}
	var out strings.Builder
	WritePlan(&out, plan, console.Term{})
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || len(lines[0]) > 120 || !strings.Contains(lines[1], "GPU 1  chosen") {
		t.Errorf("%q", lines)
	}
	plan, _ = pick.Place(job.Spec{GPUs: 1}, m, []job.Lease{held}, pick.Context{Tolerate: pick.DefaultTolerance()})
	out.Reset()
	WritePlan(&out, plan, console.Term{})
	if text := out.String(); strings.Contains(text, "wait until") || !strings.Contains(text, "leased as k3f9 by alice") {
		t.Error(text)
	}
}

func TestRefusal(t *testing.T) {
	r := &job.Refusal{
		Summary: "cannot give 3 GPUs: 1 of 5 is free",
		Remedy:  "ask for 1 GPU (--gpus 1), or wait until lease k3f9 (bob, serve, since 13:00) ends",
		Reasons: []job.Reason{
			{Index: 0, Name: "NVIDIA L4", Verdict: job.Busy, Text: "alice's python (pid 4242) holds 20 GiB for 3 h: python \x1b[2Jtrain.py 日本 --data /very/long/path/without/any/break/in/it/at/all/so/that/it/must/be/broken", Remedy: "end it: kill 4242"},
			{Index: 1, Name: "NVIDIA L4", Verdict: job.Busy, Text: "leased as k3f9 by bob (serve, pid 77, since 13:00)", Remedy: "wait until it ends"},
			{Index: 2, Name: "NVIDIA L4", Verdict: job.Busy, Text: "leased as k3f9 by bob (serve, pid 77, since 13:00)", Remedy: "wait until it ends"},
			{Index: 3, Name: "NVIDIA L4", Verdict: job.Never, Text: "excluded by --exclude 3"},
			{Index: 0, Name: "AMD Instinct MI300X", Verdict: job.Eligible, Text: "free"},
		},
	}
	golden.CompareWidths(t, "refusal", func(w *strings.Builder, term console.Term) { WriteRefusal(w, r, term) })
}

func TestPlan(t *testing.T) {
	plan := job.Plan{
		Devices: []job.Given{
			{Logical: 0, Index: 2, Name: "NVIDIA A100-SXM4-80GB", Vendor: gpu.NVIDIA},
			{Logical: 1, Index: 3, Name: "NVIDIA A100-SXM4-80GB", Vendor: gpu.NVIDIA},
		},
		Reasons: []job.Reason{
			{Index: 0, Verdict: job.Eligible, Text: "free, but warmer than GPU 2 (55 C against 41 C)"},
			{Index: 1, Verdict: job.Busy, Text: "leased as k3f9 by bob (serve, pid 77, since 13:00)"},
			{Index: 2, Verdict: job.Chosen, Text: "chosen: cooler than GPU 0 (41 C against 55 C)"},
			{Index: 3, Verdict: job.Chosen, Text: "chosen with GPU 2 (linked by NVLink)"},
		},
		Notes: []string{"GPU 3: carol's ipykernel (pid 9) holds 128 MiB for 5 days; it ends with: kill 9"},
	}
	golden.CompareWidths(t, "plan", func(w *strings.Builder, term console.Term) { WritePlan(w, plan, term) })
	slices := job.Plan{
		Devices: []job.Given{{Index: 0, Name: "NVIDIA A100-SXM4-80GB", Profile: "1g.10gb", Vendor: gpu.NVIDIA}},
		Reasons: []job.Reason{
			{Index: 0, Name: "NVIDIA A100-SXM4-80GB MIG 3g.40gb", Verdict: job.Never, Text: "a 3g.40gb slice, not 1g.10gb"},
			{Index: 0, Name: "NVIDIA A100-SXM4-80GB MIG 1g.10gb", Verdict: job.Chosen, Text: "the only one that is free"},
		},
	}
	golden.CompareWidths(t, "plan-mig", func(w *strings.Builder, term console.Term) { WritePlan(w, slices, term) })
	golden.CompareWidths(t, "plan-cpu", func(w *strings.Builder, term console.Term) { WritePlan(w, job.Plan{}, term) })
}

// TestRefusalInChinese: a refusal with its reasons and what to do, and a plan.
func TestRefusalInChinese(t *testing.T) {
	m := golden.InventMachine(t, "demo")
	held := []job.Lease{{ID: "k3f9", UID: 1001, User: "alice", Command: "train", PID: 77, Devices: []gpu.UUID{m.Devices[1].UUID}}}
	asked := pick.Context{UID: 1000, Tolerate: pick.DefaultTolerance()}
	_, refusal := pick.Place(job.Spec{GPUs: 4}, m, held, asked)
	plan, _ := pick.Place(job.Spec{GPUs: 1, Share: 8 * gpu.GiB}, m, held, asked)
	term := console.Term{Width: 60, UTF8: true, Language: translate.ReadLocale("zh_CN")}
	var out strings.Builder
	WriteRefusal(&out, refusal, term)
	WritePlan(&out, plan, term)
	golden.Compare(t, "refusal-zh-60", out.String())
}
