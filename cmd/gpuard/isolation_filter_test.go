package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/core/job"
	"gpuard/internal/gate"
	"gpuard/internal/host/cgroupfs"
	"gpuard/test/executable"
)

// TestWallByFilter: root's lease names the level, in plan, status and JSON; when the job is over its control group is gone; a user is told what
// to type, and root what may lead out.
func TestWallByFilter(t *testing.T) {
	t.Parallel()
	gate.Need(t, "devicefilter")
	w := newDeviceFileMachine(t)
	got := runCommand(t, w.isolatedCommand("run", "--device", "2", "--require-isolation", "cgroup", "--isolate", "cgroup", "--dry-run", "--", "true"))
	checkContains(t, got.out+got.err, "isolated by cgroup", "what runs as root can move out of its control group")
	cmd := w.isolatedCommand("run", "--device", "1", "--isolate", "cgroup", "--", "setpriv", "--reuid", fmt.Sprint(aliceUID), "--regid", fmt.Sprint(aliceUID), "--clear-groups", "sh", "-c", "sed -n s/^0:://p /proc/self/cgroup; "+w.openScriptPath()+"; read line")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	group := startToFirstLine(t, cmd)
	if !strings.Contains(group, "/gpuard-wall-") {
		t.Fatalf("the job is in %s", group)
	}
	checkEqual(t, "leases", w.leaseIsolations(), []job.Isolation{job.Cgroup})
	checkContains(t, runCommand(t, w.isolatedCommand("status")).out, "isolated by cgroup")
	folder := filepath.Join(cgroupfs.Own(""), strings.TrimPrefix(group, strings.TrimSuffix(ownPath(t), "/")))
	_, err = os.Stat(folder)
	if err == nil {
		err = in.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "its control group is gone", func() bool { _, err := os.Stat(folder); return errors.Is(err, os.ErrNotExist) })
	got = runCommand(t, asUser(aliceUID, w.isolatedCommand("run", "-q", "--device", "1", "--isolate", "cgroup", "--", "echo", "begun")))
	checkEqual(t, "a user: "+got.err, []any{got.code, got.out}, []any{122, ""})
	checkContains(t, strings.Join(strings.Fields(got.err), " "), "cannot isolate the job by cgroup: the kernel lets only root filter devices", "setpriv --reuid NAME", "here works --isolate namespace")
	got = runCommand(t, w.isolatedCommand("run", "--device", "1", "--isolate", "cgroup", "--", "su", "--version"))
	checkContains(t, strings.Join(strings.Fields(got.err), " "), "su may move out of the control group")
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

// TestWallBlamed: a program that is known not to work behind a wall, and fails there, is explained where gpuard is still beside it.
func TestWallBlamed(t *testing.T) {
	t.Parallel()
	w := newDeviceFileMachine(t)
	const blames = "ended with exit code 3, which may be because of its wall: sudo will not get rights of root"
	type attempt struct {
		flags, script string
		blamed        bool
	}
	attempts := map[string]attempt{
		"fails":           {"--isolate namespace", "exit 3", true},
		"works":           {"--isolate namespace", "exit 0", false},
		"without a wall":  {"--isolate off", "exit 3", false},
		"is ended by one": {"--isolate landlock", "kill -KILL $$", false},
	}
	if slices.Contains(levels(), "cgroup") {
		attempts["takes no right"] = attempt{"--isolate cgroup", "exit 3", false}
	}
	for name, c := range attempts {
		sudo := filepath.Join(t.TempDir(), "sudo")
		executable.Write(t, sudo, []byte("#!/bin/sh\n"+c.script+"\n"))
		got := runCommand(t, w.isolatedCommand(append(append([]string{"run", "--cpu", "--timeout", "1h"}, strings.Fields(c.flags)...), "--", sudo)...))
		if said := strings.Join(strings.Fields(got.err), " "); strings.Contains(said, blames) != c.blamed {
			t.Errorf("%s: exit code %d, says %s", name, got.code, said)
		}
	}
	sudo := filepath.Join(w.root, "sudo")
	executable.Write(t, sudo, []byte("#!/bin/sh\nexit 3\n"))
	got := runCommand(t, w.isolatedCommand("submit", "--cpu", "--timeout", "1h", "--isolate", "namespace", "--", sudo))
	checkEqual(t, "submit: "+got.err, got.code, 0)
	runCommand(t, w.isolatedCommand("wait", "1"))
	checkContains(t, strings.Join(strings.Fields(runCommand(t, w.isolatedCommand("logs", "1")).out), " "), blames)
}
