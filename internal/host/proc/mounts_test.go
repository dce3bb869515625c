package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/core/space"
)

// linked makes a procfs with symbolic links.
func linked(t *testing.T, links, files map[string]string) FS {
	t.Helper()
	f := tree(t, files)
	for name, target := range links {
		path := filepath.Join(f.root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(target, path)); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// TestInitialMountNamespace: the first mount namespace has one of the kernel's known inode numbers.
func TestInitialMountNamespace(t *testing.T) {
	for link, want := range map[string]bool{"mnt:[4026531832]": true, "mnt:[4026531840]": true, "mnt:[4026531841]": true, "mnt:[4026531842]": false, "mnt:[4026532193]": false} {
		if got, err := linked(t, map[string]string{"self/ns/mnt": link}, nil).InitialMountNamespace(); got != want || err != nil {
			t.Errorf("%s: %v, %v", link, got, err)
		}
	}
	if _, err := tree(t, nil).InitialMountNamespace(); err == nil || !strings.HasPrefix(err.Error(), "cannot read the mount namespace") {
		t.Errorf("without procfs: %v", err)
	}
}

// TestSightThroughAnother: a caller who may read the root folder of process 1 compares the folders.
func TestSightThroughAnother(t *testing.T) {
	here := t.TempDir()
	apart := map[string]string{"self/ns/pid": "pid:[4026531836]", "self/ns/mnt": "mnt:[4026532193]"}
	outside := func(folder string) FS { // process 1 has that folder in place of ours
		f := linked(t, apart, nil)
		place := filepath.Join(f.root, "1/root", here)
		if err := errors.Join(os.MkdirAll(filepath.Dir(place), 0o755), os.Symlink(folder, place)); err != nil {
			t.Fatal(err)
		}
		return f
	}
	mkdir := func(path string) string {
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	other := t.TempDir()
	state := filepath.Join(here, "gpuard")
	for _, step := range []struct {
		what   string
		folder string
		want   space.Sight
	}{
		{"the same, without a folder of leases yet", here, space.Common},
		{"another, without a folder of leases yet", other, space.Private},
		{"the same", here, space.Common},
		{"another, without a folder of leases", other, space.Private},
	} {
		got, why, err := outside(step.folder).FolderSight(state)
		if got != step.want || err != nil || strings.Contains(why, "has another "+here+" than the machine") != (step.want == space.Private) {
			t.Errorf("%s: %d, %q, %v", step.what, got, why, err)
		}
		if step.what == "another, without a folder of leases yet" {
			mkdir(state)
		}
	}
	mkdir(filepath.Join(other, "gpuard"))
	if got, _, _ := outside(other).FolderSight(state); got != space.Private {
		t.Errorf("another, with a folder of leases: %d", got)
	}
	if got, _, err := outside(here).FolderSight(filepath.Join(here, "missing", "gpuard")); got != space.Unclear || err != nil {
		t.Errorf("below a missing folder: %d, %v", got, err)
	}
	if got, _, err := linked(t, map[string]string{"self/ns/pid": "pid:[4026532441]"}, nil).FolderSight(state); got != space.Unclear || err != nil {
		t.Errorf("in another PID namespace: %d, %v", got, err)
	}
	if got, _, err := linked(t, map[string]string{"self/ns/pid": "pid:[4026531836]"}, nil).FolderSight(state); got != space.Common || err != nil {
		t.Errorf("a kernel without mount namespaces: %d, %v", got, err)
	}
}

// TestHiddenUsers: a uid that is not mapped in this user namespace has no name, and owns no process.
func TestHiddenUsers(t *testing.T) {
	files := map[string]string{"passwd": "nobody:x:65534:\nalice:x:1000:\n", "5/stat": statLine(5, "five", "S", 1, 50), "5/status": "Uid:\t65534\t65534\t65534\t65534\n"}
	f := tree(t, files)
	p := f.readProcessInfo(5, f.loadUserNames())
	if uid, ok := f.Owner(5); !ok || uid != 65534 || p.UID == nil || p.User != "nobody" || f.User(65534) != "nobody" {
		t.Errorf("with every id: %d, %v, %+v", uid, ok, p)
	}
	files["self/uid_map"], files["sys/fs/overflowuid"] = "1000 1000 1\n", "65534\n"
	f = tree(t, files)
	p = f.readProcessInfo(5, f.loadUserNames())
	if _, ok := f.Owner(5); ok || p.UID != nil || p.User != space.HiddenUser || p.Start != 50 || f.User(65534) != space.HiddenUser || f.User(0) != space.HiddenUser || f.User(1000) != "alice" {
		t.Errorf("with a part of the ids: %+v, %s, %s, %s", p, f.User(65534), f.User(0), f.User(1000))
	}
}

// TestMountSight: a folder that is mounted in its place is the machine's, unless a user who has a user namespace may
// have made it.
func TestMountSight(t *testing.T) {
	folder := t.TempDir()
	const all, part = "0 0 4294967295\n", "\n" // in a namespace without ids every owner is hidden
	own := fmt.Sprintf("%d 1000 1\n", os.Geteuid())
	for name, tt := range map[string]struct {
		ids, point string
		want       space.Sight
		mounted    bool
	}{
		"nothing is mounted":                     {own, "/run", space.Unclear, false},
		"by the administrator":                   {all, folder, space.Common, true},
		"a user namespace, another's folder":     {part, folder, space.Common, true},
		"a user namespace, the caller's own":     {own, folder, space.Unclear, true},
		"a user namespace, and it is gone again": {own, folder + "/none/none", space.Unclear, true},
	} {
		path := folder
		if strings.HasPrefix(tt.point, folder) {
			path = tt.point
		}
		f := tree(t, map[string]string{"self/uid_map": tt.ids, "sys/fs/overflowuid": "65534\n", "self/mountinfo": "9 1 8:1 /x " + tt.point + " rw - ext4 /dev/sda1 rw\n"})
		if got, mounted := f.MountSight(path); got != tt.want || mounted != tt.mounted {
			t.Errorf("%s: %d, %v", name, got, mounted)
		}
	}
}

// TestChoice: where leases are kept is chosen here as outside, or not at all.
func TestChoice(t *testing.T) {
	apart := map[string]string{"self/ns/pid": "pid:[4026531836]", "self/ns/mnt": "mnt:[4026532193]"}
	chooses := func(folder string) func(string) string {
		return func(root string) string { return root + folder }
	}
	first := linked(t, map[string]string{"self/ns/mnt": "mnt:[4026531832]"}, nil)
	if got, _, _, err := first.ChoiceSight("/var/tmp/gpuard", "/run", chooses("/run/lock/gpuard")); got != space.Common || err != nil {
		t.Errorf("in the first namespace: %d, %v", got, err)
	}
	f := linked(t, apart, nil)
	if err := os.MkdirAll(filepath.Join(f.root, "1/root"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, _, _, err := f.ChoiceSight("/var/tmp/gpuard", "/run", chooses("/var/tmp/gpuard")); got != space.Common || err != nil {
		t.Errorf("the same: %d, %v", got, err)
	}
	got, why, missing, err := f.ChoiceSight("/var/tmp/gpuard", "/run", chooses("/run/lock/gpuard"))
	if got != space.Private || missing != "/run/lock/gpuard" || !strings.HasPrefix(why, "the machine keeps its leases in /run/lock/gpuard") || err != nil {
		t.Errorf("another: %d, %q, %q, %v", got, why, missing, err)
	}
	if got, _, missing, err := linked(t, apart, nil).ChoiceSight("/var/tmp/gpuard", "/nowhere", nil); got != space.Unclear || missing != "/nowhere" || err != nil {
		t.Errorf("nobody to look through: %d, %q, %v", got, missing, err)
	}
}
