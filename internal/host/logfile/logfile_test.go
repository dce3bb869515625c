package logfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const roleVar = "GPUARD_LOGFILE_ROLE"

// The tests need processes: this binary again, which copies, or which starts a log and a command.
func TestMain(m *testing.M) {
	maxCopyWait = 20 * time.Second // on a machine that does much else
	var err error
	switch {
	case len(os.Args) > 1 && os.Args[1] == CopyFlag:
		var o CopyOrders
		err = errors.Join(json.Unmarshal([]byte(os.Args[2]), &o), CopyOutput(o))
	case os.Getenv(roleVar) != "":
		err = logged(os.Args[1], os.Args[2])
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(3)
	}
}

// logged FILE SCRIPT: runs a script with a log of at most 4 KiB.
func logged(path, script string) error {
	l, err := StartLog(path, 4<<10, true)
	if err != nil {
		return err
	}
	if err := l.WriteNote("# begin"); err != nil {
		return err
	}
	cmd := exec.Command("sh", "-c", script)
	cmd.Stdout, cmd.Stderr = l.Out, l.Err
	_ = cmd.Run() // how it ended does not matter
	l.Close(time.Second)
	return nil
}

func start(path, script string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", path, script)
	cmd.Env = append(os.Environ(), roleVar+"=1")
	return cmd
}

// TestNoteAfterOutput: a note stands behind what was printed before it, also where the process that copies is slow.
func TestNoteAfterOutput(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := StartLog(path, 1<<20, false)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 20 {
		if _, err := fmt.Fprintf(l.Out, "%s\noutput %d\n", strings.Repeat("x", 5000), n); err != nil {
			t.Fatal(err)
		}
		if err := l.WriteNote(fmt.Sprintf("# note %d", n)); err != nil {
			t.Fatal(err)
		}
	}
	l.Close(20 * time.Second)
	text, err := os.ReadFile(path)
	for n := range 20 {
		before, after := strings.Index(string(text), fmt.Sprintf("\noutput %d\n", n)), strings.Index(string(text), fmt.Sprintf("\n# note %d\n", n))
		if before < 0 || after < before {
			t.Errorf("%v: output %d is at %d, and what was noted after it at %d", err, n, before, after)
		}
	}
}

// TestRotation: the file and path.1 stay small, and together end with the last output.
func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	out, err := start(path, "seq 5000").Output()
	if err != nil || strings.Count(string(out), "\n") != 5000 {
		t.Fatalf("%v: %d bytes were shown", err, len(out))
	}
	now, err1 := os.ReadFile(path)
	old, err2 := os.ReadFile(path + ".1")
	if err1 != nil || err2 != nil || len(now) > 4<<10 || len(old) > 4<<10 || len(old) < 2<<10 {
		t.Errorf("%v %v: %d and %d bytes", err1, err2, len(now), len(old))
	}
	if !strings.HasSuffix(string(out), string(old)+string(now)) {
		t.Error("they are not the end of the output")
	}
}

// TestLater: output of a background process is logged, and Close waits no longer than its patience.
func TestLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	cmd := start(path, "echo now; (until test -e "+path+".go; do sleep 0.02; done; echo later) & exit 0")
	if err := cmd.Run(); err != nil { // which would last for ever
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		b, _ := os.ReadFile(path)
		if string(b) == "# begin\nnow\nlater\n" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the log has %q", b)
		}
	}
}

// TestBroken: a log that cannot be written is reported once, and does not fail the command.
func TestBroken(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	// A device that is always full. It is not a regular file, so it is not renamed.
	if err := os.Symlink("/dev/full", path); err != nil {
		t.Fatal(err)
	}
	l := &limitedFile{path: path, limit: 10}
	for range 3 {
		l.writeOutput([]byte("0123456789"))
	}
	if l.failed == nil || !strings.Contains(l.failed.Error(), "no space left") {
		t.Errorf("%v", l.failed)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("there are %v", entries)
	}
	if CopyOutput(CopyOrders{[]byte(path), 1}) == nil {
		t.Error("it copies without descriptors")
	}
	if _, err := StartLog(filepath.Join(dir, "missing", "log"), 1<<20, true); err == nil || !strings.Contains(err.Error(), "cannot log to ") {
		t.Errorf("%v", err)
	}
}
