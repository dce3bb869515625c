package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestStartsAreCounted: a command learns how often it was started before, whichever command starts it, so that it can go on where it was;
// a count that it inherits is another's.
func TestStartsAreCounted(t *testing.T) {
	t.Parallel()
	l := newQueueFixture(t, 1)
	l.env = append(l.env, "GPUARD_RESTART=9", "GPUARD_DRIFT_REASON=other")
	for name, start := range map[string][]string{
		"run":    {"run", "-q", "--retry", "2:any"},
		"submit": {"submit", "-q", "--retry", "2:any"},
		"sweep":  {"sweep", "-q", "--retry", "2:any", "--over", "a=1", "--dir", filepath.Join(quietDir(t), "sweep")},
	} {
		file := filepath.Join(l.marks, name)
		script := `echo "${GPUARD_RESTART-first}${GPUARD_DRIFT_REASON}" >>` + file + `; exit 1`
		runCommand(t, l.cmd(append(start, "--", "sh", "-c", script)...))
		l.waitUntilAllEnded()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		checkEqual(t, name, string(text), "first\n1\n2\n")
	}
	checkEqual(t, "requeue", runCommand(t, l.cmd("queue", "requeue", "1")).code, 0)
	l.waitUntilAllEnded()
	text, _ := os.ReadFile(filepath.Join(l.marks, "submit"))
	checkContains(t, string(text), "first\n1\n2\n3\n")
}
