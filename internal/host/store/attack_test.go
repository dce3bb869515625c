package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/gate"
)

// roleDo VERB ARGUMENTS…: does one thing to files of another user, prints the result and waits.
func roleDo(args []string) error {
	lock := func(flags, kind int) error {
		fd, err := unix.Open(args[1], flags|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: int16(kind)})
	}
	verbs := map[string]func() error{
		"remove":          func() error { return os.Remove(args[1]) },
		"rename":          func() error { return os.Rename(args[1], args[2]) },
		"overwrite":       func() error { return os.WriteFile(args[1], []byte("{}"), 0o600) },
		"truncate":        func() error { return os.Truncate(args[1], 0) },
		"create":          func() error { return writeNew(args[1], nil, 0o644) },
		"chmod":           func() error { return os.Chmod(args[1], 0o777) },
		"mkdir":           func() error { return os.Mkdir(args[1], 0o777) },
		"symlink":         func() error { return os.Symlink(args[1], args[2]) },
		"link":            func() error { return os.Link(args[1], args[2]) },
		"read-lock":       func() error { return lock(unix.O_RDONLY, unix.F_RDLCK) },
		"write-lock":      func() error { return lock(unix.O_RDWR, unix.F_WRLCK) },
		"write-lock-read": func() error { return lock(unix.O_RDONLY, unix.F_WRLCK) },
		"crowd": func() error {
			for i := range 4200 {
				if err := os.Mkdir(fmt.Sprintf("%s/%d", args[1], 100000+i), 0o755); err != nil {
					return err
				}
			}
			return nil
		},
	}
	if err := verbs[args[0]](); err != nil {
		fmt.Println("failed:", err)
		return nil
	}
	fmt.Println("done")
	waitForEOF()
	return nil
}

// startDeed lets uid do one thing and returns the actor, which still runs.
func startDeed(t *testing.T, uid uint32, args ...string) *roleProcess {
	t.Helper()
	a := startRole(t, uid, "do", args...)
	a.expectLine("done")
	return a
}

// startVictim is a live lease of alice in a folder that belongs to root.
func startVictim(t *testing.T, f *Folder) (a *roleProcess, pair string, l job.Lease) {
	t.Helper()
	a = startRole(t, aliceUID, "claim", f.Path, "5s", "GPU-a")
	a.expectLine("claimed ")
	l = onlyLease(t, f)
	return a, filepath.Join(f.userFolder(aliceUID), entryNameOf(&l)), l
}

// onlyLease returns the one live lease.
func onlyLease(t *testing.T, f *Folder) job.Lease {
	t.Helper()
	leases, _ := f.Leases()
	if len(leases) != 1 {
		t.Fatalf("leases %+v, want one", leases)
	}
	return leases[0]
}

func TestStrangerCannotTouchALease(t *testing.T) {
	gate.Need(t, "root")
	f := newStateFolder(t)
	_, pair, l := startVictim(t, f)
	folder := f.userFolder(aliceUID)
	for _, file := range []string{pair + lockSuffix, pair + jsonSuffix} {
		for _, act := range [][]string{
			{"remove", file},
			{"rename", file, file + "2"},
			{"rename", file, filepath.Join(f.Path, "stolen")},
			{"overwrite", file},
			{"truncate", file},
			{"chmod", file},
			{"write-lock", file},
			{"write-lock-read", file},
			{"link", file, filepath.Join(f.Path, "linked")},
		} {
			startRole(t, bobUID, "do", act...).expectLine("failed:")
		}
	}
	for _, act := range [][]string{
		{"create", filepath.Join(folder, "aaaa-00000000.lock")},
		{"remove", folder},
		{"rename", folder, filepath.Join(f.Path, "leases", "moved")},
		{"chmod", folder},
		{"remove", filepath.Join(f.Path, "lock")},
		{"rename", filepath.Join(f.Path, "lock"), filepath.Join(f.Path, "lock2")},
		{"remove", filepath.Join(f.Path, "format")},
		{"overwrite", filepath.Join(f.Path, "format")},
		{"rename", filepath.Join(f.Path, "leases"), filepath.Join(f.Path, "leases2")},
		{"rename", f.Path, f.Path + "2"},
	} {
		startRole(t, bobUID, "do", act...).expectLine("failed:")
	}
	if after := onlyLease(t, f); after.ID != l.ID || after.Unreadable || after.UID != aliceUID || !after.Holds("GPU-a") {
		t.Errorf("after all that: %+v", after)
	}
	if said := startRole(t, bobUID, "claim", f.Path, "5s", "GPU-a").readLine(); said != "error: busy" {
		t.Errorf("bob's claim of alice's device: %s", said)
	}
}

