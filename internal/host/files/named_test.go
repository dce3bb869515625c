package files

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// long is more than any of these tests takes on a busy machine.
const long = time.Minute

// fifo makes a named pipe.
func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// promptly fails where a call does not return.
func promptly[T any](t *testing.T, call func() T) T {
	t.Helper()
	done := make(chan T, 1)
	go func() { done <- call() }()
	select {
	case v := <-done:
		return v
	case <-time.After(long):
		t.Fatal("it does not return")
	}
	panic("unreachable")
}

type answer struct {
	data []byte
	err  error
}

// TestNamedPipe: what comes through a pipe is read as a whole, with and without a name, also from a writer that comes
// late or writes slowly; a pipe without a writer, or with a silent one, is an error and no wait without an end.
func TestNamedPipe(t *testing.T) {
	read := func(path string, comes, speaks time.Duration) answer {
		return promptly(t, func() answer {
			data, err := readNamed(path, 1<<20, comes, speaks)
			return answer{data, err}
		})
	}
	t.Run("no writer", func(t *testing.T) {
		if got := read(fifo(t), 50*time.Millisecond, long); got.err == nil || !strings.Contains(got.err.Error(), "no program writes to") {
			t.Errorf("%q, %v", got.data, got.err)
		}
	})
	t.Run("silent writer", func(t *testing.T) {
		path := fifo(t)
		writer, err := os.OpenFile(path, os.O_RDWR, 0) // which does not wait for a reader
		if err != nil {
			t.Fatal(err)
		}
		defer writer.Close()
		if got := read(path, long, 50*time.Millisecond); got.err == nil || !strings.Contains(got.err.Error(), "has written nothing for 50ms") {
			t.Errorf("%q, %v", got.data, got.err)
		}
	})
	t.Run("late and slow writer", func(t *testing.T) {
		path := fifo(t)
		go func() {
			time.Sleep(50 * time.Millisecond)
			writer, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				t.Error(err)
				return
			}
			defer writer.Close()
			for range 3 {
				time.Sleep(20 * time.Millisecond)
				_, _ = writer.WriteString("part ")
			}
		}()
		if got := read(path, long, long); got.err != nil || string(got.data) != "part part part " {
			t.Errorf("%q, %v", got.data, got.err)
		}
	})
	t.Run("without a name", func(t *testing.T) {
		out, in, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		go func() {
			_, _ = in.WriteString("of a program")
			_ = in.Close()
		}()
		path := fmt.Sprintf("/dev/fd/%d", out.Fd())
		if got := read(path, long, long); got.err != nil || string(got.data) != "of a program" {
			t.Errorf("%q, %v", got.data, got.err)
		}
	})
}

// TestNamed: a file of any kind is read up to its limit, and what is no file is an error.
func TestNamed(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{plain: "text", os.DevNull: ""} {
		if data, err := ReadNamed(path, 4); err != nil || string(data) != want {
			t.Errorf("%s: %q, %v", path, data, err)
		}
	}
	for path, want := range map[string]string{
		plain: "larger than", "/dev/zero": "it is a device", t.TempDir(): "it is a folder", plain + ".none": "no such file",
	} {
		if data, err := ReadNamed(path, 3); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v; want %q", path, data, err, want)
		}
	}
}
