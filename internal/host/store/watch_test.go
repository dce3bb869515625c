package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	"gpuard/internal/gate"
)

func mustWatch(t *testing.T, f *Folder) *Watcher {
	t.Helper()
	w, err := f.Watch()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func (w *Watcher) checkTold(t *testing.T, what string) {
	t.Helper()
	select {
	case <-w.Changed:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s was not told", what)
	}
}

// checkSilent fails if the watcher reports something.
func (w *Watcher) checkSilent(t *testing.T, what string) {
	t.Helper()
	select {
	case <-w.Changed:
		t.Errorf("%s was told", what)
	case <-time.After(3 * minNotifyInterval):
	}
}

func TestWatch(t *testing.T) {
	dir := makeSharedFolder(t)
	paths := []string{filepath.Join(dir, "one"), filepath.Join(dir, "two")}
	if err := errors.Join(CreateFolder(paths[0]), CreateFolder(paths[1])); err != nil {
		t.Fatal(err)
	}
	f, g := mustOpen(t, paths[0], append(paths, filepath.Join(dir, "missing"))...), mustOpen(t, paths[1])
	w := mustWatch(t, f)
	h := mustClaim(t, f, "GPU-a")
	w.checkTold(t, "the first folder of a user")
	_ = h.Lock.Close()
	w.checkTold(t, "the end of a lease")
	if gone, err := f.EndIfUnheld(h.Lease, testBoot); !gone || err != nil {
		t.Fatal(gone, err)
	}
	w.checkSilent(t, "the removal of what had ended")
	ticket := queueTicket(t, f, "GPU-a")
	w.checkTold(t, "the first folder of tickets")
	other := queueTicket(t, f, "GPU-a")
	w.checkSilent(t, "a new ticket")
	_ = ticket.Withdraw()
	w.checkTold(t, "the end of a ticket")
	_, _ = other.lock.Close(), other.pipe.Close() // as if killed
	w.checkTold(t, "the death of a ticket")
	h = mustClaim(t, f, "GPU-a")
	if err := errors.Join(f.RecordHolders(h.Lease, nil), os.Chtimes(filepath.Join(f.userFolder(ownUID()), entryNameOf(&h.Lease)+lockSuffix), time.Now(), time.Now())); err != nil {
		t.Fatal(err)
	}
	w.checkSilent(t, "a lease that goes on")
	if err := f.Release(h.Lease, testBoot); err != nil {
		t.Fatal(err)
	}
	w.checkTold(t, "a release")
	h = mustClaim(t, g, "GPU-b")
	w.checkTold(t, "the first folder of a user in another state folder")
	_ = h.Lock.Close()
	w.checkTold(t, "the end of a lease in another state folder")
	if err := errors.Join(w.Close(), w.Close()); err != nil {
		t.Error(err)
	}
}

// TestWatchNeverMissesAnEnd: holders are killed one after another on a busy machine; the test reads only after an
// event.
func TestWatchNeverMissesAnEnd(t *testing.T) {
	f := newStateFolder(t)
	w := mustWatch(t, f)
	var stop atomic.Bool
	defer stop.Store(true)
	for range runtime.NumCPU() { // so that the kernel drops locks late
		go func() {
			for !stop.Load() { //nolint:revive // it burns time
			}
		}()
	}
	var slowest time.Duration
	for range soakCount(15, 1000) {
		a := startRole(t, ownUID(), "claim", f.Path, "20s", "GPU-a")
		a.expectLine("claimed ")
		killed := time.Now()
		_ = a.cmd.Process.Kill()
		for {
			w.checkTold(t, "the end of a killed holder")
			if leases, _ := f.Leases(); len(leases) == 0 {
				break
			}
		}
		slowest = max(slowest, time.Since(killed))
		_ = a.cmd.Wait()
	}
	t.Logf("the slowest was known after %s", slowest)
}

// TestWatchAsksAgain: the kernel announces an end before it drops the lock; here, long before.
func TestWatchAsksAgain(t *testing.T) {
	f := newStateFolder(t)
	h := mustClaim(t, f, "GPU-a")
	w := mustWatch(t, f)
	second, err := os.OpenFile(filepath.Join(f.userFolder(ownUID()), entryNameOf(&h.Lease)+lockSuffix), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = second.Close()
	w.checkSilent(t, "that somebody closed the file of a lease that is held")
	if err := unix.FcntlFlock(h.Lock.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_UNLCK}); err != nil {
		t.Fatal(err)
	}
	w.checkTold(t, "a lock that was dropped late")
}

// TestWatchTellsOfTheLastOfMany: many leases end together. Few values are sent, and the last one after the last end.
func TestWatchTellsOfTheLastOfMany(t *testing.T) {
	f := newStateFolder(t)
	for range soakCount(5, 100) {
		w := mustWatch(t, f)
		var all []*Held
		for i := range 60 {
			all = append(all, mustClaim(t, f, gpu.UUID(string(rune('a'+i)))))
		}
		go func() {
			for _, h := range all {
				_ = h.Lock.Close()
			}
		}()
		for {
			w.checkTold(t, "the end of many")
			if leases, _ := f.Leases(); len(leases) == 0 {
				break
			}
		}
		_ = w.Close()
	}
}

// TestNoWatcherLeft: the 128 of a user can be used up, which is said and breaks nothing.
func TestNoWatcherLeft(t *testing.T) {
	f := newStateFolder(t)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &old) })
	for n := uint64(3); n < 30; n++ {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: old.Max}); err != nil {
			t.Fatal(err)
		}
		w, err := f.Watch()
		if err == nil {
			_ = w.Close()
		} else if !errors.Is(err, unix.EMFILE) {
			t.Errorf("with %d descriptors: %v", n, err)
		}
	}
}

