package checkcmd

import (
	"encoding/json"
	"strings"
	"testing"

	"gpuard/internal/app/explain"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/visible"
	"gpuard/internal/ui/console"
	"gpuard/test/golden"
)

func TestExplain(t *testing.T) {
	m := golden.InventMachine(t, "demo:2xA100-80GB+1xL4")
	v := visible.View{
		Visible: []visible.Entry{
			{Logical: 0, Index: 2, UUID: m.Devices[2].UUID, Vendor: gpu.NVIDIA, Runtime: "cuda"},
			{Logical: 1, Index: 0, UUID: m.Devices[0].UUID, Vendor: gpu.NVIDIA, Runtime: "cuda"},
		},
		Notes: []visible.Note{{Code: "invalid-index", Text: "CUDA_VISIBLE_DEVICES=2,0,-1,1: entry \"-1\" is no valid number and ends the list; dropped with it: \"1\""}},
	}
	golden.CompareWidths(t, "explain", func(w *strings.Builder, term console.Term) {
		console.Draw(w, term, func(page *console.Page) { explainView(page, v, m) })
	})
	none := visible.View{Notes: []visible.Note{{Code: "empty-list", Text: "CUDA_VISIBLE_DEVICES=: no GPU is visible"}}}
	golden.CompareWidths(t, "explain-none", func(w *strings.Builder, term console.Term) {
		console.Draw(w, term, func(page *console.Page) { explainView(page, none, m) })
	})
	split := golden.InventMachine(t, "demo:1xA100-80GB:3g.40gb,1g.10gb*2")
	s := split.Devices[0].MIG[1]
	v = visible.View{Visible: []visible.Entry{{UUID: s.UUID, Parent: split.Devices[0].UUID, Profile: s.Profile, Vendor: gpu.NVIDIA, Runtime: "cuda"}}}
	golden.CompareWidths(t, "explain-mig", func(w *strings.Builder, term console.Term) {
		console.Draw(w, term, func(page *console.Page) { explainView(page, v, split) })
	})
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
		golden.CompareWidths(t, name, func(w *strings.Builder, term console.Term) {
			console.Draw(w, term, func(page *console.Page) { explainProcessView(page, &x) })
		})
	}
}
