package sys

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestOutput: a program that has ended has answered, also where a process that it left behind still has its output open; one that
// does not end has not.
func TestOutput(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]struct {
		out, errs string
		fails     bool
	}{
		"echo on; echo '  off ' >&2": {"on\n", "off", false},
		"echo on; exit 3":            {"on\n", "", true},
		"echo on; sleep 30 &":        {"on\n", "", false},
	} {
		out, errs, err := Output(t.Context(), 20*time.Second, 100, nil, "/bin/sh", "-c", script)
		if string(out) != want.out || errs != want.errs || (err != nil) != want.fails {
			t.Errorf("%s: %q, %q, %v", script, out, errs, err)
		}
	}
	if _, _, err := Output(t.Context(), 100*time.Millisecond, 100, nil, "/bin/sleep", "30"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it did not end: %v", err)
	}
}
