package gpu

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestInvent(t *testing.T) {
	tests := []struct {
		spec  string
		names []string
	}{
		{"demo", []string{"NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"}},
		{"demo:2xL4+1xH100", []string{"NVIDIA L4", "NVIDIA L4", "NVIDIA H100 80GB HBM3"}},
		{"demo:t4", []string{"Tesla T4"}},
		{"demo:1xT4+1xMI300X+1xT4", []string{"Tesla T4", "AMD Instinct MI300X", "Tesla T4"}},
	}
	for _, tt := range tests {
		m, err := InventMachine(tt.spec)
		if err != nil {
			t.Errorf("Invent(%q): %v", tt.spec, err)
			continue
		}
		var names []string
		index := map[Vendor]int{}
		for _, d := range m.Devices {
			names = append(names, d.Name)
			if d.Index != index[d.Vendor] {
				t.Errorf("Invent(%q): %s has index %d, want %d: indices count per vendor", tt.spec, d.UUID, d.Index, index[d.Vendor])
			}
			index[d.Vendor]++
		}
		if !reflect.DeepEqual(names, tt.names) {
			t.Errorf("Invent(%q) made %q, want %q", tt.spec, names, tt.names)
		}
	}
}

// Scripts and state folders depend on these values.
func TestInventIsAlwaysTheSame(t *testing.T) {
	first, err := InventMachine("demo")
	if err != nil {
		t.Fatal(err)
	}
	second, _ := InventMachine("demo:4xA100-80GB")
	if !reflect.DeepEqual(first, second) {
		t.Error("demo and demo:4xA100-80GB differ")
	}
	if got, want := first.Devices[2].UUID, UUID("GPU-ebbeac8e"); !strings.HasPrefix(string(got), string(want)) {
		t.Errorf("UUID of device 2 is %s, want %s…", got, want)
	}
}

func TestInventEveryModelIsIdleHealthyAndReadable(t *testing.T) {
	for _, k := range knownModels() {
		count := 64
		if k.chip {
			count = 1
		}
		m, err := InventMachine(fmt.Sprintf("demo:%dx%s", count, k.word))
		if err != nil {
			t.Fatal(err)
		}
		data, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeMachine(data)
		if err != nil {
			t.Fatalf("%s cannot be read back: %v", k.word, err)
		}
		m.Source = "file"
		if !reflect.DeepEqual(m, back) {
			t.Errorf("%s: not the same after writing and reading", k.word)
		}
		for _, d := range m.Devices {
			idle := d.MemoryUsed != nil && *d.MemoryUsed == 0
			if d.MainMemory != nil { // of which something is always used
				idle = d.MemoryUsed == nil && *d.MainAvailable > *d.MainMemory/2
			}
			if *d.Utilization != 0 || !idle || *d.Temperature >= *d.TempSlowdown || len(d.ClockEvents) != 0 || d.Problem != "" {
				t.Fatalf("%s is not idle and healthy: %+v", k.word, d)
			}
		}
		if len(m.Processes) != 0 {
			t.Errorf("%s: has processes", k.word)
		}
	}
}

func TestInventOneChip(t *testing.T) {
	for _, spec := range []string{"demo:2xGB10", "demo:1xRTX4090+1xGB10", "demo:1xGB10+1xGB10"} {
		if _, err := InventMachine(spec); err == nil || !strings.Contains(err.Error(), "which has one of it: put it first, as in demo:1xGB10") {
			t.Errorf("%s: %v", spec, err)
		}
	}
	if m, err := InventMachine("demo:1xGB10+1xRTX4090"); err != nil || len(m.Devices) != 2 {
		t.Error(err)
	}
}

func TestInventMIG(t *testing.T) {
	m, err := InventMachine("demo:2xA100-80GB:3g.40gb,1g.10gb*2")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range m.Devices {
		if !d.UsesMIG() || d.Utilization != nil {
			t.Errorf("device %d is split: MIG mode %v, utilisation %v", d.Index, d.UsesMIG(), d.Utilization)
		}
		for _, s := range d.MIG {
			got = append(got, s.Profile)
			if parent, _, ok := m.FindDevice(s.UUID); !ok || parent.UUID != d.UUID {
				t.Errorf("slice %s is not found on its device", s.UUID)
			}
		}
	}
	want := []string{"3g.40gb", "1g.10gb", "1g.10gb", "3g.40gb", "1g.10gb", "1g.10gb"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("slices %q, want %q", got, want)
	}
}

func TestInventLinks(t *testing.T) {
	m, err := InventMachine("demo:2xH100+2xL4")
	if err != nil {
		t.Fatal(err)
	}
	want := [][]Link{
		{LinkSelf, LinkNVLink, LinkSystem, LinkSystem},
		{LinkNVLink, LinkSelf, LinkSystem, LinkSystem},
		{LinkSystem, LinkSystem, LinkSelf, LinkNode},
		{LinkSystem, LinkSystem, LinkNode, LinkSelf},
	}
	for i, d := range m.Devices {
		if !reflect.DeepEqual(d.Links, want[i]) {
			t.Errorf("links of device %d: %v, want %v", i, d.Links, want[i])
		}
	}
}

func TestInventRefuses(t *testing.T) {
	tests := map[string]string{
		"":                                 "write demo",
		"demo:":                            "write a number, an x and a model",
		"demo:4xA100":                      "A100-40GB, A100-80GB, H100",
		"demo:0xL4":                        "outside 1 to 64",
		"demo:65xL4":                       "outside 1 to 64",
		"demo:99999999999999999999xL4":     "outside 1 to 64",
		"demo:40xL4+25xT4":                 "more than 64 devices",
		"demo:2xL4+":                       "write a number, an x and a model",
		"demo:-1xL4":                       "write a number, an x and a model",
		"demo:1xL4:1g.10gb":                "cannot be split",
		"demo:1xA100-80GB:1g.10gb*8":       "MIG layout",
		"demo:1xA100-80GB:4g.40gb,4g.40gb": "more than the 7 compute slices",
		"demo:1xA100-40GB:7g.80gb":         "more than the 7 compute slices",
		"demo:1xA100-80GB:":                "MIG layout",
		"file.json":                        "write demo",
	}
	for spec, want := range tests {
		m, err := InventMachine(spec)
		if err == nil || !strings.HasPrefix(err.Error(), "cannot invent the machine ") || !strings.Contains(err.Error(), want) {
			t.Errorf("Invent(%q) = %v, want an error with %q", spec, err, want)
		}
		if len(m.Devices) > 0 {
			t.Errorf("Invent(%q) made devices together with an error", spec)
		}
	}
}
