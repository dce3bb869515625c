package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// soakCount returns the large number with GPUARD_SOAK=1.
func soakCount(small, large int) int {
	if os.Getenv("GPUARD_SOAK") == "1" {
		return large
	}
	return small
}

func fourDevices() []string { return []string{"GPU-0", "GPU-1", "GPU-2", "GPU-3"} }

// lockDeviceMark makes a file for a device in use. It must never be locked twice.
func lockDeviceMark(dir string, d gpu.UUID) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, string(d)), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	// A lock, because the user may be killed before it removes a file.
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, fmt.Errorf("TWO HOLDERS of %s", d)
	}
	// The kernel closes the files of a killed process from the highest number down, so this one must close before the
	// lease.
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 512)
	_ = file.Close()
	return os.NewFile(uintptr(fd), string(d)), err //nolint:gosec // a descriptor
}

// roleChurn PATH MARKS DEVICE…: claims and ends as fast as it can until it is killed.
func roleChurn(args []string) error {
	f, err := Open(args[0], nil, 10*time.Second)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		h, err := f.Claim(testBoot, nil, claimFirstFree(toUUIDs(args[2:])...))
		if errors.Is(err, errBusy) {
			continue
		}
		if err != nil {
			return err
		}
		m, err := lockDeviceMark(args[1], h.Lease.Devices[0])
		if err != nil {
			return err
		}
		time.Sleep(rand.N(300 * time.Microsecond))
		_ = m.Close()
		_ = h.Lock.Close()
		if rand.IntN(2) == 0 {
			if _, err := f.EndIfUnheld(h.Lease, testBoot); err != nil {
				return err
			}
		}
	}
}

func TestKilledClaimers(t *testing.T) {
	f := newStateFolder(t)
	kept := mustClaim(t, f, "GPU-kept")
	args := append([]string{f.Path, makeSharedFolder(t)}, fourDevices()...)
	var group sync.WaitGroup
	kills := make(chan struct{}, soakCount(50, 1000))
	for range cap(kills) {
		kills <- struct{}{}
	}
	close(kills)
	for range 4 {
		group.Go(func() {
			for range kills {
				a := startRole(t, ownUID(), "churn", args...)
				if said := a.readLine(); said != "ready" {
					t.Errorf("a claimer beside killed ones: %s", said)
				}
				time.Sleep(rand.N(4 * time.Millisecond))
				_ = a.cmd.Process.Kill()
				if rest := a.readLine(); rest != "" {
					t.Errorf("a claimer says %q", rest)
				}
				_ = a.cmd.Wait()
			}
		})
	}
	group.Wait()
	leases, problems := f.Leases()
	if len(leases) != 1 || leases[0].ID != kept.Lease.ID || leases[0].Unreadable || len(problems) > 0 {
		t.Errorf("after the last kill: leases %+v, problems %v; want the one that was kept", leases, problems)
	}
	all := map[gpu.UUID]bool{}
	for range 4 {
		all[mustClaim(t, f, toUUIDs(fourDevices())...).Lease.Devices[0]] = true
	}
	if len(all) != 4 {
		t.Errorf("claimed %v, want all four", all)
	}
	if left := leftoverFiles(t, f, ownUID()); len(left) != 10 {
		t.Errorf("left behind among five pairs: %v", left)
	}
}

// roleContend PATH MARKS DEVICE…: gets one device once, uses it a moment, and ends.
func roleContend(args []string) error {
	fmt.Println("ready")
	waitForEOF()
	f, err := Open(args[0], nil, time.Minute)
	if err != nil {
		return err
	}
	for {
		h, err := f.Claim(testBoot, nil, claimFirstFree(toUUIDs(args[2:])...))
		if errors.Is(err, errBusy) {
			time.Sleep(rand.N(20 * time.Millisecond))
			continue
		}
		if err != nil {
			return err
		}
		m, err := lockDeviceMark(args[1], h.Lease.Devices[0])
		if err != nil {
			return err
		}
		time.Sleep(2 * time.Millisecond)
		return errors.Join(m.Close(), h.Lock.Close())
	}
}

