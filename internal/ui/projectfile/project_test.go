package projectfile

import (
	"strings"
	"testing"

	"gpuard/internal/core/policy"
	"gpuard/internal/core/service"
)

// flags builds a service with each flag on its own line, from line 2 on.
func flags(pairs ...string) *service.Service {
	s := &service.Service{Name: "node", Line: 1, Column: 3}
	for i, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		s.Flags = append(s.Flags, service.Flag{Name: name, Value: value, Line: i + 2, Column: 9})
	}
	return s
}

// TestCheckService: flags that gpuard run refuses are refused with the place and the name of the key.
func TestCheckService(t *testing.T) {
	for _, c := range []struct {
		flags []string
		line  int // 0 for no mistake
		text  string
	}{
		{nil, 0, ""},
		{[]string{"mem=40GiB", "device=0,1", "cpu=false"}, 0, ""},
		{[]string{"drift=", "wait=", "no-wait=false", "verify="}, 0, ""},
		{[]string{"grace=30s", "stop-signal=INT", "log-limit=10M"}, 0, ""},
		{[]string{"device={{.Ordinal}}", "mem={{.Ordinal}}G"}, 0, ""},
		{[]string{"gpus=many"}, 2, `gpus "many": write for instance gpus: 1`},
		{[]string{"exclude=3", "gpus=2", "mem=40"}, 4, `cannot ask for mem 40: that is 40 B; write a unit, such as mem: 40G`},
		{[]string{"gpus=1", "min-compute=new"}, 3, `min_compute "new": `},
		{[]string{"cpu=", "mem=4G"}, 2, `cannot use cpu with mem: cpu asks for no GPU at all; leave one of them out`},
		{[]string{"wait=soon"}, 2, `wait "soon": write a time, such as wait: 90s or wait: 10m`},
		{[]string{"wait=10"}, 2, `wait "10": the unit is missing; write wait: 10s for seconds, or wait: 10m for minutes`},
		{[]string{"fallback=gpu"}, 2, `fallback "gpu": write a list of other, cpu and wait, such as fallback: other,cpu`},
		{[]string{"stop-signal=STOP"}, 2, `stop_signal "STOP": write TERM, INT, `},
		{[]string{"drift=warm"}, 2, `drift: warm: "warm" is none of hot, slow and sick; write for instance drift: hot,sick`},
		{[]string{"verify=soon"}, 2, `verify "soon": `},
		{[]string{"gpus=1", "verify=", "cpu="}, 4, `cannot use cpu with gpus: `},
	} {
		m := checkService(flags(c.flags...), nil)
		switch {
		case c.line == 0 && m != nil:
			t.Errorf("%v: line %d: %s", c.flags, m.Line, m.Text)
		case c.line > 0 && (m == nil || m.Line != c.line || !strings.HasPrefix(m.Text, c.text) || strings.Contains(m.Text, "--")):
			t.Errorf("%v: %+v, want line %d: %s", c.flags, m, c.line, c.text)
		}
	}
}

// TestDefaultsOfProject: a default in the project's file is checked like a flag, unless it contradicts one.
func TestDefaultsOfProject(t *testing.T) {
	for _, c := range []struct {
		flag, value string
		of          *service.Service
		want        string
	}{
		{"mem", "8G", flags(), ""},
		{"fallback", "gpu", flags(), `in defaults: fallback "gpu": write a list`},
		{"fallback", "gpu", flags("no-wait="), ""},
		{"model", "A[12]00", flags("gpus=1"), "in defaults: "},
		{"model", "A[12]00", flags("device=1"), ""},
	} {
		file := &policy.File{Path: "/p/gpuard.yaml", Defaults: []policy.Default{{Flag: c.flag, Value: c.value, At: policy.Place{File: "/p/gpuard.yaml", Line: 7, Column: 3}}}}
		m := checkService(c.of, file)
		if (m == nil) != (c.want == "") || m != nil && (!strings.HasPrefix(m.Text, c.want) || m.Line != 7 || m.Column != 3) {
			t.Errorf("%s %s: %+v, want %q", c.flag, c.value, m, c.want)
		}
	}
}
