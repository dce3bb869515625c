package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

func TestClaimAndClose(t *testing.T) {
	f := newStateFolder(t)
	if f.HasClaimed() {
		t.Error("Claimed before any claim")
	}
	h := mustClaim(t, f, "GPU-a", "GPU-b")
	leases, problems := f.Leases()
	if len(leases) != 1 || len(problems) != 0 {
		t.Fatalf("after a claim: %+v, %v", leases, problems)
	}
	l := leases[0]
	if l.ID != h.Lease.ID || l.UID != ownUID() || l.Boot != testBoot || l.SinceBoot <= 0 || l.PID != os.Getpid() || !slices.Equal(l.Devices, []gpu.UUID{"GPU-a"}) {
		t.Errorf("recorded %+v, returned %+v", l, h.Lease)
	}
	if own, ok := f.Own(l.ID); !ok || own.ID != l.ID {
		t.Errorf("Own(%s) = %+v, %v", l.ID, own, ok)
	}
	if _, err := f.Claim(testBoot, nil, claimFirstFree("GPU-a")); !errors.Is(err, errBusy) {
		t.Errorf("decide's error arrives as %v", err)
	}
	second := mustClaim(t, f, "GPU-a", "GPU-b")
	if second.Lease.Devices[0] != "GPU-b" {
		t.Errorf("a second claim got %v", second.Lease.Devices)
	}
	if err := h.Lock.Close(); err != nil {
		t.Fatal(err)
	}
	if leases, _ := f.Leases(); len(leases) != 1 || leases[0].ID != second.Lease.ID {
		t.Errorf("after closing the first: %+v", leases)
	}
	third := mustClaim(t, f, "GPU-a")
	if got := leftoverFiles(t, f, ownUID()); len(got) != 4 || slices.ContainsFunc(got, func(n string) bool { return strings.HasPrefix(n, h.Lease.ID) }) {
		t.Errorf("the dead pair was not swept: %v", got)
	}
	if gone, err := f.EndIfUnheld(third.Lease, testBoot); gone || err != nil {
		t.Errorf("End while the lock is held: %v, %v", gone, err)
	}
	_ = third.Lock.Close()
	if gone, err := f.EndIfUnheld(third.Lease, testBoot); !gone || err != nil {
		t.Errorf("End: %v, %v", gone, err)
	}
	if err := f.Release(second.Lease, testBoot); err != nil {
		t.Error(err)
	}
	if leases, _ := f.Leases(); len(leases) != 0 || len(leftoverFiles(t, f, ownUID())) != 0 {
		t.Errorf("after End and Release: %+v, %v", leases, leftoverFiles(t, f, ownUID()))
	}
}

func TestViewAndLast(t *testing.T) {
	f := newStateFolder(t)
	h := mustClaim(t, f, "GPU-a")
	_, err := f.Claim(testBoot, nil, func(v View) (job.Lease, error) {
		if !slices.Equal(v.Last, []gpu.UUID{"GPU-a"}) || len(v.Held) != 1 || v.Now < v.Held[0].SinceBoot {
			t.Errorf("the view is %+v", v)
		}
		return job.Lease{}, nil
	})
	if err == nil || !strings.Contains(err.Error(), "no device") {
		t.Errorf("a lease of nothing: %v", err)
	}
	if err := f.RecordHolders(h.Lease, slices.Repeat([]job.Blocker{{PID: 1, User: "root", Command: strings.Repeat("x", 300)}}, 5000)); err != nil {
		t.Fatal(err)
	}
	if own, ok := f.Own(h.Lease.ID); !ok || !own.Ended || len(own.HeldBy) == 0 {
		t.Errorf("after Mark: %+v, %v", own, ok)
	}
	_ = h.Lock.Close()
	if err := f.RecordHolders(h.Lease, nil); err != nil || f.Release(h.Lease, testBoot) != nil {
		t.Error(err)
	}
	if err := f.RecordHolders(h.Lease, nil); err != nil || len(leftoverFiles(t, f, ownUID())) != 0 {
		t.Errorf("Mark of a lease that is gone: %v, %v", err, leftoverFiles(t, f, ownUID()))
	}
}