func TestManyProcessesFewDevices(t *testing.T) {
	f := newStateFolder(t)
	args := append([]string{f.Path, makeSharedFolder(t)}, fourDevices()...)
	var all []*roleProcess
	for range 200 {
		all = append(all, startRole(t, ownUID(), "contend", args...))
	}
	for _, a := range all {
		a.expectLine("ready")
	}
	for _, a := range all {
		_ = a.in.Close()
	}
	for _, a := range all {
		if rest := a.endAndRead(); rest != "" {
			t.Errorf("one of 200 says %q", rest)
		}
	}
	if leases, problems := f.Leases(); len(leases) != 0 || len(problems) > 0 {
		t.Errorf("afterwards: %+v, %v", leases, problems)
	}
}

// roleHold keeps whatever it inherited.
func roleHold([]string) error {
	fmt.Println("holding", os.Getpid())
	waitForEOF()
	return nil
}

// roleParent PATH DEVICE: claims, passes the lock to a child of its own, and waits to be killed.
func roleParent(args []string) error {
	f, err := Open(args[0], nil, time.Second)
	if err != nil {
		return err
	}
	h, err := f.Claim(testBoot, nil, claimFirstFree(gpu.UUID(args[1])))
	if err != nil {
		return err
	}
	child := exec.Command("/proc/self/exe")
	child.Env = []string{roleVar + "=hold"}
	child.ExtraFiles = []*os.File{h.Lock}
	child.Stdin, child.Stdout = os.Stdin, os.Stdout
	if err := child.Start(); err != nil {
		return err
	}
	return child.Wait()
}

func TestLeaseLivesAsLongAsAnyHolder(t *testing.T) {
	var took time.Duration
	for range 5 { // that the machine was busy once says nothing about the time
		if took = checkLivesWithHolders(t); took <= 50*time.Millisecond {
			return
		}
	}
	t.Errorf("free after %s, want at most 50 ms", took)
}

