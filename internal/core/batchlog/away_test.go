package batchlog

import "testing"

// TestAway: a run that another scheduler has is never started here, and the first end that is written counts.
func TestAway(t *testing.T) {
	s := NewQueue()
	add := func(e Event) {
		t.Helper()
		if err := s.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	add(Event{Kind: Submit, Job: &Job{Name: "a", Away: &Away{Engine: "slurm", Mark: "m", State: Queued}}})
	add(Event{Kind: Submit, Run: 1, Job: &Job{Name: "b"}})
	if fresh := s.TakeFresh(); len(fresh) != 1 || fresh[0] != 1 || s.MayStart(0) || s.Count.Elsewhere != 1 || s.Count.Waiting != 1 {
		t.Errorf("fresh %v, %+v", fresh, s.Count)
	}
	add(Event{Kind: Tell, Told: &Away{State: Queued, ID: "12", Place: "c"}})
	add(Event{Kind: Tell, Told: &Away{State: Active, Node: "n1"}})
	if a := s.Runs[0].Away; a.ID != "12" || a.Place != "c" || a.Node != "n1" || a.Engine != "slurm" || a.Mark != "m" || a.State != Active {
		t.Errorf("%+v", a)
	}
	add(Event{Kind: Tell, Exit: 3, Told: &Away{State: Broken}})
	add(Event{Kind: Tell, Told: &Away{State: Finished}}) // another process saw it, too
	if s.Runs[0].Phase != Failed || s.Runs[0].LastEvent().Exit != 3 || s.Count.Elsewhere != 0 || s.Count.Failed != 1 {
		t.Errorf("%+v, %+v", s.Runs[0], s.Count)
	}
	for _, e := range []Event{{Kind: Tell, Run: 1, Told: &Away{State: Finished}}, {Kind: Tell, Run: 7, Told: &Away{}}, {Kind: Tell, Run: 0 - 1}, {Kind: Begin, Run: 0}} {
		if err := s.Add(e); err == nil {
			t.Errorf("%+v is no error", e)
		}
	}
}
