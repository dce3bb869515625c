package program

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestOutput: a program that has ended has answered, also where a process that it left behind still has its output open; one that
// does not end has not.
func TestOutput(t *testing.T) {
	t.Parallel()
	left := filepath.Join(t.TempDir(), "left")
	t.Cleanup(func() {
		text, _ := os.ReadFile(left)
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	for script, want := range map[string]struct {
		out, errs string
		fails     bool
	}{
		"echo on; echo '  off ' >&2": {"on\n", "off", false},
		"echo on; exit 3":            {"on\n", "", true},
		"echo on; exec 3>" + left + "; sleep 30 3>&- & echo $! >" + left: {"on\n", "", false},
		"head -c 100000 /dev/zero":                                       {"", "", true},
		"cat":                                                            {"its input", "", false},
	} {
		out, errs, err := Output(t.Context(), 20*time.Second, 100, nil, []byte("its input"), "/bin/sh", "-c", script)
		if string(out) != want.out || errs != want.errs || (err != nil) != want.fails {
			t.Errorf("%s: %q, %q, %v", script, out, errs, err)
		}
	}
	if _, _, err := Output(t.Context(), 100*time.Millisecond, 100, nil, nil, "/bin/sleep", "30"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it did not end: %v", err)
	}
}

// TestOutputReadLate: what a program has written before its end is read also where nobody had the time to read it until now, while a
// process that it left behind has the pipe open.
func TestOutputReadLate(t *testing.T) {
	t.Parallel()
	cmd, to := exec.Cmd{}, &Bounded{Most: 100}
	s, err := readPipe(&cmd.Stdout, to)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if _, err := s.write.WriteString("in the pipe"); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(50*time.Millisecond, func() { close(s.over) })
	s.readRest(time.Now())
	if got := to.Text.String(); got != "in the pipe" {
		t.Errorf("%q", got)
	}
}