func TestManyDevices(t *testing.T) {
	f := newStateFolder(t)
	var devices []gpu.UUID
	for i := range 60 {
		devices = append(devices, gpu.UUID(fmt.Sprintf("MIG-%036d", i)))
	}
	h, err := f.Claim(testBoot, nil, func(View) (job.Lease, error) { return job.Lease{Devices: devices}, nil })
	if err != nil {
		t.Fatal(err)
	}
	if leases, problems := f.Leases(); len(leases) != 1 || !slices.Equal(leases[0].Devices, devices) || len(problems) > 0 {
		t.Errorf("%+v, %v", leases, problems)
	}
	content := filepath.Join(f.userFolder(ownUID()), entryNameOf(&h.Lease)+jsonSuffix)
	if err := os.Remove(content); err != nil {
		t.Fatal(err)
	}
	if leases, _ := f.Leases(); len(leases) != 1 || !leases[0].Holds("GPU-any") {
		t.Errorf("many devices, unreadable: %+v", leases)
	}
	_ = h.Lock.Close()
}

func TestIDsAreUnique(t *testing.T) {
	f := newStateFolder(t)
	seen := map[string]bool{}
	for i := range 200 {
		h := mustClaim(t, f, gpu.UUID(fmt.Sprint("GPU-", i)))
		if seen[h.Lease.ID] || !isEntryName(entryNameOf(&h.Lease)) {
			t.Fatalf("id %q came twice, or makes no entry name", h.Lease.ID)
		}
		seen[h.Lease.ID] = true
	}
	if leases, _ := f.Leases(); len(leases) != 200 {
		t.Errorf("%d leases of 200 are alive", len(leases))
	}
}

func TestLimitOfLeases(t *testing.T) {
	f := newStateFolder(t)
	for i := range maxEntriesPerUser {
		mustClaim(t, f, gpu.UUID(fmt.Sprint("GPU-", i)))
	}
	if _, err := f.Claim(testBoot, nil, claimFirstFree("GPU-one-more")); err == nil || !strings.Contains(err.Error(), "limit") {
		t.Errorf("one lease above the limit: %v", err)
	}
	if leases, problems := f.Leases(); len(leases) != maxEntriesPerUser || len(problems) > 0 {
		t.Errorf("%d leases, problems %v", len(leases), problems)
	}
}

