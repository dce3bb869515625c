package admincmd

import (
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/leftover"
	"gpuard/internal/ui/console"
	"gpuard/test/golden"
)

func TestLeftoversView(t *testing.T) {
	now := time.Date(2026, 1, 31, 15, 0, 0, 0, time.UTC)
	rows := []leftover.Row{
		{Index: 0, PID: 4711, User: "alice", Memory: new(40 * gpu.GiB), Since: new(now.Add(-50 * time.Hour)), Idle: new(3 * time.Hour), Lease: "k3f9",
			Command: "python -m ipykernel_launcher -f /home/alice/kernel.json\x1b[2J"},
		{Index: 1, PID: 12, User: "bob", Since: new(now.Add(-2 * time.Minute)), Zombie: true, Command: "[python]"},
		{Index: 1, PID: 9, Memory: new(gpu.GiB)},
		{Index: 2, Memory: new(3 * gpu.GiB)},
	}
	golden.CompareWidths(t, "evict", func(w *strings.Builder, term console.Term) {
		console.Draw(w, term, func(page *console.Page) { leftoversView(page, rows, 0, now) })
	})
	var none strings.Builder
	console.Draw(&none, console.Term{Width: 80}, func(page *console.Page) { leftoversView(page, nil, 2*time.Hour, now) })
	if !strings.Contains(none.String(), "no process is known to be idle for 2 h") {
		t.Error(none.String())
	}
}
