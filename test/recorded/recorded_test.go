package recorded

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/test/fakegpu"
)

func inventMachine(t *testing.T, spec string) gpu.Machine {
	t.Helper()
	m, err := gpu.InventMachine(spec)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestWhatIsWrittenIsReadBack(t *testing.T) {
	m := inventMachine(t, "demo:1xA100-80GB:1g.10gb*2+2xL4")
	m.Source = "file"
	m.Processes = []gpu.Process{{PID: 1, GPU: m.Devices[1].UUID, User: "alice"}}
	odd := " 0,#%\xff\n"
	rows := []Row{
		{Devices: []gpu.UUID{m.Devices[0].MIG[1].UUID}},
		{Visible: &odd, Code: 100},
		{Visible: new("1,2"), Order: new("PCI_BUS_ID"), Devices: []gpu.UUID{m.Devices[1].UUID, m.Devices[2].UUID}},
		{Visible: new(""), Order: new(""), Code: 3},
		{Visible: new("x"), Devices: []gpu.UUID{"GPU-of-no-machine"}},
	}
	dir := t.TempDir()
	if err := WriteTable(dir, "here", "driver 1.2.3", m, rows); err != nil {
		t.Fatal(err)
	}
	got := ReadTable(t, ListTables(t, dir)[0])
	m.Processes = []gpu.Process{}
	for i := range rows {
		rows[i].Machine, rows[i].At = m, got[i].At
	}
	if !reflect.DeepEqual(got, rows) {
		t.Errorf("got  %+v\nwant %+v", got, rows)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "here.json")); err != nil || strings.Contains(string(text), "alice") {
		t.Errorf("other people's processes are in the machine: %v\n%s", err, text)
	}
}

func TestAnswerForTheFake(t *testing.T) {
	m := inventMachine(t, "demo:1xA100-80GB:1g.10gb*2+1xL4")
	slice, whole := m.Devices[0].MIG[1], m.Devices[1]
	r := Row{Machine: m, Visible: new("0"), Code: 7, Devices: []gpu.UUID{slice.UUID, whole.UUID}}
	want := fakegpu.Answer{Visible: new("0"), Code: 7, Devices: []fakegpu.Seen{
		{UUID: string(slice.UUID), PCI: m.Devices[0].PCI, Parent: string(m.Devices[0].UUID)},
		{UUID: string(whole.UUID), PCI: whole.PCI},
	}}
	if got := r.Answer(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := r.Env(); !reflect.DeepEqual(got, []string{"CUDA_VISIBLE_DEVICES=0"}) {
		t.Errorf("environment %q", got)
	}
}

func TestBadRows(t *testing.T) {
	m := inventMachine(t, "demo:1xA100-80GB:1g.10gb*2")
	for _, line := range []string{"=0 - 0", "=0 - 0 0 0", "0 - 0 0", "=0 0 0 0", "=0 - x 0", "=0 - 0 1", "=0 - 0 0/2", "=0 - 0 a", "=%4 - 0 0", "=0 - 0 0/x", "=0 - 0 0,"} {
		if r, err := parseRow(strings.Fields(line), m); err == nil {
			t.Errorf("%q is read as %+v", line, r)
		}
	}
}

func TestRandomQuestions(t *testing.T) {
	m := inventMachine(t, "demo:2xA100-80GB+1xA100-80GB:1g.10gb*2")
	first, again := RandomRows(m, 1, 2000), RandomRows(m, 1, 2000)
	if !reflect.DeepEqual(first, again) {
		t.Error("one seed makes two sets of questions")
	}
	if reflect.DeepEqual(first, RandomRows(m, 2, 2000)) {
		t.Error("two seeds make the same questions")
	}
	kinds := map[string]func(string) bool{
		"numbers":     func(s string) bool { return strings.Trim(s, "0123456789,") == "" },
		"identifiers": func(s string) bool { return strings.HasPrefix(s, "GPU-") },
		"MIG":         func(s string) bool { return strings.HasPrefix(s, "MIG-") },
		"blanks":      func(s string) bool { return strings.Contains(s, " ") },
		"signs":       func(s string) bool { return strings.Contains(s, "+") },
		"long":        func(s string) bool { return strings.Count(s, ",") > 20 },
	}
	seen, asked := map[string]int{}, map[string]bool{}
	for _, r := range first {
		key := strings.Join(r.Env(), "\n")
		if asked[key] || strings.Contains(key, "\x00") {
			t.Fatalf("%q is asked twice, or cannot stand in an environment", key)
		}
		asked[key] = true
		for kind, is := range kinds {
			if r.Visible != nil && is(*r.Visible) {
				seen[kind]++
			}
		}
	}
	for kind := range kinds {
		if seen[kind] < 20 {
			t.Errorf("of 2000 questions %d are about %s", seen[kind], kind)
		}
	}
	if got := RandomRows(inventMachine(t, "demo:1xH200"), 1, 10000); len(got) != 10000 {
		t.Errorf("%d questions about one device", len(got))
	}
	if got := RandomRows(gpu.Machine{}, 1, 50); len(got) != 50 {
		t.Errorf("%d questions about a machine without devices", len(got))
	}
}
