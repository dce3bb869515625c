package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"gpuard/internal/app/explain"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/visible"
)

func TestWidth(t *testing.T) {
	for text, want := range map[string]int{"": 0, "abc": 3, "日本": 4, "🚀": 2, "e\u0301": 1, "━╸┈…": 4, "한글": 4, "ｆ": 2, "é": 1, "א": 1} {
		if got := cells(text); got != want {
			t.Errorf("%q takes %d columns, want %d", text, got, want)
		}
	}
	for _, tt := range []struct {
		text  string
		width int
		want  string
	}{{"abcdef", 4, "abc…"}, {"abc", 3, "abc"}, {"日本語", 4, "日…"}, {"日本語", 1, "…"}, {"abc", 0, ""}, {"ab  cdef", 5, "ab…"}} {
		if got := cut(tt.text, tt.width, "…"); got != tt.want {
			t.Errorf("cut(%q, %d) = %q, want %q", tt.text, tt.width, got, tt.want)
		}
	}
	if got := pad("日本語", 4, true, "…"); got != " 日…" {
		t.Errorf("pad fills what a wide character leaves: %q", got)
	}
}

func TestWrap(t *testing.T) {
	tests := []struct {
		text  string
		width int
		want  []string
	}{
		{"one two three", 7, []string{"one two", "three"}},
		{"one  two", 0, []string{"one  two"}},
		{"abcdefgh ij", 3, []string{"abc", "def", "gh", "ij"}},
		{"日本 語", 1, []string{""}}, // nothing fits, nothing loops
		{"", 5, []string{""}},
	}
	for _, tt := range tests {
		if got := wrap(tt.text, tt.width); fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("wrap(%q, %d) = %q, want %q", tt.text, tt.width, got, tt.want)
		}
	}
}

func narrowAndWide(t *testing.T, name string, show func(w *strings.Builder, term Term)) {
	t.Helper()
	for _, width := range []int{0, 40, 80} {
		var out strings.Builder
		show(&out, Term{Width: width, UTF8: true})
		golden(t, fmt.Sprintf("%s-%d", name, width), out.String())
	}
	for width := 1; width < 150; width++ {
		var out strings.Builder
		show(&out, Term{Width: width})
		for line := range strings.Lines(out.String()) {
			if line = strings.TrimSuffix(line, "\n"); cells(line) > width || strings.ContainsAny(line, "\x1b…→") {
				t.Fatalf("%s at %d columns: %q", name, width, line)
			}
		}
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
	narrowAndWide(t, "refusal", func(w *strings.Builder, term Term) { Refusal(w, r, term) })
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
			{Index: 3, Verdict: job.Chosen, Text: "chosen with GPU 2 (NVLink between them)"},
		},
		Notes: []string{"GPU 3: carol's ipykernel (pid 9) holds 128 MiB for 5 days; it ends with: kill 9"},
	}
	narrowAndWide(t, "plan", func(w *strings.Builder, term Term) { Plan(w, plan, term) })
	slices := job.Plan{
		Devices: []job.Given{{Index: 0, Name: "NVIDIA A100-SXM4-80GB", Profile: "1g.10gb", Vendor: gpu.NVIDIA}},
		Reasons: []job.Reason{
			{Index: 0, Name: "NVIDIA A100-SXM4-80GB MIG 3g.40gb", Verdict: job.Never, Text: "a 3g.40gb slice, not 1g.10gb"},
			{Index: 0, Name: "NVIDIA A100-SXM4-80GB MIG 1g.10gb", Verdict: job.Chosen, Text: "the only one that is free"},
		},
	}
	narrowAndWide(t, "plan-mig", func(w *strings.Builder, term Term) { Plan(w, slices, term) })
	narrowAndWide(t, "plan-cpu", func(w *strings.Builder, term Term) { Plan(w, job.Plan{}, term) })
}

