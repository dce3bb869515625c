package queue

import (
	"slices"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
)

// TestGuess: an unknown device is kept for a ticket for Overdue, and not again.
func TestGuess(t *testing.T) {
	there := []gpu.UUID{"GPU-0", "GPU-1", "GPU-2"}
	tickets := []job.Ticket{
		{ID: "old", Devices: there[:1], Known: there[:2], Count: 1},
		{ID: "knows", Devices: there[:1], Known: there, Count: 1},
		{ID: "all", Devices: there, Count: 1},
		{ID: "nothing", Devices: there[:1], Count: 1},
	}
	devices := func(turn Turn, boot int64) (Turn, [][]gpu.UUID) {
		turn, guessed := turn.AddUnknownDevices(tickets, there, boot, PassOverAfter)
		var out [][]gpu.UUID
		for _, g := range guessed {
			out = append(out, g.Devices)
		}
		return turn, out
	}
	same := func(what string, got [][]gpu.UUID, want ...[]gpu.UUID) {
		t.Helper()
		if !slices.EqualFunc(got, want, slices.Equal[[]gpu.UUID]) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	turn, got := devices(Turn{}, 100)
	guessed := [][]gpu.UUID{{"GPU-0", "GPU-2"}, there[:1], there, there}
	same("at first", got, guessed...)
	turn, got = devices(turn, 100+int64(PassOverAfter)-1)
	same("later", got, guessed...)
	turn, got = devices(turn, 100+int64(PassOverAfter))
	written := [][]gpu.UUID{there[:1], there[:1], there, there[:1]}
	same("when the time is over", got, written...)
	if len(turn.Unsure) != 2 || turn.Unsure["0/old"] != 100 || turn.Unsure["0/nothing"] != 100 {
		t.Errorf("what is remembered: %+v", turn)
	}
	if len(tickets[0].Devices) != 1 {
		t.Error("a ticket was changed in place")
	}
	_, got = devices(turn, 99) // of another boot, or forged
	same("a time that has not come", got, guessed...)

	// Other records of living tickets remain, and those of tickets that are gone are dropped.
	full := Turn{Next: map[string]int64{"0/old": 1}, Passed: map[string]int64{"0/knows": 2}, Unsure: turn.Unsure}
	next, _ := full.AddUnknownDevices(tickets, there, 200, PassOverAfter)
	if next.Next["0/old"] != 1 || next.Passed["0/knows"] != 2 {
		t.Errorf("lost: %+v", next)
	}
	next, _, _ = next.DecideNext(Input{Boot: 200, Rooms: map[gpu.UUID]pick.Room{}}, "", tickets[:1], PassOverAfter)
	if len(next.Unsure) != 1 || next.Unsure["0/old"] != 100 {
		t.Errorf("remembered: %+v", next)
	}
}