func TestReadLocksChangeNothing(t *testing.T) {
	gate.Need(t, "root")
	f := newStateFolder(t)
	a, pair, l := startVictim(t, f)
	startDeed(t, bobUID, "read-lock", pair+jsonSuffix)
	// A reader of the live lock file waits or fails; the lease stays alive.
	startRole(t, bobUID, "do", "read-lock", pair+lockSuffix).expectLine("failed:")
	if onlyLease(t, f).ID != l.ID {
		t.Error("the lease is not the same any more")
	}
	a.kill()
	startDeed(t, bobUID, "read-lock", pair+lockSuffix)
	if leases, _ := f.Leases(); len(leases) != 0 {
		t.Errorf("a reader's lock makes a dead lease look alive: %+v", leases)
	}
	startRole(t, aliceUID, "claim", f.Path, "5s", "GPU-a").expectLine("claimed ")
	if onlyLease(t, f).UID != aliceUID {
		t.Error("alice did not get her device back")
	}
}

// roleHostile PATH ALICE'S-CONTENT: everything that bob can put into his own folder.
func roleHostile(args []string) error {
	dir := filepath.Join(args[0], "leases", strconv.Itoa(os.Geteuid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	stolen, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	live := func(name string) error {
		lock, err := newLock(at(name+lockSuffix), nil)
		if err == nil {
			_, err = unix.FcntlInt(lock.Fd(), unix.F_DUPFD_CLOEXEC, 100) // stays open
		}
		return err
	}
	leased := func(name string) error {
		fd, err := unix.Open(at(name), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
		if err != nil {
			return err
		}
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK)
		return err
	}
	if err := errors.Join(
		unix.Mkfifo(at("fifo-00000001.lock"), 0o666),
		os.Symlink("/dev/zero", at("link-00000002.lock")),
		os.Mkdir(at("dirs-00000003.lock"), 0o755),
		os.WriteFile(at("none-00000004.lock"), nil, 0),
		os.Chmod(at("none-00000004.lock"), 0),
		leased("held-00000005.lock"),
		live("fjsn-00000006"), unix.Mkfifo(at("fjsn-00000006.json"), 0o666),
		live("huge-00000007"), writeNew(at("huge-00000007.json"), nil, 0o644), os.Truncate(at("huge-00000007.json"), 10<<30),
		live("hold-00000008"), leased("hold-00000008.json"),
		live("copy-00000009"), os.WriteFile(at("copy-00000009.json"), stolen, 0o600), os.Chmod(at("copy-00000009.json"), 0o644),
		live("gone-0000000a"), os.WriteFile(at("gone-0000000a.json"), stolen, 0),
		os.WriteFile(at("two\nlines\x1b[2J.lock"), nil, 0o600),
		os.WriteFile(at("dead-0000000b.lock"), nil, 0o600), os.Truncate(at("dead-0000000b.lock"), 10<<30), os.Chmod(at("dead-0000000b.lock"), 0o644),
		os.Symlink(filepath.Join(args[0], "leases", strconv.Itoa(aliceUID)), filepath.Join(args[0], "leases", "77")),
		os.WriteFile(filepath.Join(args[0], "leases", "file"), nil, 0o600),
		os.Mkdir(filepath.Join(args[0], "leases", "0"+strconv.Itoa(bobUID)), 0o755),
		os.Mkdir(filepath.Join(args[0], "leases", "78"), 0o755),
	); err != nil {
		return err
	}
	fmt.Println("ready")
	waitForEOF()
	return nil
}

func TestHostileEntries(t *testing.T) {
	gate.Need(t, "root")
	f := newStateFolder(t)
	_, pair, l := startVictim(t, f)
	startRole(t, bobUID, "hostile", f.Path, pair+jsonSuffix).expectLine("ready")

	var leases []job.Lease
	var problems []Problem
	checkWithinSecond(t, "reading", func() { leases, problems = f.Leases() })
	ids := map[string]job.Lease{}
	for _, l := range leases {
		ids[l.ID] = l
	}
	if ids[l.ID].UID != aliceUID || ids[l.ID].Unreadable {
		t.Errorf("alice's lease is %+v", ids[l.ID])
	}
	for _, id := range []string{"fjsn", "huge", "hold", "copy"} { // alive with bad content: busy, against bob
		if e := ids[id]; e.UID != bobUID || !e.Unreadable || len(e.Devices) > 0 {
			t.Errorf("%s is %+v", id, e)
		}
	}
	for _, id := range []string{"fifo", "link", "dirs", "held", "dead"} {
		if e, counted := ids[id]; counted {
			t.Errorf("%s counts: %+v", id, e)
		}
	}
	inBobs := []string{
		"fifo-00000001.lock", "link-00000002.lock", "dirs-00000003.lock", "held-00000005.lock", "fjsn-00000006.lock",
		"huge-00000007.lock", "hold-00000008.lock", "copy-00000009.lock", "two\nlines\x1b[2J.lock",
	}
	for _, name := range append(inBobs, "../77", "../file", "../0"+strconv.Itoa(bobUID), "../78") {
		path := filepath.Join(f.userFolder(bobUID), name)
		i := slices.IndexFunc(problems, func(p Problem) bool { return p.Path == path })
		if i < 0 || problems[i].UID != bobUID {
			t.Errorf("%q is not reported against bob: %v", name, problems)
		}
	}

	// Alice may read less than root. She is neither stopped nor delayed either.
	said := checkRoleWithinSecond(t, aliceUID, "list", f.Path)
	if !strings.Contains(said, "lease "+l.ID) || !strings.Contains(said, `problem 4002 "`+f.userFolder(bobUID)+`/none-00000004.lock"`) {
		t.Errorf("alice sees %s", said)
	}
	startRole(t, aliceUID, "claim", f.Path, "1s", "GPU-a", "GPU-b").expectLine("claimed ")
	mustClaim(t, f, "GPU-c")
}

func TestTooManyEntries(t *testing.T) {
	gate.Need(t, "root")
	f := newStateFolder(t)
	startVictim(t, f)
	dir := f.userFolder(bobUID)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		lock, err := newLock(fmt.Sprintf("%s/bbbb%03d-%08d.lock", dir, i, i), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = lock.Close() })
		if err := lock.Chown(bobUID, bobUID); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(dir, bobUID, bobUID); err != nil {
		t.Fatal(err)
	}
	var leases []job.Lease
	var problems []Problem
	checkWithinSecond(t, "reading", func() { leases, problems = f.Leases() })
	of := map[uint32]int{}
	for _, l := range leases {
		of[l.UID]++
	}
	if of[aliceUID] != 1 || of[bobUID] != 300 {
		t.Errorf("leases by uid: %v", of)
	}
	if i := slices.IndexFunc(problems, func(p Problem) bool { return strings.Contains(p.Text, "more than 256") }); i < 0 || problems[i].UID != bobUID || len(problems) > 30 {
		t.Errorf("%d problems, the limit is told at %d", len(problems), i)
	}
	startRole(t, aliceUID, "claim", f.Path, "1s", "GPU-b").expectLine("claimed ")
}

// checkWithinSecond fails if do takes more than a second in each of five tries: one slow try may be due to a busy machine.
func checkWithinSecond(t testing.TB, what string, do func()) {
	t.Helper()
	var took time.Duration
	for range 5 {
		began := time.Now()
		do()
		if took = time.Since(began); took <= time.Second {
			return
		}
	}
	t.Errorf("%s took %s", what, took)
}

// checkRoleWithinSecond is the same for a role that says how long it took.
func checkRoleWithinSecond(t *testing.T, uid uint32, role string, args ...string) (said string) {
	t.Helper()
	for range 5 {
		said = startRole(t, uid, role, args...).endAndRead()
		_, took, _ := strings.Cut(said, "took ")
		if d, err := time.ParseDuration(took); err == nil && d <= time.Second {
			return said
		}
	}
	t.Errorf("%s says %s", role, said)
	return said
}

// newFolderInMemory is a new state folder on a file system like that of /run, which is quicker than a disk.
func newFolderInMemory(t testing.TB) *Folder {
	t.Helper()
	dir := makeSharedFolder(t)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if err := CreateFolder(filepath.Join(dir, "state")); err != nil {
		t.Fatal(err)
	}
	return mustOpen(t, filepath.Join(dir, "state"))
}

// Entries that come first in the folder must not keep a lease from being read.
func TestCrowdDoesNotHideALease(t *testing.T) {
	gate.Need(t, "privileged")
	f := newFolderInMemory(t)
	startDeed(t, bobUID, "crowd", filepath.Join(f.Path, "leases"))
	_, _, l := startVictim(t, f)
	checkWithinSecond(t, "the claim", func() {
		if _, err := f.Claim(testBoot, nil, claimFirstFree("GPU-a")); !errors.Is(err, errBusy) {
			t.Errorf("claim of alice's device: %v", err)
		}
	})
	leases, problems := f.Leases()
	if len(leases) != 1 || leases[0].ID != l.ID {
		t.Errorf("leases %+v", leases)
	}
	if len(problems) == 0 || len(problems) > 100 || problems[0].UID != bobUID {
		t.Errorf("%d problems", len(problems))
	}
}

func TestTakenName(t *testing.T) {
	gate.Need(t, "root")
	for _, how := range []string{"folder", "link"} {
		f := newStateFolder(t)
		name, home := f.userFolder(aliceUID), filepath.Join(makeSharedFolder(t), "home")
		if err := errors.Join(os.Mkdir(home, 0o755), os.WriteFile(home+"/aaaa-00000000.json", nil, 0o600), os.Chown(home, aliceUID, aliceUID)); err != nil {
			t.Fatal(err)
		}
		if how == "folder" {
			startDeed(t, bobUID, "mkdir", name)
		} else {
			startDeed(t, bobUID, "symlink", home, name)
		}
		said := startRole(t, aliceUID, "claim", f.Path, "5s", "GPU-a").readLine()
		if !strings.Contains(said, "belongs to uid 4002") || !strings.Contains(said, "sudo rm -r") {
			t.Errorf("a %s with alice's name: %s", how, said)
		}
		if left, _ := os.ReadDir(home); len(left) != 1 {
			t.Errorf("a %s with alice's name: in her home is now %v", how, left)
		}
		if leases, problems := f.Leases(); len(leases) != 0 || len(problems) != 1 || problems[0].UID != bobUID {
			t.Errorf("a %s with alice's name: leases %v, problems %v", how, leases, problems)
		}
		startRole(t, bobUID, "claim", f.Path, "5s", "GPU-a").expectLine("claimed ")
	}
}

// Root sweeps the dead entries of others: bob must not be able to point it at alice's.
func TestSweepFollowsNoLink(t *testing.T) {
	gate.Need(t, "root")
	f := newStateFolder(t)
	_, pair, l := startVictim(t, f)
	startDeed(t, bobUID, "symlink", f.userFolder(aliceUID), f.userFolder(bobUID))
	if err := f.dropPair(&job.Lease{UID: bobUID}, filepath.Base(pair)); err == nil {
		t.Error("removed through a link")
	}
	if err := f.Release(job.Lease{ID: l.ID, UID: bobUID, Devices: l.Devices}, testBoot); err == nil {
		t.Error("released through a link")
	}
	if onlyLease(t, f).Unreadable {
		t.Error("the content is gone")
	}
}

// A dead entry of bob with the name of a live one of alice does not change hers.
func TestSameNameInAnotherFolder(t *testing.T) {
	gate.Need(t, "root")
	f := newStateFolder(t)
	a, pair, l := startVictim(t, f)
	startDeed(t, bobUID, "mkdir", f.userFolder(bobUID))
	startDeed(t, bobUID, "create", filepath.Join(f.userFolder(bobUID), filepath.Base(pair)+lockSuffix))
	second := startRole(t, aliceUID, "claim", f.Path, "5s", "GPU-b")
	second.expectLine("claimed ")
	mustClaim(t, f, "GPU-c") // root's claim, which sweeps the files of all users
	leases, problems := f.Leases()
	if len(leases) != 3 || len(problems) > 0 {
		t.Errorf("leases %+v, problems %v", leases, problems)
	}
	if _, err := os.Lstat(filepath.Join(f.userFolder(bobUID), filepath.Base(pair)+lockSuffix)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("root did not sweep bob's dead entry: %v", err)
	}
	if i := slices.IndexFunc(leases, func(o job.Lease) bool { return o.ID == l.ID }); i < 0 || leases[i].Unreadable {
		t.Errorf("alice's lease among %+v", leases)
	}
	a.kill()
}

// A user who may write the folder lock may link it into their own folder. Closing any descriptor of it would drop the
// lock.
func TestSecondNameOfTheFolderLock(t *testing.T) {
	gate.Need(t, "root")
	for _, name := range []string{"link-00000001.lock", "last", "fine-00000001.json"} {
		f := newStateFolder(t)
		dir := f.userFolder(bobUID)
		if name == "last" {
			dir = f.userFolder(0) // as if it were root's own
		}
		startDeed(t, bobUID, "mkdir", dir)
		startDeed(t, bobUID, "link", filepath.Join(f.Path, "lock"), filepath.Join(dir, name))
		if strings.HasSuffix(name, jsonSuffix) {
			lock, err := newLock(filepath.Join(dir, "fine-00000001.lock"), nil)
			if err != nil || lock.Chown(bobUID, bobUID) != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = lock.Close() })
		}
		var seen []Problem
		_, err := f.Claim(testBoot, nil, func(v View) (job.Lease, error) {
			seen = v.Problems
			f.Leases() // as another goroutine of this process may at any time
			if holder := lockHolder(t, f.Path); holder != strconv.Itoa(os.Getpid()) {
				t.Errorf("%s: during the claim the folder lock is held by %s, want us", name, holder)
			}
			return job.Lease{}, errBusy
		})
		if !errors.Is(err, errBusy) {
			t.Error(err)
		}
		if len(seen) == 0 || seen[0].UID != bobUID {
			t.Errorf("%s: problems %v, want one against bob", name, seen)
		}
		if holder := lockHolder(t, f.Path); holder != "0" {
			t.Errorf("%s: afterwards the lock is held by %s", name, holder)
		}
	}
}