// checkLivesWithHolders returns the time from the end of the last holder until the device is free.
func checkLivesWithHolders(t *testing.T) time.Duration {
	t.Helper()
	f := newStateFolder(t)
	a := startRole(t, ownUID(), "parent", f.Path, "GPU-a")
	child, err := strconv.Atoi(a.expectLine("holding "))
	if err != nil {
		t.Fatal(err)
	}
	leases, _ := f.Leases()
	if len(leases) != 1 || leases[0].PID != a.cmd.Process.Pid {
		t.Fatalf("leases %+v", leases)
	}
	_ = a.cmd.Process.Kill()
	_, _ = a.cmd.Process.Wait()
	if after, _ := f.Leases(); len(after) != 1 || after[0].ID != leases[0].ID {
		t.Errorf("after kill -9 of the claimer, its child alive: %+v", after)
	}
	if _, err := f.Claim(testBoot, nil, claimFirstFree("GPU-a")); !errors.Is(err, errBusy) {
		t.Errorf("claim while a child holds the lease: %v", err)
	}

	lock, err := os.Open(filepath.Join(f.userFolder(ownUID()), entryNameOf(&leases[0])+lockSuffix))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close() //nolint:errcheck // read only
	freed := make(chan time.Time, 1)
	go func() {
		for unix.FcntlFlock(lock.Fd(), unix.F_OFD_SETLKW, &unix.Flock_t{Type: unix.F_RDLCK}) != nil {
		}
		freed <- time.Now()
	}()
	time.Sleep(20 * time.Millisecond)
	killed := time.Now()
	if err := unix.Kill(child, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	took := (<-freed).Sub(killed)
	t.Logf("free %s after the last holder was killed", took)
	if took < 0 {
		t.Errorf("free %s before that", -took)
	}
	mustClaim(t, f, "GPU-a") // our read lock on the dead file changes nothing
	return took
}

func TestLockedErrorNamesTheHolder(t *testing.T) {
	f := newStateFolder(t)
	f.Deadline = 100 * time.Millisecond
	a := startRole(t, ownUID(), "lock", f.Path, "posix")
	pid := a.expectLine("locked ")
	began := time.Now()
	_, err := f.Claim(testBoot, nil, claimFirstFree("GPU-a"))
	var locked *LockedError
	if !errors.As(err, &locked) || strconv.Itoa(locked.PID) != pid || !strings.Contains(err.Error(), "process "+pid) {
		t.Errorf("claim under a lock of %s: %v", pid, err)
	}
	if took := time.Since(began); took < 90*time.Millisecond || took > 20*time.Second {
		t.Errorf("gave up after %s, want 100 ms", took)
	}
	if _, err := f.EndIfUnheld(job.Lease{ID: "abcd", Devices: []gpu.UUID{"GPU-a"}, UID: ownUID()}, testBoot); !errors.As(err, &locked) {
		t.Errorf("End under a lock: %v", err)
	}
	if leases, _ := f.Leases(); len(leases) != 0 {
		t.Errorf("leases %+v after a claim that failed", leases)
	}

	// The abandoned waits must neither keep the lock nor release that of a later claim.
	f.Deadline = time.Millisecond
	for range 30 {
		if _, err := f.Claim(testBoot, nil, claimFirstFree("GPU-a")); !errors.As(err, &locked) {
			t.Errorf("claim under a lock: %v", err)
		}
	}
	time.AfterFunc(30*time.Millisecond, func() { _ = a.cmd.Process.Kill() })
	f.Deadline = 20 * time.Second
	h, err := f.Claim(testBoot, nil, func(v View) (job.Lease, error) {
		time.Sleep(20 * time.Millisecond)
		if holder := lockHolder(t, f.Path); holder != strconv.Itoa(os.Getpid()) {
			t.Errorf("during a claim the lock is held by %s, want us (%d)", holder, os.Getpid())
		}
		return claimFirstFree("GPU-a")(v)
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = h.Lock.Close()
	if holder := lockHolder(t, f.Path); holder != "0" {
		t.Errorf("after the claim the lock is held by %s", holder)
	}
}

// The lock is granted to an abandoned wait, which has to release it.
func TestLateLockIsGivenBack(t *testing.T) {
	f := newStateFolder(t)
	f.Deadline = 20 * time.Millisecond
	a := startRole(t, ownUID(), "lock", f.Path, "posix")
	a.expectLine("locked ")
	if _, err := f.Claim(testBoot, nil, claimFirstFree("GPU-a")); err == nil {
		t.Fatal("claimed under somebody's lock")
	}
	a.kill()
	for deadline := time.Now().Add(20 * time.Second); lockHolder(t, f.Path) != "0"; {
		if time.Now().After(deadline) {
			t.Fatal("the lock that came too late was kept")
		}
	}
	mustClaim(t, f, "GPU-a")
}

func TestLockOfAKindThatHides(t *testing.T) {
	f := newStateFolder(t)
	f.Deadline = 50 * time.Millisecond
	startRole(t, ownUID(), "lock", f.Path, "ofd").expectLine("locked ")
	_, err := f.Claim(testBoot, nil, claimFirstFree("GPU-a"))
	var locked *LockedError
	if !errors.As(err, &locked) || !locked.Hidden || locked.PID != 0 || !strings.Contains(err.Error(), "sudo fuser") {
		t.Errorf("claim under an open file description lock: %v", err)
	}
}

func TestLockReplacedWhileWaiting(t *testing.T) {
	f := newStateFolder(t)
	a := startRole(t, ownUID(), "lock", f.Path, "posix")
	a.expectLine("locked ")
	path := filepath.Join(f.Path, "lock")
	done := make(chan error, 1)
	go func() {
		_, err := f.Claim(testBoot, nil, func(v View) (job.Lease, error) {
			if holder := lockHolder(t, f.Path); holder != strconv.Itoa(os.Getpid()) {
				t.Errorf("the lock at its path is held by %s, want us", holder)
			}
			return job.Lease{}, errBusy
		})
		done <- err
	}()
	time.Sleep(20 * time.Millisecond)
	if err := errors.Join(writeNew(path+".new", nil, 0o666), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
	a.kill()
	if err := <-done; !errors.Is(err, errBusy) {
		t.Error(err)
	}

	// A folder that replaced the first one is checked again.
	old := f.Path + ".old"
	if err := errors.Join(os.Rename(f.Path, old), CreateFolder(f.Path), os.Chmod(f.Path, 0o777)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Claim(testBoot, nil, claimFirstFree("GPU-a")); err == nil || !strings.Contains(err.Error(), "chmod +t") {
		t.Errorf("claim in an unsafe folder that took the place of the first: %v", err)
	}
	if err := errors.Join(os.Chmod(f.Path, os.ModeSticky|0o777), os.Remove(path)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Claim(testBoot, nil, claimFirstFree("GPU-a")); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("claim without a lock file: %v", err)
	}
	if err := writeNew(path, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	mustClaim(t, f, "GPU-a")
}
