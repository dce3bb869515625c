package batchlog

import (
	"testing"
	"time"
)

// TestRest: what has failed is started again after a pause that doubles, as that of gpuard run; at once where the machine was at
// fault, after a request, and where the process that looked after it is gone.
func TestRest(t *testing.T) {
	const first = 500 * time.Millisecond
	at := time.Unix(1_800_000_000, 0)
	s := NewState(1, Retry{Times: 9, Any: true})
	end := func(e Event) (pause time.Duration, text string) {
		t.Helper()
		e.Kind, e.At = End, at
		for _, e := range []Event{{Kind: Begin}, {Kind: Start, PID: 7}, e} {
			if err := s.Add(e); err != nil {
				t.Fatal(err)
			}
		}
		text, pause = s.DescribeRetry(0), s.RestBeforeRetry(0, first, at)
		if late, back := s.RestBeforeRetry(0, first, at.Add(time.Hour)), s.RestBeforeRetry(0, first, at.Add(-time.Hour)); late != 0 || back != 0 {
			t.Errorf("an hour later %v, and where the clock was set back %v", late, back)
		}
		if half := s.RestBeforeRetry(0, first, at.Add(first/2)); pause > 0 && half != pause-first/2 || pause == 0 && half != 0 {
			t.Errorf("after half of the shortest pause: %v of %v", half, pause)
		}
		return pause, text
	}
	if s.RestBeforeRetry(0, first, at) != 0 || s.DescribeRetry(0) != "" {
		t.Error("it was never started")
	}
	for i, c := range []struct {
		event Event
		pause time.Duration
		text  string
	}{
		{Event{Exit: 3}, first, "the command ended (exit 3): starting it again, start 2 of 10"},
		{Event{Exit: -1, Signal: "SIGSEGV"}, 2 * first, "the command ended (SIGSEGV): starting it again, start 3 of 10"},
		{Event{Exit: 3, Fault: "GPU 0 is gone"}, 0, "the command ended (exit 3), and GPU 0 is gone: starting it again, start 4 of 10"},
		{Event{Exit: 3}, 4 * first, "the command ended (exit 3): starting it again, start 5 of 10"},
		{Event{Exit: 3, Seconds: 61}, first, "the command ended (exit 3): starting it again, start 6 of 10"},
		{Event{Exit: 3, Stopped: true}, 0, ""},
		{Event{}, 0, ""},
	} {
		if pause, text := end(c.event); pause != c.pause || text != c.text {
			t.Errorf("%d: %v, %q", i, pause, text)
		}
	}
}
