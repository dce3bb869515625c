package service

import (
	"testing"

	"gpuard/internal/core/pick"
	"gpuard/internal/core/policy"
)

// TestDefaults: defaults that choose GPUs count for each: gpu if the service does not set them.
func TestDefaults(t *testing.T) {
	four := invent(t, "demo:4xA100-80GB")
	one := policy.Default{Flag: "exclude", Value: "1,2"}
	for _, c := range []struct {
		flag []Flag
		want string
	}{
		{nil, "node-0:0 node-1:3"},
		{[]Flag{{Name: "exclude", Value: "0"}}, "node-0:1 node-1:2 node-2:3"},
		{[]Flag{{Name: "device", Value: "1"}}, "node-0:1"},
	} {
		list, _ := expanded(t, node(c.flag...), Ground{Machine: four, In: pick.Context{}, Defaults: []policy.Default{one, {Flag: "gpus", Value: "2"}}})
		if got := shown(list, four); got != c.want {
			t.Errorf("%v: %s, want %s", c.flag, got, c.want)
		}
	}
}

// TestAnewByPolicy: changed defaults restart an instance; changed rules and moved lines do not, but are recorded.
func TestAnewByPolicy(t *testing.T) {
	file := func(line int, value string, rules int) *policy.File {
		f := &policy.File{Path: "/p/gpuard.yaml", Rules: make([]policy.Rule, rules)}
		if value != "" {
			f.Defaults = []policy.Default{{Flag: "mem", Value: value, At: policy.Place{Line: line}}}
		}
		return f
	}
	of := func(f *policy.File) Instance {
		p := node()
		p.Policy = f
		list, _ := expanded(t, p, Ground{Machine: invent(t, "demo:1xL4")})
		if list[0].Policy != f {
			t.Errorf("%+v", list[0])
		}
		return list[0]
	}
	none, first := of(nil).Hash, of(file(3, "8G", 1)).Hash
	if of(file(0, "", 2)).Hash != none || first == none || of(file(9, "8G", 2)).Hash != first || of(file(3, "9G", 1)).Hash == first {
		t.Error("another hash, or the same")
	}
}