// Dead entries must not use up the limit of entries that are read.
func TestDeadEntriesDoNotHideLiveOnes(t *testing.T) {
	f := newStateFolder(t)
	h := mustClaim(t, f, "GPU-a")
	for i := range 2 * maxEntriesPerUser {
		name := fmt.Sprintf("%s/aaaa%03d-00000000%s", f.userFolder(ownUID()), i, lockSuffix)
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if leases, _ := f.Leases(); len(leases) != 1 || leases[0].ID != h.Lease.ID {
		t.Fatalf("behind dead entries: %+v", leases)
	}
	if _, err := f.Claim(testBoot, nil, claimFirstFree("GPU-a")); !errors.Is(err, errBusy) {
		t.Errorf("a device behind dead entries was given again: %v", err)
	}
	if got := leftoverFiles(t, f, ownUID()); len(got) != 2 {
		t.Errorf("%d files after the sweep, want the pair", len(got))
	}
}

// TestCrowdOfOnesOwn: however many files their owner put before it, live, dead or none of gpuard's, a lease counts, and
// its device is not leased again. Their owner gets no further lease.
func TestCrowdOfOnesOwn(t *testing.T) {
	f := newStateFolder(t)
	h := mustClaim(t, f, "GPU-a")
	dir := f.userFolder(ownUID())
	for i := range 1600 {
		if err := os.WriteFile(fmt.Sprintf("%s/other%04d", dir, i), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i := range maxEntriesPerUser {
		live, err := newLock(fmt.Sprintf("%s/aaaa%04d-%08x%s", dir, i, i, lockSuffix), nil)
		dead := os.WriteFile(fmt.Sprintf("%s/aaab%04d-%08x%s", dir, i, i, lockSuffix), nil, 0o600)
		if err := errors.Join(err, dead); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = live.Close() })
	}
	leases, problems := f.Leases()
	if len(leases) != maxEntriesPerUser+1 || !slices.ContainsFunc(leases, func(l job.Lease) bool { return l.ID == h.Lease.ID && l.Holds("GPU-a") }) {
		t.Errorf("%d leases, %s not among them", len(leases), h.Lease.ID)
	}
	if last := problems[len(problems)-1]; last.UID != ownUID() || !strings.Contains(last.Text, "more than 256 leases") {
		t.Errorf("problems %v", problems)
	}
	seen, err := f.ReadSight(testBoot)
	if err != nil || !seen.Leased[job.DeviceHash("GPU-a")] {
		t.Errorf("without the folder lock %s is not leased: %v", h.Lease.ID, err)
	}
	if _, err := f.Claim(testBoot, nil, claimFirstFree("GPU-a")); !errors.Is(err, errBusy) {
		t.Errorf("its device was given again: %v", err)
	}
	if _, err := f.Claim(testBoot, nil, claimFirstFree("GPU-b")); err == nil || !strings.Contains(err.Error(), "limit") {
		t.Errorf("one more lease: %v", err)
	}
}

func TestUnreadableContentKeepsDevicesBusy(t *testing.T) {
	tests := []struct {
		name  string
		write func(path string, l job.Lease) error
	}{
		{"missing", func(p string, _ job.Lease) error { return os.Remove(p) }},
		{"empty", func(p string, _ job.Lease) error { return os.Truncate(p, 0) }},
		{"not JSON", func(p string, _ job.Lease) error { return os.WriteFile(p, []byte("{"), 0o600) }},
		{"huge", func(p string, _ job.Lease) error { return os.Truncate(p, 10<<30) }},
		{"a folder", func(p string, _ job.Lease) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o700)) }},
		{"a FIFO", func(p string, _ job.Lease) error { return errors.Join(os.Remove(p), unix.Mkfifo(p, 0o600)) }},
		{"a link", func(p string, _ job.Lease) error { return errors.Join(os.Remove(p), os.Symlink("/dev/zero", p)) }},
		{"other devices", func(p string, l job.Lease) error { l.Devices = []gpu.UUID{"GPU-b"}; return rewriteLease(p, l) }},
		{"another id", func(p string, l job.Lease) error { l.ID = "zzzz"; return rewriteLease(p, l) }},
		{"no devices", func(p string, l job.Lease) error { l.Devices = nil; return rewriteLease(p, l) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newStateFolder(t)
			h := mustClaim(t, f, "GPU-a")
			if err := tt.write(filepath.Join(f.userFolder(ownUID()), entryNameOf(&h.Lease)+jsonSuffix), h.Lease); err != nil {
				t.Fatal(err)
			}
			leases, problems := f.Leases()
			if len(leases) != 1 || !leases[0].Unreadable || !leases[0].Holds("GPU-a") || leases[0].Holds("GPU-b") || leases[0].UID != ownUID() {
				t.Errorf("leases %+v", leases)
			}
			if len(problems) != 1 || problems[0].UID != ownUID() || !strings.Contains(problems[0].Text, "stay busy") {
				t.Errorf("problems %v", problems)
			}
			if _, err := f.Claim(testBoot, nil, claimFirstFree("GPU-a")); !errors.Is(err, errBusy) {
				t.Errorf("the device was given again: %v", err)
			}
			_ = h.Lock.Close()
			mustClaim(t, f, "GPU-a")
		})
	}
}

func rewriteLease(path string, l job.Lease) error {
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

func TestTwoLiveLeasesOnOneDevice(t *testing.T) {
	f := newStateFolder(t)
	both := func(View) (job.Lease, error) { return job.Lease{Devices: []gpu.UUID{"GPU-a"}}, nil }
	for range 2 {
		h, err := f.Claim(testBoot, nil, both)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = h.Lock.Close() })
	}
	if leases, _ := f.Leases(); len(leases) != 2 || !leases[0].Holds("GPU-a") || !leases[1].Holds("GPU-a") {
		t.Errorf("leases %+v, want both", leases)
	}
}

