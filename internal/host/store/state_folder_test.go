package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/gate"
	"gpuard/internal/host/sys"
)

func TestCreateAtOnce(t *testing.T) {
	dir := makeSharedFolder(t)
	path := filepath.Join(dir, "state")
	var all []*roleProcess
	for range 20 {
		all = append(all, startRole(t, ownUID(), "create", path))
	}
	for _, a := range all {
		a.expectLine("ready")
	}
	for _, a := range all {
		_ = a.in.Close()
	}
	for _, a := range all {
		if rest := a.endAndRead(); rest != "" {
			t.Errorf("one of 20 that create at once says %q", rest)
		}
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 1 || names[0].Name() != "state" {
		t.Errorf("in the parent folder: %v, %v; want the state folder and nothing else", names, err)
	}
}

func TestCreateModes(t *testing.T) {
	for _, umask := range []int{0o077, 0, 0o027} {
		path := filepath.Join(makeSharedFolder(t), "state")
		old := unix.Umask(umask)
		err := CreateFolder(path)
		if err == nil {
			_, err = mustOpen(t, path).Claim(testBoot, nil, claimFirstFree("GPU-a"))
		}
		unix.Umask(old)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]uint32{
			"": 0o1777, "leases": 0o1777, "tickets": 0o1777, "lock": 0o666, "format": 0o644,
			filepath.Join("leases", filepath.Base(new(Folder).userFolder(ownUID()))): 0o755,
		} {
			var st unix.Stat_t
			if err := unix.Lstat(filepath.Join(path, name), &st); err != nil || st.Mode&0o7777 != want {
				t.Errorf("umask %03o: %q has mode %04o (%v), want %04o", umask, name, st.Mode&0o7777, err, want)
			}
		}
		files, _ := filepath.Glob(filepath.Join(path, "leases", "*", "*-*"))
		for _, file := range files {
			if info, err := os.Lstat(file); err != nil || info.Mode().Perm() != 0o644 {
				t.Errorf("umask %03o: %s has mode %v (%v), want 0644", umask, file, info.Mode(), err)
			}
		}
		if len(files) != 2 {
			t.Errorf("umask %03o: a lease is %v, want a pair", umask, files)
		}
	}
}

func TestCreateTakesOverOnlyAnEmptyFolder(t *testing.T) {
	dir := makeSharedFolder(t)
	empty, full, link := filepath.Join(dir, "empty"), filepath.Join(dir, "full"), filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(empty, 0o700), os.MkdirAll(filepath.Join(full, "x"), 0o700), os.Symlink(empty, link)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{empty: true, full: false, link: false} {
		if err := CreateFolder(path); err != nil {
			t.Errorf("Create(%s): %v", path, err)
		}
		if _, err := Open(path, nil, time.Second); (err == nil) != want {
			t.Errorf("Open(%s) after Create: %v", path, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".gpuard.*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	err := CreateFolder(filepath.Join(dir, "no", "state"))
	if err == nil || !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), filepath.Join(dir, "no", "state")) {
		t.Errorf("a missing parent: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	tests := []struct {
		name   string
		damage func(path string) error
		want   string
	}{
		{"a symbolic link", func(p string) error { return errors.Join(os.Rename(p, p+"2"), os.Symlink(p+"2", p)) }, "symbolic link"},
		{"a file", func(p string) error { return errors.Join(os.RemoveAll(p), os.WriteFile(p, nil, 0o600)) }, "not a folder"},
		{"not sticky", func(p string) error { return os.Chmod(p, 0o777) }, "chmod +t"},
		{"leases not sticky", func(p string) error { return os.Chmod(p+"/leases", 0o777) }, "leases is not a sticky folder"},
		{"no leases", func(p string) error { return os.Remove(p + "/leases") }, "leases: no such file"},
		{"no tickets", func(p string) error { return os.Remove(p + "/tickets") }, "tickets: no such file"},
		{"leases is a link", func(p string) error { return errors.Join(os.Remove(p+"/leases"), os.Symlink("/tmp", p+"/leases")) }, "leases is not a sticky folder"},
		{"no lock", func(p string) error { return os.Remove(p + "/lock") }, "lock: no such file"},
		{"the lock is a FIFO", func(p string) error { return errors.Join(os.Remove(p+"/lock"), unix.Mkfifo(p+"/lock", 0o666)) }, "must be a regular file"},
		{"the lock is a link", func(p string) error { return errors.Join(os.Remove(p+"/lock"), os.Symlink("format", p+"/lock")) }, "too many levels"},
		{"no format", func(p string) error { return os.Remove(p + "/format") }, "not a gpuard state folder"},
		{"another format", func(p string) error { return os.WriteFile(p+"/format", []byte("2\n"), 0o600) }, `format "2" and this gpuard knows 1`},
		{"the format is text", func(p string) error { return os.WriteFile(p+"/format", []byte("one"), 0o600) }, `format "one"`},
		{"the format is a FIFO", func(p string) error { return errors.Join(os.Remove(p+"/format"), unix.Mkfifo(p+"/format", 0o666)) }, "not a regular file"},
		{"the format is huge", func(p string) error { return os.Truncate(p+"/format", 10<<30) }, "larger than 64 KiB"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(makeSharedFolder(t), "state")
			if err := errors.Join(CreateFolder(path), tt.damage(path)); err != nil {
				t.Fatal(err)
			}
			_, err := Open(path, nil, time.Second)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "cannot ") {
				t.Errorf("%v; want it to say %q", err, tt.want)
			}
			if errors.Is(err, os.ErrNotExist) {
				t.Errorf("%v: is told as if there were no folder at all", err)
			}
		})
	}
	if _, err := Open(filepath.Join(makeSharedFolder(t), "state"), nil, time.Second); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v, want os.ErrNotExist", err)
	}
}

