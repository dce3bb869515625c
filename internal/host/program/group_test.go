package program

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"
)

// TestRunGroup: a command ends with its group when its time is over, and one that leaves a process behind has ended.
func TestRunGroup(t *testing.T) {
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "sleep 60 & echo $!")
	cmd.Stdout = &out
	if err := RunGroup(t.Context(), cmd, time.Second); err != nil || out.Len() == 0 {
		t.Errorf("%q, %v", out.String(), err)
	}
	_ = exec.Command("sh", "-c", "kill "+out.String()).Run()

	ctx, cancel := context.WithCancel(t.Context())
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.CommandContext(ctx, "sh", "-c", "sleep 60 & echo on; wait")
	cmd.Stdout = write
	go func() {
		_, _ = read.Read(make([]byte, 3))
		cancel()
	}()
	if err := RunGroup(ctx, cmd, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	_ = write.Close()
	if n, err := read.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Error("a process of the group lives")
	}
}
