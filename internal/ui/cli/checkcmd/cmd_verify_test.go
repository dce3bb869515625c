package checkcmd

import (
	"strings"
	"testing"

	"gpuard/internal/app/verify"
	"gpuard/internal/core/proof"
	"gpuard/internal/ui/console"
)

// TestVerdict: with a command every paragraph begins with "gpuard: "; lines fit a terminal, and a log has one per
// sentence.
func TestVerdict(t *testing.T) {
	v := &verify.Verification{Finding: proof.Finding{Verdict: proof.WrongDevice, Text: strings.Repeat("python is on GPU 1 ", 12),
		Remedy: "look for a place that sets CUDA_VISIBLE_DEVICES", Notes: []string{strings.Repeat("the order is a guess ", 12), "two"}}}
	var log, screen strings.Builder
	console.Draw(&log, console.Term{}, func(page *console.Page) { verdictView(page, v) })
	lines := strings.Split(strings.TrimSuffix(log.String(), "\n"), "\n")
	leads := []string{"gpuard: wrong device: python", "gpuard: note: the order", "gpuard: note: two", "gpuard: to do: look"}
	if len(lines) != len(leads) {
		t.Fatalf("%d lines:\n%s", len(lines), log.String())
	}
	for i, lead := range leads {
		if !strings.HasPrefix(lines[i], lead) {
			t.Errorf("line %d is %q, want %q in front", i, lines[i], lead)
		}
	}
	console.Draw(&screen, console.Term{TTY: true, Width: 80, UTF8: true}, func(page *console.Page) { verdictView(page, v) })
	for line := range strings.Lines(screen.String()) {
		if len(line) > 81 || !strings.HasPrefix(line, "gpuard: ") && !strings.HasPrefix(line, "        ") {
			t.Errorf("%d columns: %q", len(line)-1, line)
		}
	}
}
