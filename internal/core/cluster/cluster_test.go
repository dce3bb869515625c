package cluster

import (
	"fmt"
	"strings"
	"testing"

	"gpuard/internal/core/check"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/policy"
)

func site() Site {
	return Site{Name: "c", Version: "22.05.8", Types: true, Accounting: true, Partitions: []Partition{{"all", true, "up", "infinite", 2}},
		Nodes: []Node{{Name: "n1", States: []string{"MIXED"}, Features: []string{"gpumem80g"}, GPUs: []GPUs{{"a100", 4, 1}}}, {Name: "n2", States: []string{"IDLE"}, Features: []string{"gpumem80g", "gpumem40g"}, GPUs: []GPUs{{"a100", 2, 0}}}}}
}

func said() policy.Slurm {
	return policy.Slurm{Types: map[string]string{"NVIDIA A100": "a100"}, Features: map[string]gpu.Bytes{"gpumem80g": 80 * gpu.GiB}}
}

func TestFine(t *testing.T) {
	d := Diagnose(site(), said())
	if d.Runs == nil || !*d.Runs || d.Summary != "cluster c has GPUs for you: 5 of 6 are free" || d.Next != "gpuard submit --engine slurm -- COMMAND" {
		t.Errorf("%+v", d.Verdict)
	}
	for _, f := range d.Findings {
		if f.Severity != check.OK {
			t.Errorf("%+v", f)
		}
	}
}

// TestFindings: each check has a site that triggers it; the verdict and the one thing to do next are those of the worst.
func TestFindings(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *Site, m *policy.Slurm)
		want   string // code, severity and a part of what was seen
		runs   bool
	}{
		"silent":        {func(s *Site, _ *policy.Slurm) { s.Problem = "scontrol says: no" }, "slurm-controller error scontrol says: no", false},
		"no accounting": {func(s *Site, _ *policy.Slurm) { s.Accounting, s.Keeps = false, "300 sec" }, "slurm-controller info keeps no accounting", true},
		"no partition":  {func(s *Site, _ *policy.Slurm) { s.Partitions = nil }, "slurm-partitions error shows you no partition", false},
		"down":          {func(s *Site, _ *policy.Slurm) { s.Partitions[0].State = "down" }, "slurm-partitions error all is down", false},
		"no default":    {func(s *Site, _ *policy.Slurm) { s.Partitions[0].Default = false }, "slurm-partitions info no default partition", true},
		"no gres":       {func(s *Site, _ *policy.Slurm) { s.Types = false; s.Nodes = nil }, "slurm-gres error GresTypes in slurm.conf has no gpu", false},
		"no GPU":        {func(s *Site, _ *policy.Slurm) { s.Nodes = nil }, "slurm-gres error no node of cluster c has a GPU", false},
		"other count": {func(s *Site, _ *policy.Slurm) {
			s.Nodes[0].Why = "gres/gpu count reported lower than configured (1 < 4)"
		}, "slurm-gres warning node n1: gres/gpu count", true},
		"all drained": {func(s *Site, _ *policy.Slurm) {
			s.Nodes[0].States, s.Nodes[1].States = []string{"DRAIN"}, []string{"DOWN"}
		}, "slurm-gpus error no node with GPUs takes jobs: n1 is drain, n2 is down", false},
		"one drained":  {func(s *Site, _ *policy.Slurm) { s.Nodes[0].States = []string{"IDLE", "DRAIN"} }, "slurm-gpus info 2 of 2 a100 free on 1 nodes; n1 is idle+drain", true},
		"unknown type": {func(_ *Site, m *policy.Slurm) { m.Types["H100"] = "h100" }, "slurm-names warning no node has the type h100", true},
		"feature":      {func(_ *Site, m *policy.Slurm) { m.Features["big"] = 1 }, "slurm-names warning no node has the feature big", true},
		"no map":       {func(_ *Site, m *policy.Slurm) { *m = policy.Slurm{} }, "slurm-map info config.yaml does not say which model is of type a100", true},
	} {
		s, m := site(), said()
		c.change(&s, &m)
		d := Diagnose(s, m)
		found := false
		for _, f := range d.Findings {
			line := fmt.Sprintf("%s %s %s", f.Code, f.Severity, f.Seen)
			words := strings.SplitN(c.want, " ", 3)
			if found = found || strings.HasPrefix(line, words[0]+" "+words[1]+" ") && strings.Contains(line, words[2]); f.Severity != check.OK && (f.Why == "" || f.Do == "") {
				t.Errorf("%s: no reason, or nothing to do: %+v", name, f)
			}
		}
		if !found || *d.Runs != c.runs || d.Next == "" {
			t.Errorf("%s: %+v, want %s", name, d, c.want)
		}
	}
}

func TestKnown(t *testing.T) {
	m := said()
	m.Types["H100"], m.Features["big"] = "h100", 141*gpu.GiB
	if k := KnownTerms(m, site()); fmt.Sprint(k.Types, len(k.Features)) != "map[NVIDIA A100:a100] 1" {
		t.Errorf("%+v", k)
	}
	err := CheckTerms(m, site(), job.Spec{Model: "*H100*", Memory: 100 * gpu.GiB})
	if err == nil || err.Error() != "cannot hand the job to Slurm: no node of cluster c has a GPU of type h100, which slurm.types names; no node of cluster c has the feature big, which slurm.memory_features names" {
		t.Error(err)
	}
	if err := CheckTerms(m, site(), job.Spec{GPUs: 1}); err != nil {
		t.Error(err)
	}
}