// TestWatchIsNotLedAway: other files next to users' folders are not entered and do no harm.
func TestWatchIsNotLedAway(t *testing.T) {
	gate.Need(t, "privileged")
	f := newStateFolder(t)
	startDeed(t, bobUID, "mkdir", f.ticketFolder(aliceUID)) // her name, his folder
	startDeed(t, bobUID, "symlink", f.userFolder(aliceUID), f.userFolder(bobUID))
	if err := os.Mkdir(f.userFolder(3999), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", f.userFolder(3999), "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(f.userFolder(3999), unix.MNT_DETACH) })
	w := mustWatch(t, f)
	w.mu.Lock()
	for _, d := range w.folders {
		if d.dir != nil {
			t.Errorf("%s is watched", d.path)
		}
	}
	w.mu.Unlock()
	a := startRole(t, aliceUID, "claim", f.Path, "5s", "GPU-a")
	a.expectLine("claimed ")
	w.checkTold(t, "alice's folder")
	a.kill()
	w.checkTold(t, "alice's end")
	if leases, _ := f.Leases(); len(leases) != 0 {
		t.Errorf("leases %+v", leases)
	}
}

func TestBehindWithoutDescriptors(t *testing.T) {
	f := newStateFolder(t)
	all := queueMany(t, f, 8)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &old) })
	for n := uint64(3); n < 60; n++ {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: old.Max}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if err := all[7].WaitBehind(ctx, 7); err == nil {
			t.Errorf("with %d descriptors it does not see those before it", n)
		}
		cancel()
	}
}

// roleWatch PATH: prints how many leases there are whenever it is told.
func roleWatch(args []string) error {
	f, err := Open(args[0], nil, time.Second)
	if err != nil {
		return err
	}
	w, err := f.Watch()
	if err != nil {
		return err
	}
	fmt.Println("watching")
	go func() {
		for range w.Changed {
			leases, _ := f.Leases()
			fmt.Println("leases", len(leases))
		}
	}()
	waitForEOF()
	return w.Close()
}

// TestWatchOfAFolderThatOpensLate: mkdir under a narrow umask makes a folder that others cannot watch before its mode
// is set.
func TestWatchOfAFolderThatOpensLate(t *testing.T) {
	gate.Need(t, "root")
	f := newStateFolder(t)
	b := startRole(t, bobUID, "watch", f.Path)
	b.expectLine("watching")
	defer time.AfterFunc(10*time.Second, func() { _ = b.cmd.Process.Kill() }).Stop()
	dir := f.userFolder(aliceUID)
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, aliceUID, aliceUID)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond) // bob has tried; what follows is right also when not
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		a := startRole(t, aliceUID, "claim", f.Path, "5s", "GPU-a")
		a.expectLine("claimed ")
		a.kill()
		for said := ""; said != "leases 0"; {
			if said = b.readLine(); said == "" {
				t.Fatalf("bob was not told of end %d", i)
			}
		}
	}
}

// TestWatchLeave: after Leave one descriptor remains, and Changed gets no more values.
func TestWatchLeave(t *testing.T) {
	f := newStateFolder(t)
	w := mustWatch(t, f)
	h := mustClaim(t, f, "GPU-a")
	w.checkTold(t, "the first folder of a user")
	left := w.Detach()
	if left == nil {
		t.Fatal("nothing is left to close")
	}
	_ = h.Lock.Close()
	w.checkSilent(t, "the end of a lease after the watch")
	if err := errors.Join(w.Close(), left.Close()); err != nil {
		t.Error(err)
	}
	if w.Detach() != nil {
		t.Error("a closed watch leaves something")
	}
}
