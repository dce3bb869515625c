package batchcmd

import (
	"testing"
	"time"

	"gpuard/internal/app/runner"
	"gpuard/internal/core/batchlog"
	"gpuard/internal/core/status"
)

// TestSweepLine: the most important counts come first, and remain on a narrow terminal.
func TestSweepLine(t *testing.T) {
	at := time.Date(2026, 3, 4, 14, 0, 0, 0, time.UTC)
	half := runner.Progress{Count: batchlog.Count{All: 1000, OK: 428, Failed: 3, Running: 8, Waiting: 561}, Before: 231, Began: at.Add(-10 * time.Minute)}
	waits := runner.Progress{Count: batchlog.Count{All: 10, Waiting: 10}, Began: at, Stand: &status.Standing{Want: "1 GPU", Place: 1, Of: 2,
		Holders: []status.Holder{{Device: "GPU 2", User: "alice", Command: "python", PID: 4242}}}}
	stopped := half
	stopped.Stopped = true
	for _, c := range []struct {
		now   runner.Progress
		width int
		want  string
	}{
		{half, 0, "431/1000, 3 failed, 8 running, about 29m left (14:28)"},
		{half, 80, "[########------------] 431/1000, 3 failed, 8 running, about 29m left (14:28)"},
		{half, 40, "431/1000, 3 failed, 8 running, about..."},
		{half, 12, "431/1000,..."},
		{half, 1, "4"},
		{stopped, 80, "[########------------] 431/1000, 3 failed, ending what runs, 8 running"},
		{waits, 0, "0/10, waiting for 1 GPU, 1st of 2; GPU 2: python of alice (PID 4242)"},
		{runner.Progress{Count: batchlog.Count{All: 3, OK: 3}, Began: at}, 60, "[####################] 3/3"},
	} {
		got := sweepLine(c.now, at, c.width)
		if got != c.want {
			t.Errorf("in %d columns: %q, want %q", c.width, got, c.want)
		}
	}
}