func TestOpenRefusesForeignParts(t *testing.T) {
	gate.Need(t, "root")
	for _, part := range []string{"leases", "tickets", "lock"} {
		path := filepath.Join(makeSharedFolder(t), "state")
		if err := errors.Join(CreateFolder(path), os.Lchown(filepath.Join(path, part), bobUID, bobUID)); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path, nil, time.Second); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s belongs to somebody else: %v", part, err)
		}
	}
}

func TestLocate(t *testing.T) {
	dir := makeSharedFolder(t)
	run, tmp := filepath.Join(dir, "run"), filepath.Join(dir, "tmp")
	if err := errors.Join(os.MkdirAll(filepath.Join(run, "lock"), 0o755), os.Mkdir(tmp, 0o755)); err != nil {
		t.Fatal(err)
	}
	check := func(when, want string, warned bool) {
		t.Helper()
		path, warning := LocateFolder(run, tmp)
		if path != want || (warning != "") != warned {
			t.Errorf("%s: %s, %q; want %s", when, path, warning, want)
		}
	}
	check("only /var/tmp is writable", filepath.Join(tmp, "gpuard"), true)
	if err := os.Chmod(filepath.Join(run, "lock"), 0o1777); err != nil {
		t.Fatal(err)
	}
	check("/run/lock is writable", filepath.Join(run, "lock", "gpuard"), false)
	best := filepath.Join(run, "gpuard")
	if err := os.Symlink("/nowhere", best); err != nil {
		t.Fatal(err)
	}
	check("/run/gpuard is a broken link", best, false)
	if _, err := Open(best, CandidateFolders(run, tmp), time.Second); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("an unusable /run/gpuard: %v, want an error and not the next place", err)
	}
}

func TestReadOnlyAndFullFolder(t *testing.T) {
	gate.Need(t, "privileged")
	dir := makeSharedFolder(t)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	path := filepath.Join(dir, "state")
	if err := CreateFolder(path); err != nil {
		t.Fatal(err)
	}
	f := mustOpen(t, path)
	kept := mustClaim(t, f, "GPU-kept")
	ballast := filepath.Join(dir, "ballast")
	data := make([]byte, 1<<20)
	_ = os.WriteFile(ballast, data, 0o600)

	before := leftoverFiles(t, f, ownUID())
	if _, err := f.Claim(testBoot, nil, claimFirstFree("GPU-a")); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), path) {
		t.Errorf("a claim in a full folder: %v", err)
	}
	if err := CreateFolder(filepath.Join(dir, "second")); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("creating in a full file system: %v", err)
	}
	if after := leftoverFiles(t, f, ownUID()); len(after) != len(before) {
		t.Errorf("left behind: %v, before: %v", after, before)
	}
	if leases, problems := f.Leases(); len(leases) != 1 || leases[0].ID != kept.Lease.ID || leases[0].Unreadable || len(problems) > 0 {
		t.Errorf("after a failed claim: %+v, %v", leases, problems)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	again := mustClaim(t, f, "GPU-a")

	_, _, _ = kept.Lock.Close(), again.Lock.Close(), f.Close()
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, nil, time.Second); !errors.Is(err, unix.EROFS) {
		t.Errorf("a read-only folder: %v", err)
	}
}

// TestCreateBesideInventedMachines: a folder that has only the state of invented machines becomes a state folder too.
func TestCreateBesideInventedMachines(t *testing.T) {
	dir := makeSharedFolder(t)
	ours, half, strange := filepath.Join(dir, "ours"), filepath.Join(dir, "half"), filepath.Join(dir, "strange")
	for _, path := range []string{ours, half, strange} {
		if err := os.MkdirAll(filepath.Join(path, "machines", "x"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Join(ours, "user-0"), 0o700), os.Mkdir(filepath.Join(ours, "user-1000"), 0o700), os.Mkdir(filepath.Join(half, "leases"), 0o1777), os.Chmod(filepath.Join(half, "leases"), 0o777|os.ModeSticky),
		os.Mkdir(filepath.Join(half, sys.AsidePrefix+"1"), 0o700), os.Mkdir(filepath.Join(strange, "thesis"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{ours: true, half: true, strange: false} {
		if IsVacant(path) != want {
			t.Errorf("%s is vacant: %t", path, !want)
		}
		if err := CreateFolder(path); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path, nil, time.Second)
		if (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
		if err == nil {
			_ = f.Close()
		}
		if _, err := os.Stat(filepath.Join(path, "machines", "x")); err != nil {
			t.Error(err)
		}
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 3 {
		t.Errorf("in the parent folder: %v, %v", names, err)
	}
}

// TestCreateBesideAtOnce: several processes that take over a vacant folder at the same time end with the same folder.
func TestCreateBesideAtOnce(t *testing.T) {
	path := filepath.Join(makeSharedFolder(t), "state")
	if err := os.MkdirAll(filepath.Join(path, "machines"), 0o755); err != nil {
		t.Fatal(err)
	}
	var all []*roleProcess
	for range 12 {
		all = append(all, startRole(t, ownUID(), "create", path))
	}
	for _, a := range all {
		a.expectLine("ready")
	}
	for _, a := range all {
		_ = a.in.Close()
	}
	for _, a := range all {
		if rest := a.endAndRead(); rest != "" {
			t.Errorf("one of 12 says %q", rest)
		}
	}
	if f, err := Open(path, nil, time.Second); err != nil {
		t.Error(err)
	} else {
		_ = f.Close()
	}
}
