// Package compile builds the C programs and libraries of tests, each once for all test processes.
package compile

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gpuard/internal/gate"
)

// Once returns the folder in which build has made its files, now or in an earlier test process. build gets a folder with a
// copy of all sources. variant and the sources name the result: build must depend on nothing else. The files are shared by
// test processes, also of other users, and must not be changed. The test is skipped where there is no C compiler.
func Once(t testing.TB, variant string, build func(work string), sources ...fs.FS) string {
	t.Helper()
	gate.Need(t, "cc")
	dir := filepath.Join(cacheFolder(t), hashSources(t, variant, sources))
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), "build-")
	if err != nil {
		t.Fatalf("cannot build for the tests: %v", err)
	}
	defer os.RemoveAll(work)
	for _, s := range sources {
		if err := os.CopyFS(work, s); err != nil {
			t.Fatalf("cannot build for the tests: %v", err)
		}
	}
	build(work)
	if err := os.Chmod(work, 0o755); err != nil { // another user's processes load these files
		t.Fatalf("cannot build for the tests: %v", err)
	}
	if err := os.Rename(work, dir); err != nil && !errors.Is(err, fs.ErrExist) { // else another process was faster
		t.Fatalf("cannot build for the tests: %v", err)
	}
	return dir
}

// C calls the C compiler in a folder, with flags under which a warning is an error.
func C(t testing.TB, dir string, args ...string) {
	t.Helper()
	Run(t, dir, "cc", append([]string{"-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"}, args...)...)
}

// Run runs a program in a folder and returns what it prints.
func Run(t testing.TB, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("cannot build for the tests: %s %s: %v\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

func hashSources(t testing.TB, variant string, sources []fs.FS) string {
	t.Helper()
	h := sha256.New()
	fmt.Fprintln(h, variant)
	for _, s := range sources {
		err := fs.WalkDir(s, ".", func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := fs.ReadFile(s, path)
			fmt.Fprintf(h, "%s %d\n%s", path, len(text), text)
			return err
		})
		if err != nil {
			t.Fatalf("cannot read the sources of the tests: %v", err)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// cacheFolder is a folder that other users can read, unlike os.UserCacheDir, but only its owner can write.
func cacheFolder(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("gpuard-compiled-%d", os.Getuid()))
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatalf("cannot make a folder to build in for the tests: %v", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		t.Fatalf("cannot build in %s for the tests: %v", dir, err)
	}
	owner, _ := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || owner == nil || int(owner.Uid) != os.Getuid() || info.Mode().Perm()&0o022 != 0 {
		t.Fatalf("cannot build in %s for the tests: it is not a folder that only uid %d can write; remove it", dir, os.Getuid())
	}
	return dir
}
