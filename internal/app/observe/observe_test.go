package observe

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/trend"
)

// TestMessage: a machine is the same behind the pipe: what is absent stays absent, and is not zero.
func TestMessage(t *testing.T) {
	for _, kinds := range []string{"demo", "demo:2xL4", "demo:1xA100-80GB"} {
		m, err := gpu.InventMachine(kinds)
		if err != nil {
			t.Fatal(err)
		}
		m.Devices[0].Utilization, m.Devices[0].ClockEvents = nil, []string{}
		m.Devices[0].XIDs = []gpu.XID{{Code: 79, At: time.Unix(1e9, 0).UTC(), PID: 7, Source: "nvml"}}
		m.Stuck = true
		text, err := json.Marshal(childMessage{Machine: &m})
		if err != nil {
			t.Fatal(err)
		}
		var got childMessage
		if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(*got.Machine, m) {
			t.Errorf("%s: %v\n%+v\n%+v", kinds, err, *got.Machine, m)
		}
	}
}

// TestDayFile: cut lines are left out, the file is bounded, and only one process has it.
func TestDayFile(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "serve")
	d, minutes, err := openDay(folder)
	if err != nil || len(minutes) > 0 {
		t.Fatal(err, minutes)
	}
	if _, _, err := openDay(folder); err == nil || !strings.Contains(err.Error(), "another gpuard serve") {
		t.Errorf("a second process: %v", err)
	}
	begin := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	var all []trend.Minute
	load := 0.5
	for i := range 3 * maxDayLines {
		all = append(all, trend.Minute{At: begin.Add(time.Duration(i) * time.Minute), Devices: map[gpu.UUID]trend.Mean{"GPU-1": {Load: &load}}})
		if err := d.addMinute(all[len(all)-1], all[max(0, len(all)-maxDayLines/2):]); err != nil {
			t.Fatal(err)
		}
	}
	d.close()
	path := filepath.Join(folder, "day")
	text, err := os.ReadFile(path)
	if err != nil || strings.Count(string(text), "\n") > maxDayLines+1 {
		t.Errorf("%d lines, %v", strings.Count(string(text), "\n"), err)
	}
	for cut := range 200 { // at every byte of the last lines
		if err := os.WriteFile(path, text[:len(text)-cut], 0o600); err != nil {
			t.Fatal(err)
		}
		d, minutes, err := openDay(folder)
		if err != nil {
			t.Fatalf("%d bytes less: %v", cut, err)
		}
		if lost := len(all) - maxDayLines/2; len(minutes) < maxDayLines/2-20 || minutes[0].At.Before(all[0].At) || lost < 0 {
			t.Fatalf("%d bytes less: %d minutes", cut, len(minutes))
		}
		_ = d.addMinute(all[len(all)-1], all) // the next line is whole
		d.close()
	}
}

// TestEnded: leases that have ended are read back, whatever lies between them, and only by whom they belong to.
func TestEnded(t *testing.T) {
	folder := t.TempDir()
	e, open, err := openEnded(folder)
	if err != nil || len(open) > 0 {
		t.Fatal(err, open)
	}
	one := trend.EndedLease{Lease: "k3f9", User: "ann", Command: "train", Since: time.Unix(1e9, 0).UTC(), Until: time.Unix(1e9+60, 0).UTC(), Devices: []trend.DeviceUse{{UUID: "GPU-1", Granted: 60, Busy: 30, Idle: 30}}}
	if err := e.writeLeases([]trend.EndedLease{one}, []trend.EndedLease{{Lease: "open"}}); err != nil {
		t.Fatal(err)
	}
	_, _ = e.file.WriteString(`{"lease": "cut`)
	e.close()
	e, open, err = openEnded(folder)
	if err != nil || len(open) != 1 || open[0].Lease != "open" {
		t.Fatal(err, open)
	}
	if err := e.writeLeases([]trend.EndedLease{one}, nil); err != nil {
		t.Fatal(err)
	}
	e.close()
	list, err := readEnded(folder)
	if err != nil || !reflect.DeepEqual(list, []trend.EndedLease{one, one}) {
		t.Errorf("%+v, %v", list, err)
	}
}
