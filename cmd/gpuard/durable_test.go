package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/app/machine"
	"gpuard/internal/host/proc"
)

// makeHostRoot is the root folder of a machine with nothing in it, which is the same host as this one.
func makeHostRoot(t testing.TB) string {
	t.Helper()
	root := t.TempDir()
	err := errors.Join(os.Mkdir(filepath.Join(root, "etc"), 0o755), os.Symlink("/etc/machine-id", filepath.Join(root, "etc/machine-id")))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// durablePath is where a user's queue, projects or history lie below a state folder, on this machine.
func durablePath(state string, uid int, name string) string {
	here := machine.Host{Env: []string{"GPUARD_STATE=" + state}, Proc: proc.New("/proc"), Root: "/", Run: "/run"}
	path, _ := here.DurablePath(name)
	own, others := fmt.Sprintf("/user-%d/", os.Geteuid()), fmt.Sprintf("/user-%d/", uid)
	return strings.Replace(path, own, others, 1)
}

// homeStatePath is likewise what stays in a home, of which this is XDG_STATE_HOME.
func homeStatePath(state, name string) string {
	here := machine.Host{Env: []string{"XDG_STATE_HOME=" + filepath.Clean(state)}, Proc: proc.New("/proc"), Root: "/", Run: "/run"}
	return here.HomePath(name)
}
