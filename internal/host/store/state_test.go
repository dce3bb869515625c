package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/gate"
)

// readView returns the View of a decision, without a claim.
func readView(t *testing.T, f *Folder, boot string) View {
	t.Helper()
	var seen View
	_, err := f.Claim(boot, nil, func(v View) (job.Lease, error) { seen = v; return job.Lease{}, errBusy })
	if !errors.Is(err, errBusy) {
		t.Fatal(err)
	}
	return seen
}

func TestChangesAreNewerThanReadings(t *testing.T) {
	f := newStateFolder(t)
	since := f.Generation(testBoot)
	if v := readView(t, f, testBoot); v.Unknown || len(v.Changes) != 0 {
		t.Errorf("in a new folder: %+v", v)
	}
	h := mustClaim(t, f, "GPU-a")
	v := readView(t, f, testBoot)
	claimed := v.Changes["GPU-a"]
	if claimed.Generation <= since || claimed.Ended != 0 || v.Changes["GPU-b"].Generation != 0 {
		t.Errorf("after a claim: %+v, reading %d", v.Changes, since)
	}
	since = f.Generation(testBoot)
	if since != v.Generation || since < claimed.Generation {
		t.Errorf("the count is %d, the decision saw %d and a change at %d", since, v.Generation, claimed.Generation)
	}

	_ = h.Lock.Close()
	before := bootTime()
	v = readView(t, f, testBoot)
	ended := v.Changes["GPU-a"]
	if ended.Generation <= since || ended.Ended < before || ended.Ended > v.Now {
		t.Errorf("after the end: %+v, reading %d", ended, since)
	}
	if again := readView(t, f, testBoot); again.Generation != v.Generation || again.Changes["GPU-a"] != ended {
		t.Errorf("the end is observed a second time: %+v, first %+v", again.Changes, v.Changes)
	}
	if gone, err := f.EndIfUnheld(h.Lease, testBoot); !gone || err != nil {
		t.Error(gone, err)
	}
	if again := readView(t, f, testBoot); again.Generation != v.Generation || again.Changes["GPU-a"] != ended {
		t.Errorf("End counts an end that was observed: %+v, first %+v", again.Changes, v.Changes)
	}
}

func TestEndCountsOnce(t *testing.T) {
	for _, by := range []string{"End", "Release"} {
		f := newStateFolder(t)
		h := mustClaim(t, f, "GPU-a")
		start := f.Generation(testBoot)
		var err error
		if by == "End" {
			_ = h.Lock.Close()
			_, err = f.EndIfUnheld(h.Lease, testBoot)
		} else {
			err = f.Release(h.Lease, testBoot)
		}
		if err != nil {
			t.Fatal(err)
		}
		v := readView(t, f, testBoot)
		if v.Generation != start+1 || v.Changes["GPU-a"].Ended == 0 {
			t.Errorf("%s: generation %d after %d, %+v", by, v.Generation, start, v.Changes)
		}
	}
}

func TestEndOfUnreadableLeaseIsKnown(t *testing.T) {
	f := newStateFolder(t)
	h := mustClaim(t, f, "GPU-a")
	if err := os.Remove(filepath.Join(f.userFolder(ownUID()), entryNameOf(&h.Lease)+jsonSuffix)); err != nil {
		t.Fatal(err)
	}
	readView(t, f, testBoot)
	_ = h.Lock.Close()
	if v := readView(t, f, testBoot); v.Changes["GPU-a"].Ended == 0 {
		t.Errorf("the end is not known: %+v", v.Changes)
	}
}

func TestGarbageInTheLockFile(t *testing.T) {
	huge := fmt.Sprintf(`{"generation":18446744073709551615,"boot":%q,"devices":{"GPU-a":{"generation":18446744073709551615}}}`, testBoot)
	many := `{"generation":1,"boot":"` + testBoot + `","live":{"1/aaaa":[` + strings.Repeat(`"GPU-x",`, 20000) + `"GPU-x"]}}`
	for name, garbage := range map[string]string{
		"text": "hello", "zeros": "\x00\x00", "cut JSON": `{"generation":7,`, "a list": "[1,2]", "null": "null", "wrong types": `{"devices":3}`,
		"a count at its end": huge, "large": strings.Repeat(" ", maxStateSize+5), "many devices": many,
		"null inside": fmt.Sprintf(`{"generation":1,"boot":%q,"devices":null,"live":null}`, testBoot),
	} {
		f := newStateFolder(t)
		since := f.Generation(testBoot)
		h := mustClaim(t, f, "GPU-a")
		if err := os.WriteFile(filepath.Join(f.Path, "lock"), []byte(garbage), 0o600); err != nil {
			t.Fatal(err)
		}
		v := readView(t, f, testBoot)
		if len(v.Held) != 1 || v.Held[0].ID != h.Lease.ID {
			t.Errorf("%s: held %+v", name, v.Held)
		}
		if inside := name == "null inside" || name == "many devices"; v.Unknown == inside {
			t.Errorf("%s: unknown is %v", name, v.Unknown)
		}
		mustClaim(t, f, "GPU-b")
		if v = readView(t, f, testBoot); v.Unknown {
			t.Errorf("%s: still unknown after a claim", name)
		}
		if name != "null inside" && name != "many devices" && v.Changes["GPU-b"].Generation <= since {
			t.Errorf("%s: a claim after it has generation %d, a reading before it %d", name, v.Changes["GPU-b"].Generation, since)
		}
	}
}

