package cli

import (
	"strings"
	"testing"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/app/verify"
	core "gpuard/internal/core/verify"
)

// TestVerdict: with a command every paragraph begins with "gpuard: "; lines fit a terminal, and a log has one per
// sentence.
func TestVerdict(t *testing.T) {
	v := &verify.Verification{Finding: core.Finding{Verdict: core.WrongDevice, Text: strings.Repeat("python is on GPU 1 ", 12),
		Remedy: "look for a place that sets CUDA_VISIBLE_DEVICES", Notes: []string{strings.Repeat("the order is a guess ", 12), "two"}}}
	var log, screen strings.Builder
	Verdict(&log, v, Term{})
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
	Verdict(&screen, v, Term{TTY: true, Width: 80, UTF8: true})
	for line := range strings.Lines(screen.String()) {
		if len(line) > 81 || !strings.HasPrefix(line, "gpuard: ") && !strings.HasPrefix(line, "        ") {
			t.Errorf("%d columns: %q", len(line)-1, line)
		}
	}
}

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{"90s": 90 * time.Second, "10m": 10 * time.Minute, "24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour, "1d2h": 26 * time.Hour, "300ms": 300 * time.Millisecond} {
		if got, err := duration("for", text); got != want || err != nil {
			t.Errorf("%s is %v, %v", text, got, err)
		}
	}
	for text, says := range map[string]string{
		"2":     `cannot read --for "2": the unit is missing; write --for=2s for seconds, or --for=2m for minutes`,
		"0":     "--for=90s",
		"0s":    "--for=90s",
		"-2s":   "--for=90s",
		"soon":  "--for=90s",
		"1d-2h": "--for=90s",
		"1d+2h": "--for=90s",
		"":      "--for=90s",
	} {
		if _, err := duration("for", text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}

// TestApart: only a valid value directly after --verify is taken for its value.
func TestApart(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"run --verify 5s -- true", "5s"},
		{"run --verify 30 -- true", "30s"},
		{"run --verify stop true", "stop"},
		{"run -q --verify 5s,stop --gpus 2 -- true", "5s,stop"},
		{"run --verify 7z x", ""},
		{"run --verify -- 5s", ""},
		{"run --verify -q 5s", ""},
		{"run --verify", ""},
	} {
		p := &Program{Host: &machine.Host{}, Args: strings.Fields(c.line)}
		cmd := p.run()
		if err := cmd.ParseFlags(p.Args[1:]); err != nil {
			t.Fatal(err)
		}
		if got, ok := p.valueAfterBlank(cmd.Flags().Args()); got != c.want && ok || ok != (c.want != "") {
			t.Errorf("%s: %q %v, want %q", c.line, got, ok, c.want)
		}
	}
}
