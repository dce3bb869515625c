package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// lingering is a lease that is kept while its file is there.
type lingering struct {
	lock, file string
	parent     *os.File
	over       <-chan struct{}
}

// linger begins with a file that is there, for an hour at most.
func linger(t *testing.T, rest time.Duration) *lingering {
	t.Helper()
	dir := t.TempDir()
	l := &lingering{lock: filepath.Join(dir, "lock"), file: filepath.Join(dir, "kernel.json")}
	l.write(t)
	lock, err := os.Create(l.lock)
	if err == nil {
		l.parent, err = OpenPidfd(os.Getpid())
	}
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	l.over = over
	go func() {
		(&HolderWatch{lock: lock}).WaitForNextStart(l.file, l.parent, time.Hour, rest)
		close(over)
	}()
	t.Cleanup(func() {
		_ = os.Remove(l.lock)
		<-over
		_ = lock.Close()
		_ = l.parent.Close()
	})
	return l
}

func (l *lingering) write(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(l.file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestLinger: a lease is kept until its file has been missing for a while. One that comes back in time is as good as
// one that never went, each time.
func TestLinger(t *testing.T) {
	t.Parallel()
	const rest = 200 * time.Millisecond
	l := linger(t, rest)
	for back, tries := 0, 1; back < 2; tries++ {
		before := time.Now()
		if err := os.Remove(l.file); err != nil {
			t.Fatal(err)
		}
		time.Sleep(rest / 10) // long enough to be seen, mostly
		l.write(t)
		late := time.Since(before) > rest/2 // a machine with much to do: it may rightly have ended
		select {
		case <-l.over:
			if !late || tries == 20 {
				t.Fatalf("it ended though the file was there again after %s", time.Since(before))
			}
			l, back = linger(t, rest), 0
		case <-time.After(2 * rest):
			back++
		}
	}
	if err := os.Remove(l.file); err != nil {
		t.Fatal(err)
	}
	<-l.over
}

// TestLingerTakenOver: a file in place of the lock ends it, also where inotify is not to be had.
func TestLingerTakenOver(t *testing.T) {
	t.Parallel()
	replace := func(lock string) {
		if err := errors.Join(os.WriteFile(lock+".new", nil, 0o600), os.Rename(lock+".new", lock)); err != nil {
			t.Fatal(err)
		}
	}
	l := linger(t, time.Minute)
	replace(l.lock)
	<-l.over
	dir := t.TempDir()
	a := play(t, nil, "deaf", dir)
	a.expect("kept")
	replace(filepath.Join(dir, "lock"))
	a.expect("over")
}

// roleDeaf DIR: keeps the lease in DIR without inotify, since it can open no file any more.
func roleDeaf(args []string) error {
	lock, err := os.Create(filepath.Join(args[0], "lock"))
	if err != nil {
		return err
	}
	file := filepath.Join(args[0], "kernel.json")
	parent, err := OpenPidfd(os.Getpid())
	if err = errors.Join(err, os.WriteFile(file, nil, 0o600), unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 16, Max: 16})); err != nil {
		return err
	}
	for err == nil {
		_, err = unix.Open("/dev/null", unix.O_RDONLY, 0)
	}
	end := time.AfterFunc(300*time.Millisecond, func() { fmt.Println("kept") }) // it has looked, mostly
	(&HolderWatch{lock: lock}).WaitForNextStart(file, parent, time.Hour, time.Second)
	if end.Stop() {
		return errors.New("it ended at once")
	}
	fmt.Println("over")
	return nil
}
