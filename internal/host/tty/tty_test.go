package tty

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/gate"
)

// pty opens a pseudo terminal whose other end belongs to this user and takes messages.
func pty(t *testing.T) (master *os.File, path string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	path = fmt.Sprintf("/dev/pts/%d", number)
	slave, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0) // else what is written is lost when nobody has it open
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slave.Close() })
	if err := os.Chmod(path, 0o620); err != nil {
		t.Fatal(err)
	}
	return master, path
}

// shown is what is on the screen.
func shown(master *os.File) (text string) {
	buffer := make([]byte, 4096)
	for {
		n, err := unix.Read(int(master.Fd()), buffer)
		if err != nil || n <= 0 {
			return text
		}
		text += string(buffer[:n])
	}
}

func anywhere(uint64) bool { return true }

// TestWritten: what takes messages gets them, without control characters; what does not, or is no terminal, is left alone.
func TestWritten(t *testing.T) {
	master, path := pty(t)
	me := uint32(os.Geteuid())
	if !writeLine(path, me, "GPU 3\x1b[2J is\nhot", anywhere) {
		t.Fatal("it was not written")
	}
	if text := shown(master); strings.ContainsAny(text, "\x1b\a") || strings.Count(text, "\n") != 2 || !strings.HasPrefix(text, "\r\n") && !strings.HasPrefix(text, "\r\r\n") || !strings.Contains(text, "GPU 3") || !strings.Contains(text, "hot\r") {
		t.Errorf("%q", text)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	link, pipe, file := filepath.Join(dir, "link"), filepath.Join(dir, "pipe"), filepath.Join(dir, "file")
	for _, err := range []error{os.Symlink(path, link), unix.Mkfifo(pipe, 0o620), os.WriteFile(file, nil, 0o620), os.Chmod(file, 0o620)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for what, done := range map[string]bool{
		"another user's":   writeLine(path, me+1, "x", anywhere),
		"one's own":        writeLine(path, me, "x", func(device uint64) bool { return device != st.Rdev }),
		"a link":           writeLine(link, me, "x", anywhere),
		"a pipe":           writeLine(pipe, me, "x", anywhere),
		"a file":           writeLine(file, me, "x", anywhere),
		"another device":   writeLine("/dev/null", 0, "x", anywhere),
		"what is missing":  writeLine(filepath.Join(dir, "none"), me, "x", anywhere),
		"not from outside": OwnTerminal() == st.Rdev,
	} {
		if done {
			t.Errorf("%s is written to", what)
		}
	}
	if err := os.Chmod(path, 0o600); err != nil { // mesg n
		t.Fatal(err)
	}
	if writeLine(path, me, "x", anywhere) {
		t.Error("messages that are not wanted are written")
	}
	if text := shown(master); text != "" {
		t.Errorf("%q", text)
	}
	if info, err := os.Stat(file); err != nil || info.Size() > 0 {
		t.Error("a file was written to")
	}
}

// TestFull: a terminal that nobody reads, or that stands still, is not waited for; one with tostop gets nothing.
func TestFull(t *testing.T) {
	master, path := pty(t)
	began := time.Now()
	for range 5000 {
		writeLine(path, uint32(os.Geteuid()), strings.Repeat("x", 200), anywhere)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("5000 lines took %v", took)
	}
	_ = master
	_, path = pty(t)
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	mode, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	mode.Lflag |= unix.TOSTOP
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, mode); err != nil {
		t.Fatal(err)
	}
	if writeLine(path, uint32(os.Geteuid()), "x", anywhere) {
		t.Error("a terminal with tostop is written to")
	}
}

// TestTell: all terminals of a user but one get a line, and those of no other.
func TestTell(t *testing.T) {
	gate.Need(t, "root")
	const user = 54321 // who has no other terminal, and whom nobody knows
	first, path := pty(t)
	second, other := pty(t)
	third, _ := pty(t)
	for _, one := range []string{path, other} {
		if err := os.Chown(one, user, -1); err != nil {
			t.Fatal(err)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	if n := DevRoot("/").TellUser(user, "hot", 0); n != 2 {
		t.Errorf("%d terminals, want 2", n)
	}
	if n := DevRoot("/").TellUser(user, "hot", st.Rdev); n != 1 {
		t.Errorf("%d terminals, want 1", n)
	}
	if n := DevRoot("/").TellProcess(os.Getpid(), 1, user, "end it"); n != 2 { // another process: all of the user's
		t.Errorf("%d terminals, want 2", n)
	}
	if n := DevRoot(t.TempDir()).TellUser(user, "hot", 0); n != 0 {
		t.Errorf("%d terminals in an empty folder", n)
	}
	if a, b, c := strings.Count(shown(first), "\n"), strings.Count(shown(second), "\n"), shown(third); a != 4 || b != 6 || c != "" {
		t.Errorf("%d, %d lines and %q", a, b, c)
	}
}
