package timeline

import (
	"fmt"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/status"
	"gpuard/internal/core/trend"
)

// TestPastMarks: a trouble that is there still is not over, one that came twice is told once, at its last begin, and the latest is first.
func TestPastMarks(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 3, 4, 9, minute, 0, 0, time.UTC) }
	heat, brake := "slowed down: hw_thermal_slowdown", "slowed down: hw_power_brake_slowdown"
	b := Band{Marks: []trend.Mark{
		{At: at(1), What: "throttle", Text: heat}, {At: at(9), What: "throttle", Text: heat}, {At: at(5), What: "breach", Text: "web of ann uses more than its share"},
		{At: at(20), What: "throttle", Text: brake}, {At: at(3), What: "intruder", Text: "process of bob without a lease"}, {At: at(2), What: "xid", Text: "XID 79: m"},
	}}
	d := &status.Device{Throttled: []string{"hw_power_brake_slowdown"}, XIDs: []status.XID{{Code: 79, Meaning: "m"}},
		Leases: []status.Lease{{User: "ann", Command: "web", Share: gpu.GiB, Quota: job.Watch, Memory: new(2 * gpu.GiB)}}}
	if !d.Leases[0].Over() {
		t.Fatal("the share is not exceeded")
	}
	got := ""
	for _, m := range b.PastMarks(d) {
		got += fmt.Sprint(m.At.Minute(), " ", m.What, ", ")
	}
	if got != "9 throttle, 3 intruder, " {
		t.Error(got)
	}
}
