package daemonize

import (
	"os"
	"testing"
)

// TestNotThisProgram: these tests do not start themselves in the background.
func TestNotThisProgram(t *testing.T) {
	if process, err := StartBackground("", nil, os.Stderr); err == nil {
		t.Fatalf("started as process %d", process.Pid)
	}
}