func TestOtherFoldersCount(t *testing.T) {
	dir := makeSharedFolder(t)
	one, two, broken := filepath.Join(dir, "one"), filepath.Join(dir, "two"), filepath.Join(dir, "broken")
	if err := errors.Join(CreateFolder(one), CreateFolder(two), os.Mkdir(broken, 0o777), os.Symlink(one, filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	others := []string{one, two, broken, filepath.Join(dir, "missing"), filepath.Join(dir, ".", "one")}
	f, g := mustOpen(t, one, others...), mustOpen(t, two, others...)
	mustClaim(t, f, "GPU-a")
	if _, err := g.Claim(testBoot, nil, claimFirstFree("GPU-a")); !errors.Is(err, errBusy) {
		t.Errorf("a lease in another folder does not count: %v", err)
	}
	mustClaim(t, g, "GPU-b")
	leases, problems := f.Leases()
	if len(leases) != 2 {
		t.Errorf("leases %+v, want each once", leases)
	}
	if len(problems) != 1 || problems[0].Path != broken {
		t.Errorf("problems %v, want one of the broken folder", problems)
	}
}

// Two folders have two locks; each claim must still see the other's lease.
func TestClaimsInTwoFoldersAtOnce(t *testing.T) {
	dir := makeSharedFolder(t)
	paths := []string{filepath.Join(dir, "one"), filepath.Join(dir, "two")}
	if err := errors.Join(CreateFolder(paths[0]), CreateFolder(paths[1])); err != nil {
		t.Fatal(err)
	}
	var inUse sync.Mutex
	var group sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for _, p := range paths {
		f := mustOpen(t, p, paths...)
		group.Go(func() {
			for range 150 {
				h, err := f.Claim(testBoot, nil, claimFirstFree("GPU-a"))
				if errors.Is(err, errBusy) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if !inUse.TryLock() {
					t.Error("two holders of one device")
				} else {
					time.Sleep(100 * time.Microsecond)
					inUse.Unlock()
				}
				_ = h.Lock.Close()
				mu.Lock()
				won++
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if won == 0 {
		t.Error("nobody ever got the device")
	}
}

func TestGoroutinesShareAFolder(t *testing.T) {
	f := newStateFolder(t)
	var group sync.WaitGroup
	var inUse [4]sync.Mutex
	devices := []gpu.UUID{"0", "1", "2", "3"}
	for range 16 {
		group.Go(func() {
			for range 10 {
				f.Generation(testBoot)
				h, err := f.Claim(testBoot, nil, claimFirstFree(devices...))
				if errors.Is(err, errBusy) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				i := slices.Index(devices, h.Lease.Devices[0])
				if !inUse[i].TryLock() {
					t.Error("two holders of one device")
					return
				}
				f.Leases()
				inUse[i].Unlock()
				_ = h.Lock.Close()
			}
		})
	}
	group.Wait()
}

// A lease that cannot be read, because no descriptor is free, must not make its device free.
func TestNoDescriptorsLeft(t *testing.T) {
	f := newStateFolder(t)
	mustClaim(t, f, "GPU-a")
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &old) })
	refused := 0
	for n := uint64(3); n < 40; n++ {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: old.Max}); err != nil {
			t.Fatal(err)
		}
		h, err := f.Claim(testBoot, nil, claimFirstFree("GPU-a"))
		if h != nil {
			t.Fatalf("with %d descriptors the device was given again", n)
		}
		if !errors.Is(err, errBusy) {
			refused++
		}
	}
	if refused == 0 {
		t.Error("no limit was low enough to test anything")
	}
}

// TestMarkAfterEntrust: a late holder does not mark a lease as ended that was entrusted to another process meanwhile.
func TestMarkAfterEntrust(t *testing.T) {
	f := newStateFolder(t)
	h := mustClaim(t, f, "GPU-a")
	if _, err := f.TransferLease(h.Lease, 1, 1, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.RecordHolders(h.Lease, []job.Blocker{{PID: 1}}); err != nil {
		t.Fatal(err)
	}
	if own, ok := f.Own(h.Lease.ID); !ok || own.Ended || own.PID != 1 {
		t.Errorf("after Mark: %+v, %v", own, ok)
	}
}

// TestEntrustReleased: a lease that was removed cannot be entrusted.
func TestEntrustReleased(t *testing.T) {
	f := newStateFolder(t)
	h := mustClaim(t, f, "GPU-a")
	if err := os.Remove(filepath.Join(f.userFolder(ownUID()), entryNameOf(&h.Lease)+lockSuffix)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.TransferLease(h.Lease, h.Lease.PID, h.Lease.Start, 0); !errors.Is(err, ErrReleased) {
		t.Errorf("entrusted: %v", err)
	}
}