func TestExplain(t *testing.T) {
	m := invented(t, "demo:2xA100-80GB+1xL4")
	v := visible.View{
		Visible: []visible.Entry{
			{Logical: 0, Index: 2, UUID: m.Devices[2].UUID, Vendor: gpu.NVIDIA, Runtime: "cuda"},
			{Logical: 1, Index: 0, UUID: m.Devices[0].UUID, Vendor: gpu.NVIDIA, Runtime: "cuda"},
		},
		Notes: []visible.Note{{Code: "invalid-index", Text: "CUDA_VISIBLE_DEVICES=2,0,-1,1: entry \"-1\" is no valid number and ends the list; dropped with it: \"1\""}},
	}
	narrowAndWide(t, "explain", func(w *strings.Builder, term Term) { Explain(w, v, m, term) })
	none := visible.View{Notes: []visible.Note{{Code: "empty-list", Text: "CUDA_VISIBLE_DEVICES=: no GPU is visible"}}}
	narrowAndWide(t, "explain-none", func(w *strings.Builder, term Term) { Explain(w, none, m, term) })
	split := invented(t, "demo:1xA100-80GB:3g.40gb,1g.10gb*2")
	s := split.Devices[0].MIG[1]
	v = visible.View{Visible: []visible.Entry{{UUID: s.UUID, Parent: split.Devices[0].UUID, Profile: s.Profile, Vendor: gpu.NVIDIA, Runtime: "cuda"}}}
	narrowAndWide(t, "explain-mig", func(w *strings.Builder, term Term) { Explain(w, v, split, term) })
}

func TestExplainProcess(t *testing.T) {
	for name, answer := range map[string]string{
		"explain-process": `{"process": {"pid": 4242, "user": "alice", "command": "python train.py \u001b[2J --data /a/long/path/to/some/data/set", "variables": ["CUDA_VISIBLE_DEVICES=1"], "beaten": []}}`,
		"explain-process-lease": `{"process": {"pid": 4242, "user": "alice", "command": "python", "container": "3f1c0a5be2d94786a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718", "job": "slurm:12",
			"lease": "k3f9", "matches_lease": false, "variables": ["ROCR_VISIBLE_DEVICES=1,0", "HIP_VISIBLE_DEVICES=1"], "beaten": ["CUDA_VISIBLE_DEVICES=0"]}}`,
		"explain-process-free": `{"process": {"pid": 7, "user": "", "command": "[kworker/0:1]", "lease": "k3f9", "matches_lease": true}}`,
	} {
		var x explain.Explanation
		if err := json.Unmarshal([]byte(answer), &x); err != nil {
			t.Fatal(err)
		}
		narrowAndWide(t, name, func(w *strings.Builder, term Term) { ExplainProcess(w, &x, term) })
	}
}

func TestTerminal(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	got := Terminal(file, visible.Env{"LANG=de_DE.UTF-8", "TERM=xterm", "COLUMNS=20"})
	if want := (Term{Width: 20, UTF8: true}); got != want {
		t.Errorf("a file is %+v, want %+v", got, want)
	}
	if got := Terminal(file, nil); got.Width != 80 || got.TTY {
		t.Errorf("a file is 80 columns wide where COLUMNS is not set, and no terminal: %+v", got)
	}
	for _, tt := range []struct {
		env  visible.Env
		want bool
	}{
		{visible.Env{"LANG=C.UTF-8"}, true}, {visible.Env{"LANG=en_US.utf8"}, true}, {visible.Env{"LC_ALL=C", "LANG=C.UTF-8"}, false},
		{visible.Env{"LC_ALL=", "LC_CTYPE=C.UTF-8"}, true}, {nil, false}, {visible.Env{"LANG=POSIX"}, false},
	} {
		if got := speaksUTF8(tt.env); got != tt.want {
			t.Errorf("%v speaks UTF-8: %v, want %v", tt.env, got, tt.want)
		}
	}
}
