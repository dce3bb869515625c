package batchlog

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestState(t *testing.T) {
	s := NewState(4, Retry{Times: 1})
	add := func(want string, events ...Event) {
		t.Helper()
		for _, e := range events {
			line, _ := json.Marshal(e)
			if err := s.ReadLine(line, 0); (err == nil) == (want == "no") {
				t.Errorf("%s: %v", line, err)
			}
		}
	}
	begin := func(i int) { add("", Event{Kind: Begin, Run: i}, Event{Kind: Start, Run: i, PID: 7}) }
	begin(0)
	add("", Event{Kind: End, Run: 0})
	begin(1)
	add("", Event{Kind: End, Run: 1, Exit: 3, Fault: "a fault"})
	begin(1)
	add("", Event{Kind: End, Run: 1, Exit: 3, Fault: "a fault"})
	begin(2)
	add("", Event{Kind: End, Run: 2, Signal: "SIGTERM", Exit: -1, Stopped: true})
	add("", Event{Kind: Begin, Run: 3})
	if s.Count != (Count{All: 4, Waiting: 1, Running: 1, OK: 1, Failed: 1}) || s.Runs[1].Starts != 2 {
		t.Errorf("%+v", s.Count)
	}
	add("", Event{Kind: Gone, Run: 3}, Event{Kind: Again, Run: 1})
	if s.Count != (Count{All: 4, Waiting: 3, OK: 1}) || !reflect.DeepEqual(s.RunsIn(Waiting), []int{1, 2, 3}) {
		t.Errorf("%+v", s.Count)
	}
	add("no", Event{Kind: End, Run: 3}, Event{Kind: Begin, Run: 0}, Event{Kind: Start, Run: 1}, Event{Kind: Again, Run: 0}, Event{Kind: "x"}, Event{Kind: Begin, Run: 4}, Event{Kind: Begin, Run: -1})
	add("", Event{Kind: Moved, Run: 0, Command: 9}, Event{Kind: Begin, Run: 2}, Event{Kind: Moved, Run: 2, Command: 9, Lease: "b"}, Event{Kind: Start, Run: 2, PID: 8, Ticks: 1, Kept: true, Lease: "a"})
	if born := s.Runs[2].BirthEvent(); born.PID != 8 || born.Command != 9 || !born.Kept || born.Lease != "a" {
		t.Errorf("its keeper was faster than its Start: %+v", born)
	}
	add("", Event{Kind: Moved, Run: 2, Command: 10, Lease: "b"}, Event{Kind: Moved, Run: 2, PID: 10, Ticks: 2, Lease: "b"})
	if born := s.Runs[2].BirthEvent(); born.PID != 10 || born.Ticks != 2 || born.Kept || born.Command != 0 || born.Lease != "b" || s.Runs[2].Starts != 2 {
		t.Errorf("its keeper was killed: %+v", born)
	}
	add("", Event{Kind: Begin, Run: 3}, Event{Kind: Start, Run: 3, PID: 8, Kept: true}, Event{Kind: Ran, Run: 3, Command: 11, Exit: 5}, Event{Kind: Moved, Run: 3, Command: 11})
	if ran := s.Runs[3].RanEvent(); ran == nil || ran.Exit != 5 {
		t.Errorf("its command was faster than the Moved of its keeper: %+v", ran)
	}
	if add("", Event{Kind: Moved, Run: 3, Command: 12}); s.Runs[3].RanEvent() != nil {
		t.Error("its command was started again, and counts as ended")
	}
	if s.ReadLine([]byte(`{"is":"end"`), 0) == nil {
		t.Error("half an event was accepted")
	}
}
