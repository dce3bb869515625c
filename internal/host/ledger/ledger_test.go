package ledger

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain makes this program one that appends lines, for tests with several processes.
func TestMain(m *testing.M) {
	if path := os.Getenv("LEDGER"); path != "" {
		n, _ := strconv.Atoi(os.Args[2])
		most, _ := strconv.ParseInt(os.Args[3], 10, 64)
		for i := range n {
			if err := AppendLine(path, []byte(line(os.Args[1], i)), most); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func line(who string, i int) string {
	return fmt.Sprintf("<%s %d %s>", who, i, strings.Repeat("x", 100+i%50))
}

func write(t *testing.T, path string, writers, lines int, most int64) []string {
	t.Helper()
	var all []*exec.Cmd
	for w := range writers {
		cmd := exec.Command("/proc/self/exe", fmt.Sprint(w), fmt.Sprint(lines), fmt.Sprint(most))
		cmd.Env, cmd.Stderr = append(os.Environ(), "LEDGER="+path), os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, cmd)
	}
	for _, cmd := range all {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	return read(t, path)
}

func read(t *testing.T, path string) []string {
	t.Helper()
	text, err := ReadText(filepath.Dir(path), filepath.Base(path), uint32(os.Geteuid()), 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// TestAppend: no line of several processes is torn or lost, and the file is for its owner only.
func TestAppend(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "lines")
	got := write(t, path, 8, 200, 64<<20)
	found := map[string]int{}
	for _, l := range got {
		found[l]++
	}
	for w := range 8 {
		for i := range 200 {
			if l := line(fmt.Sprint(w), i); found[l] != 1 {
				t.Fatalf("%q: %d times", l, found[l])
			}
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestBounded: the older half goes, and what is written meanwhile stays: of each process the last lines are there, in
// their order.
func TestBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lines")
	const most = 20_000
	got := write(t, path, 4, 500, most)
	info, err := os.Stat(path)
	if err != nil || info.Size() > most || len(got) < 40 {
		t.Fatalf("%d lines, %d bytes, %v", len(got), info.Size(), err)
	}
	last := map[string]int{}
	for _, l := range got {
		var who, x string
		var i int
		if _, err := fmt.Sscanf(l, "<%s %d %s", &who, &i, &x); err != nil || l != line(who, i) {
			t.Fatalf("a torn line: %q", l)
		}
		if before, ok := last[who]; ok && i != before+1 {
			t.Errorf("process %s: line %d follows %d", who, i, before)
		}
		last[who] = i
	}
}

// TestCut: a line of which a part is missing does not harm the next one.
func TestCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lines")
	if err := AppendLine(path, []byte("one"), 1000); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = file.WriteString("tw")
	_ = file.Close()
	if err := AppendLine(path, []byte("three"), 1000); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(read(t, path), "|"); got != "one|tw|three" {
		t.Error(got)
	}
}

// TestRefused: nothing is written where another file would be meant, and a process that keeps the file locked holds
// nobody up for long.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, []byte("mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	link, fifo, folder := filepath.Join(dir, "link"), filepath.Join(dir, "fifo"), filepath.Join(dir, "folder")
	if err := os.Symlink(other, link); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, fifo, folder, filepath.Join(other, "below"), "/proc/lines"} {
		if err := AppendLine(path, []byte("line"), 1000); err == nil {
			t.Errorf("%s was written", path)
		}
	}
	if text, _ := os.ReadFile(other); string(text) != "mine\n" {
		t.Errorf("%q", text)
	}
	if _, err := ReadText(dir, "other", 12345, 1000); err == nil {
		t.Error("a file of another user was read")
	}

	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o777); err != nil || os.Chmod(open, 0o777) != nil {
		t.Fatal(err)
	}
	if err := AppendLine(filepath.Join(open, "lines"), []byte("line"), 1000); err == nil {
		t.Error("a folder that all users may change was used")
	}

	kept, err := os.OpenFile(other, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	if err := unix.FcntlFlock(kept.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := AppendLine(other, []byte("late"), 1000); err != nil || time.Since(began) > 20*LockPatience {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	if text, _ := os.ReadFile(other); !bytes.HasSuffix(text, []byte("\nlate\n")) {
		t.Errorf("%q", text)
	}
}
