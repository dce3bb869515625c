package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/core/job"
	"gpuard/internal/gate"
	"gpuard/internal/host/cgroupfs"
)

// TestWallByFilter: root's lease names the level, in plan, status and JSON; when the job is over its control group is gone; a user is told what
// to type, and root what may lead out.
func TestWallByFilter(t *testing.T) {
	t.Parallel()
	gate.Need(t, "devicefilter")
	w := newWalled(t)
	got := run(t, w.cmd("run", "--device", "2", "--require-isolation", "cgroup", "--isolate", "cgroup", "--dry-run", "--", "true"))
	contains(t, got.out+got.err, "isolated by cgroup", "what runs as root can move out of its control group")
	cmd := w.cmd("run", "--device", "1", "--isolate", "cgroup", "--", "setpriv", "--reuid", fmt.Sprint(alice), "--regid", fmt.Sprint(alice), "--clear-groups", "sh", "-c", "sed -n s/^0:://p /proc/self/cgroup; "+w.tries()+"; read line")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	group := begin(t, cmd)
	if !strings.Contains(group, "/gpuard-wall-") {
		t.Fatalf("the job is in %s", group)
	}
	same(t, "leases", w.leased(), []job.Isolation{job.Cgroup})
	contains(t, run(t, w.cmd("status")).out, "isolated by cgroup")
	folder := filepath.Join(cgroupfs.Own(""), strings.TrimPrefix(group, strings.TrimSuffix(ownPath(t), "/")))
	_, err = os.Stat(folder)
	if err == nil {
		err = in.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "its control group is gone", func() bool { _, err := os.Stat(folder); return errors.Is(err, os.ErrNotExist) })
	got = run(t, as(alice, w.cmd("run", "-q", "--device", "1", "--isolate", "cgroup", "--", "echo", "begun")))
	same(t, "a user: "+got.err, []any{got.code, got.out}, []any{122, ""})
	contains(t, strings.Join(strings.Fields(got.err), " "), "cannot isolate the job by cgroup: the kernel lets only root filter devices", "setpriv --reuid NAME", "here works --isolate namespace")
	got = run(t, w.cmd("run", "--device", "1", "--isolate", "cgroup", "--", "su", "--version"))
	contains(t, strings.Join(strings.Fields(got.err), " "), "su may move out of the control group")
}

// ownPath is the path of this process in the control groups of version 2.
func ownPath(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut("\n"+string(text), "\n0::")
	own, _, _ := strings.Cut(rest, "\n")
	return own
}