// A file system that users mount in their own folder may never answer, so gpuard does not enter it.
func TestMountIsNotEntered(t *testing.T) {
	gate.Need(t, "privileged")
	f := newStateFolder(t)
	_, _, l := startVictim(t, f)
	dir := f.userFolder(bobUID)
	file := filepath.Join(f.userFolder(3999), "some-00000001.lock")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Mkdir(filepath.Dir(file), 0o755), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for target, source := range map[string]string{dir: "tmpfs", file: "/proc/version"} {
		fs, flags := "tmpfs", uintptr(0)
		if source != "tmpfs" {
			fs, flags = "", unix.MS_BIND
		}
		if err := unix.Mount(source, target, fs, flags, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
	}
	if onlyLease(t, f).ID != l.ID {
		t.Error("alice's lease is gone")
	}
	_, problems := f.Leases()
	if len(problems) != 2 || problems[1].UID != bobUID || problems[0].UID != 3999 {
		t.Errorf("problems %v, want one for each mount", problems)
	}
}

func TestLockKeptByAnotherUser(t *testing.T) {
	gate.Need(t, "root")
	f := newStateFolder(t)
	a := startRole(t, bobUID, "lock", f.Path, "posix")
	pid := a.expectLine("locked ")
	said := startRole(t, aliceUID, "claim", f.Path, "150ms", "GPU-a").readLine()
	if !strings.Contains(said, "process "+pid+" has kept") {
		t.Errorf("alice's claim while bob (%s) keeps the lock: %s", pid, said)
	}
	a.kill()
	startRole(t, aliceUID, "claim", f.Path, "5s", "GPU-a").expectLine("claimed ")
}

// fs.protected_regular refuses O_CREAT on a file of another user in a sticky folder. Only privileged tests switch it
// on.
func TestProtectedRegular(t *testing.T) {
	gate.Need(t, "root")
	const setting = "/proc/sys/fs/protected_regular"
	if old, err := os.ReadFile(setting); err == nil && os.Getenv("GPUARD_GATES") != "" && os.WriteFile(setting, []byte("2"), 0o600) == nil {
		t.Cleanup(func() { _ = os.WriteFile(setting, old, 0o600) })
	}
	now, _ := os.ReadFile(setting)
	t.Logf("%s is %s", setting, strings.TrimSpace(string(now)))
	f := newStateFolder(t)
	got := map[string]bool{}
	for _, uid := range []uint32{aliceUID, bobUID, 0, aliceUID, bobUID} {
		said := startRole(t, uid, "claim", f.Path, "5s", "0", "1", "2", "3", "4").expectLine("claimed ")
		got[strings.Fields(said)[1]] = true
	}
	if len(got) != 5 {
		t.Errorf("five claims of three users got %v", got)
	}
	leases, problems := f.Leases()
	if len(leases) != 5 || len(problems) > 0 {
		t.Errorf("leases %+v, problems %v", leases, problems)
	}
	if !slices.ContainsFunc(leases, func(l job.Lease) bool { return l.UID == bobUID && l.Holds(gpu.UUID("1")) }) {
		t.Errorf("bob's lease is not his: %+v", leases)
	}
}