func TestStateIsTruncated(t *testing.T) {
	f := newStateFolder(t)
	h, err := f.Claim(testBoot, nil, func(View) (job.Lease, error) {
		return job.Lease{Devices: toUUIDs([]string{"GPU-a", "GPU-b", "GPU-c", "GPU-d"})}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	long := f.stateLength(t)
	if err := errors.Join(h.Lock.Close(), f.writeState(lockState{Boot: testBoot})); err != nil {
		t.Fatal(err)
	}
	if short := f.stateLength(t); short >= long {
		t.Errorf("%d bytes after %d", short, long)
	}
	if _, complete := f.readState(testBoot); !complete {
		t.Error("a shorter record cannot be read")
	}
}

func (f *Folder) stateLength(t *testing.T) int64 {
	t.Helper()
	info, err := os.Stat(filepath.Join(f.Path, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func TestStateStaysSmall(t *testing.T) {
	f := newStateFolder(t)
	s, _ := f.readState(testBoot)
	for i := range 3000 {
		s.Generation++
		s.Devices[gpu.UUID(fmt.Sprintf("MIG-%036d", i))] = Change{s.Generation, bootTime()}
	}
	if err := f.writeState(s); err != nil {
		t.Fatal(err)
	}
	back, complete := f.readState(testBoot)
	if _, newest := back.Devices[gpu.UUID(fmt.Sprintf("MIG-%036d", 2999))]; !complete || !newest || len(back.Devices) > maxDevicesRecorded {
		t.Errorf("read back: %d devices, the newest among them: %v, complete: %v", len(back.Devices), newest, complete)
	}
	for i := range 3000 {
		s.Live[fmt.Sprint("1/", i)] = toUUIDs([]string{strings.Repeat("x", maxDeviceIDLength)})
	}
	if err := f.writeState(s); err != nil {
		t.Fatal(err)
	}
	if _, complete := f.readState(testBoot); complete || f.stateLength(t) > 100 {
		t.Errorf("a record above its limit: complete %v, %d bytes", complete, f.stateLength(t))
	}
}

func TestAnotherBoot(t *testing.T) {
	f := newStateFolder(t)
	_ = mustClaim(t, f, "GPU-a").Lock.Close()
	readView(t, f, testBoot)
	v := readView(t, f, "boot-2")
	if !v.Unknown || len(v.Changes) != 0 || len(v.Held) != 0 {
		t.Errorf("after a reboot: %+v", v)
	}
	if v := readView(t, f, "boot-2"); v.Unknown {
		t.Error("still unknown at the second look")
	}
}

func TestTouch(t *testing.T) {
	f := newStateFolder(t)
	h := mustClaim(t, f, "GPU-a")
	old := time.Now().Add(-40 * 24 * time.Hour)
	pair := filepath.Join(f.userFolder(ownUID()), entryNameOf(&h.Lease))
	files := []string{pair + lockSuffix, pair + jsonSuffix, f.userFolder(ownUID()), f.Path + "/lock", f.Path + "/format", f.Path + "/leases", f.Path + "/tickets", f.Path}
	for _, p := range files {
		if err := os.Chtimes(p, old, old); err != nil {
			t.Fatal(err)
		}
	}
	f.TouchLease(h.Lease)
	for _, p := range files {
		if info, err := os.Lstat(p); err != nil || time.Since(info.ModTime()) > time.Hour {
			t.Errorf("%s is still old (%v)", p, err)
		}
	}
}

// TestGenerationOfATornRecord: a record that is being written counts as older than every change, never as newer.
func TestGenerationOfATornRecord(t *testing.T) {
	f := newStateFolder(t)
	const boot = "boot"
	if _, err := f.Claim(boot, nil, claimFirstFree("GPU-0")); err != nil {
		t.Fatal(err)
	}
	whole := f.Generation(boot)
	if whole == 0 {
		t.Fatal("a claim has not been counted")
	}
	path := filepath.Join(f.Path, "lock")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, int64(len(data)/2)); err != nil {
		t.Fatal(err)
	}
	if torn := f.Generation(boot); torn >= whole {
		t.Errorf("a torn record counts as generation %d, after %d", torn, whole)
	}
}

// TestCrowdIsNamed: a user who fills leases/ or tickets/ with folders is named.
func TestCrowdIsNamed(t *testing.T) {
	gate.Need(t, "privileged")
	for _, sub := range []string{"leases", "tickets"} {
		f := newFolderInMemory(t)
		for i := range crowdThreshold {
			path := filepath.Join(f.Path, sub, fmt.Sprint(100_000+i))
			if err := errors.Join(os.Mkdir(path, 0o755), os.Chown(path, 4242, 4242)); err != nil {
				t.Fatal(err)
			}
			if i == crowdThreshold/2 {
				if _, uid, n := f.FindCrowdingUser(); n != 0 {
					t.Errorf("%d folders of uid %d are no crowd yet", n, uid)
				}
			}
		}
		if top, uid, n := f.FindCrowdingUser(); uid != 4242 || n < crowdThreshold || top != filepath.Join(f.Path, sub) {
			t.Errorf("the crowd is %d folders of uid %d in %s", n, uid, top)
		}
	}
}
