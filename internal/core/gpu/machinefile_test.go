package gpu

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// small is the minimum of a machine file.
const small = `{
  "taken": "2026-01-31T15:05:00+01:00", "driver": "580.95.05", "cuda": "13.0",
  "gpus": [
    {"index": 0, "uuid": "GPU-a", "name": "NVIDIA L4", "vendor": "nvidia", "pci": "00000000:17:00.0", "minor": 0,
     "memory_total": 24152899584, "memory_used": 0, "utilization": 0.5, "temperature": 41},
    {"index": 1, "uuid": "GPU-b", "name": "NVIDIA L4", "vendor": "nvidia", "pci": "0000:2A:00.0", "minor": null,
     "memory_total": null, "memory_used": null, "utilization": null, "temperature": null}
  ],
  "processes": [{"pid": 42, "gpu": "GPU-a", "memory": null, "user": "alice", "command": "python train.py"}]
}`

func TestDecodeSmallest(t *testing.T) {
	got, err := DecodeMachine([]byte(small))
	if err != nil {
		t.Fatal(err)
	}
	want := Machine{
		Taken: time.Date(2026, 1, 31, 14, 5, 0, 0, time.UTC), Driver: "580.95.05", CUDA: "13.0", Source: "file",
		Devices: []Device{
			{Index: 0, UUID: "GPU-a", Name: "NVIDIA L4", Vendor: NVIDIA, PCI: "0000:17:00.0", Minor: new(0),
				MemoryTotal: new(Bytes(24152899584)), MemoryUsed: new(Bytes(0)), Utilization: new(0.5), Temperature: new(41)},
			{Index: 1, UUID: "GPU-b", Name: "NVIDIA L4", Vendor: NVIDIA, PCI: "0000:2a:00.0"},
		},
		Processes: []Process{{PID: 42, GPU: "GPU-a", User: "alice", Command: "python train.py"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// full returns a machine with every field set, so that the round trip shows a forgotten one.
func full(t *testing.T) Machine {
	t.Helper()
	m, err := InventMachine("demo:1xA100-80GB:1g.10gb*2")
	if err != nil {
		t.Fatal(err)
	}
	m.Taken = time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	m.Source = "file"
	m.Problems = []string{"GPU 1: no answer within 5 s"}
	m.Extra = extraKeys{"site": json.RawMessage(`{"room":"<b>&"}`)}
	d := &m.Devices[0]
	d.Utilization, d.TempMargin, d.ClockMemory = new(0.25), new(50), new(1593)
	d.MemoryLoad, d.Energy = new(0.125), new(1.5e9)
	d.Integrated = new(false)
	d.ClockEvents = []string{"sw_power_cap"}
	d.RemappedRows = &RemappedRows{1, 2, true, false}
	d.RetiredPages = &RetiredPages{3, 4, true}
	d.ECCCorrected, d.Problem, d.Unlisted = new(int64(7)), "GPU is lost", "cannot list its processes"
	d.XIDs = []XID{{Code: 79, At: m.Taken, PID: 12, Source: "nvml"}, {Code: 13}}
	d.Drained = "the fan is broken (root, since 2 Jan 03:04)"
	d.DisplayActive = new(true)
	d.Fabric = []string{"degraded_bandwidth"}
	d.MainMemory, d.MainAvailable = new(Bytes(9)), new(Bytes(8))
	d.Extra = extraKeys{"fan": json.RawMessage(`[1,null]`)}
	d.MIG[0].ComputeInstance, d.MIG[0].Extra = 1, extraKeys{"a": json.RawMessage(`1.0e1`)}
	m.Processes = []Process{{
		PID: 7, Outside: 8123, GPU: d.MIG[1].UUID, Memory: new(Bytes(5)), User: "bob", Command: "x", Kind: BothKinds, UID: new(uint32(0)),
		Start: 99, Started: m.Taken, State: "S", Cgroup: "/c", Container: "id", Extra: extraKeys{"k": json.RawMessage(`"v"`)},
	}}
	return m
}

func TestEveryFieldSurvives(t *testing.T) {
	m := full(t)
	for _, v := range []any{m, m.Devices[0], m.Devices[0].MIG[0], m.Processes[0]} {
		for i, f := 0, reflect.ValueOf(v); i < f.NumField(); i++ {
			if name := f.Type().Field(i).Name; f.Field(i).IsZero() && name != "Index" && name != "Stuck" { // stuck is this process, not the machine
				t.Errorf("%T.%s is not set: this test would not notice that it is lost", v, name)
			}
		}
	}
	data, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := DecodeMachine(data)
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	if !reflect.DeepEqual(m, back) {
		t.Errorf("not the same after writing and reading:\n%+v\n%+v", m, back)
	}
	if !bytes.HasSuffix(data, []byte("}\n")) || !bytes.HasPrefix(data, []byte("{\n  \"schema\": \"gpuard.machine/1\",\n")) {
		t.Errorf("not indented JSON with the schema first and one newline at the end:\n%s", data)
	}
}

func TestAbsentIsNotZero(t *testing.T) {
	m := Machine{Devices: []Device{
		{UUID: "GPU-a", Name: "x", Vendor: NVIDIA, Links: []Link{LinkSelf, ""}},
		{UUID: "GPU-b", Name: "x", Vendor: NVIDIA, Index: 1, ClockEvents: []string{}, MemoryUsed: new(Bytes(0)), ECC: new(false)},
	}, Processes: []Process{}}
	data, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := DecodeMachine(data)
	if err != nil {
		t.Fatal(err)
	}
	m.Source = "file"
	if !reflect.DeepEqual(m, back) {
		t.Errorf("not the same after writing and reading:\n%+v\n%+v", m, back)
	}
	if !strings.Contains(string(data), `"minor": null`) || !strings.Contains(string(data), `"taken": null`) {
		t.Errorf("required keys without a reading must be null:\n%s", data)
	}
	if empty, err := (Machine{}).Encode(); err != nil || !strings.Contains(string(empty), `"gpus": [],`) {
		t.Errorf("an empty machine writes %s, %v; lists are never null", empty, err)
	}
}

func TestTextIsSafeForTerminals(t *testing.T) {
	m, err := DecodeMachine([]byte(strings.Replace(small, "python train.py", `py\u001b[31mth\u0007on\u202e \u009b日本`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := m.Processes[0].Command, "py[31mthon 日本"; got != want {
		t.Errorf("command %q, want %q", got, want)
	}
}

func TestDecodeRefuses(t *testing.T) {
	tests := []struct{ name, old, new, want string }{
		{"misspelt", `"memory_total": 2`, `"memroy_total": 2`, `line 5, column 6: gpus[0].memroy_total is not a key; the nearest valid key is "memory_total": rename it`},
		{"missing", `"temperature": 41`, `"zone": 41`, `line 4, column 5: gpus[0].temperature is missing: add it`},
		{"top missing", `"taken": "2026-01-31T15:05:00+01:00",`, ``, `line 1, column 1: taken is missing`},
		{"top misspelt", `"processes"`, `"process"`, `line 9, column 3: process is not a key; the nearest valid key is "processes"`},
		{"type", `"pid": 42`, `"pid": "42"`, `line 9, column 25: processes[0].pid must be a number`},
		{"column counts characters", `"user": "alice", "command": "python train.py"`, `"user": "é日", "command": 1`, `line 9, column 86: processes[0].command must be a string`},
		{"negative", `"memory_used": 0`, `"memory_used": -1`, `gpus[0].memory_used is -1, outside 0 B to 64 TiB`},
		{"absurd", `24152899584`, `99152899584000000`, `gpus[0].memory_total is 99152899584000000, outside`},
		{"overflow", `24152899584`, `1e400`, `gpus[0].memory_total is 1e400, outside`},
		{"fraction of a byte", `24152899584`, `1.5`, `must be a whole number`},
		{"used above total", `"memory_used": 0`, `"memory_used": 24152899585`, `more than its memory_total`},
		{"main memory", `"index": 0,`, `"index": 0, "main_memory": 5, "main_available": 6,`, `gpus[0].main_available is 6, and main_memory is 5: it must be more than 0`},
		{"half of main memory", `"index": 0,`, `"index": 0, "main_available": 6,`, `line 4, column 5: gpus[0] has one of main_memory and main_available: write both or none`},
		{"no main memory", `"index": 0,`, `"index": 0, "main_memory": 0, "main_available": 0,`, `main_memory is 0: it must be more than 0`},
		{"utilisation", `0.5`, `50`, `gpus[0].utilization is 50, outside 0 to 1`},
		{"not a number", `0.5`, `NaN`, `line 5, column 68: the text is not JSON: invalid character 'N'`},
		{"vendor", `"nvidia"`, `"nvdia"`, `gpus[0].vendor is "nvdia": write one of nvidia, amd, intel, ascend`},
		{"empty uuid", `"uuid": "GPU-b"`, `"uuid": ""`, `gpus[1].uuid must not be empty`},
		{"uuid with comma", `"uuid": "GPU-b"`, `"uuid": "GPU-b,0"`, `gpus[1].uuid is "GPU-b,0": write a device's UUID`},
		{"uuid twice", `"uuid": "GPU-b"`, `"uuid": "GPU-a"`, `line 6, column 26: gpus[1].uuid is "GPU-a", which is already gpus[0]`},
		{"index twice", `"index": 1`, `"index": 0`, `gpus[1].index is 0, as is gpus[0].index`},
		{"unknown gpu", `"gpu": "GPU-a"`, `"gpu": "GPU-c"`, `line 9, column 36: processes[0].gpu is "GPU-c", which no device in this file has`},
		{"pid zero", `"pid": 42`, `"pid": 0`, `processes[0].pid is 0`},
		{"pci", `00000000:17:00.0`, `17:0`, `write a PCI address such as 0000:17:00.0`},
		{"time", `2026-01-31T15:05:00+01:00`, `yesterday`, `line 2, column 12: taken must be a time`},
		{"trailing", `"python train.py"}]` + "\n}", `"python train.py"}]` + "\n}{}", `line 10, column 2: the text is not JSON`},
		{"cut", `"python train.py"}]` + "\n}", ``, `the text is not JSON: unexpected end`},
		{"key twice", `"cuda": "13.0"`, `"cuda": "13.0", "cuda": "12.0"`, `the key "cuda" is twice`},
		{"newer", `"taken"`, `"schema": "gpuard.machine/2", "taken"`, `this gpuard reads only "gpuard.machine/1"`},
		{"other schema", `"taken"`, `"schema": "gpuard.status/1", "taken"`, `line 2, column 13: schema must be`},
		{"links", `"index": 0,`, `"index": 0, "links": ["self"],`, `gpus[0].links has 1 entries for 2 devices`},
		{"link class", `"index": 0,`, `"index": 0, "links": ["self", "warp"],`, `gpus[0].links[1] is "warp"`},
		{"uid", `"pid": 42`, `"uid": -1, "pid": 42`, `processes[0].uid is -1, which must not be negative`},
		{"mig uuid twice", `"index": 0,`, `"mig": [{"index":0,"uuid":"GPU-a","profile":"1g.10gb","gpu_instance":1,"compute_instance":0,"memory_total":1,"memory_used":0}], "index": 0,`, `gpus[0].mig[0].uuid is "GPU-a", which is already gpus[0]`},
		{"not an object", small, `[]`, `line 1, column 1: the file must be an object`},
		{"not UTF-8", `alice`, "al\xffce", `line 9, column 72: the text is not UTF-8`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			data := strings.Replace(small, tt.old, tt.new, 1)
			if data == small {
				t.Fatal("the test changes nothing")
			}
			m, err := DecodeMachine([]byte(data))
			if err == nil || !strings.HasPrefix(err.Error(), "cannot read machine file: line ") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v\nwant   …%s…", err, tt.want)
			}
			if !reflect.DeepEqual(m, Machine{}) {
				t.Errorf("half a machine together with an error: %+v", m)
			}
		})
	}
}

func TestDecodeIsBounded(t *testing.T) {
	if _, err := DecodeMachine(bytes.Repeat([]byte(" "), fileLimit+1)); err == nil || !strings.Contains(err.Error(), "larger than 16 MiB") {
		t.Errorf("a file above the limit: %v", err)
	}
	deep := strings.Replace(small, `"taken"`, fmt.Sprintf(`"x": %s1%s, "taken"`, strings.Repeat("[", 1e5), strings.Repeat("]", 1e5)), 1)
	if _, err := DecodeMachine([]byte(deep)); err == nil || !strings.Contains(err.Error(), "depth") {
		t.Errorf("a deep file: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob("testdata/machines/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(small))
	f.Add([]byte(`{"taken":null,"driver":null,"cuda":null,"gpus":[],"processes":[],"x":"\ud800"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := DecodeMachine(data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "cannot read machine file: ") {
				t.Errorf("error %q", err)
			}
			return
		}
		out, err := m.Encode()
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		back, err := DecodeMachine(out)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v\n%s", err, out)
		}
		if !reflect.DeepEqual(m, back) {
			t.Errorf("not the same after writing and reading:\n%+v\n%+v\n%s", m, back, out)
		}
	})
}
