package isolation_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/job"
	"gpuard/internal/gate"
	"gpuard/internal/host/isolation"
)

// TestGraphicsFolder: in the folder of the kernel's graphics a closed file is not there, which is another error than that of one that may
// not be opened; the others are the same files, also in folders below, and nothing in it can be made, removed, or brought back.
func TestGraphicsFolder(t *testing.T) {
	t.Parallel()
	gate.Need(t, "root", "isolation")
	dir := filepath.Join(public(t), "dri")
	err := os.MkdirAll(filepath.Join(dir, "by-path"), 0o755) //nolint:gosec // for every user
	for name, minor := range map[string]uint32{"renderD128": 5, "renderD129": 7} {
		if err == nil {
			err = errors.Join(unix.Mknod(filepath.Join(dir, name), unix.S_IFCHR|0o666, int(unix.Mkdev(1, minor))), os.Chmod(filepath.Join(dir, name), 0o666), //nolint:gosec // small; as device files are
				os.Symlink("../"+name, filepath.Join(dir, "by-path", name)))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	closed := filepath.Join(dir, "renderD129")
	if err := open(closed); err != nil {
		t.Skip("device files cannot be used here: ", err)
	}
	const script = `cd "$1"
ls
head -c 3 renderD128 | wc -c
head -c 3 by-path/renderD128 | wc -c
for way in renderD129 by-path/renderD129 /dev/full; do (: <$way) 2>&1 | sed 's/.*: //'; done
for try in 'mknod -m 666 n c 1 7' 'ln -s /dev/full n' 'touch n' 'rm renderD128' 'umount .' 'umount renderD128' 'unshare -rm umount .' 'unshare -rm umount renderD128' 'unshare -rm mount -o remount,bind,rw .' 'unshare -rm umount -l ..'; do
	$try 2>/dev/null && echo "$try" works; done
ls`
	want := "by-path\nrenderD128\n3\n3\nNo such file or directory\nNo such file or directory\nPermission denied\nby-path\nrenderD128\n"
	for _, who := range []user{{name: "root"}, {name: "ordinary user", uid: 1_731_035}} {
		path, argv, err := isolation.Wall{Level: job.Namespace, Nodes: []string{closed}}.Command("/bin/bash", []string{"bash", "-c", script, "bash", dir})
		if err != nil {
			t.Fatal(err)
		}
		out, _ := output(t, who.command(t, path, argv...))
		if strings.ReplaceAll(out, "bash: line", "") != want {
			t.Errorf("%s:\n%s\nwant\n%s", who.name, out, want)
		}
	}
}
