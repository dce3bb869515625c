package isolation_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gpuard/internal/core/job"
	"gpuard/internal/gate"
	"gpuard/internal/host/cgroupfs"
	"gpuard/internal/host/isolation"
)

// TestGroupOfVersion: where both versions filter devices, version 2 does, and else version 1. Another device file can be made, one with the
// number of a closed one cannot, and what is not asked about is as outside.
func TestGroupOfVersion(t *testing.T) {
	t.Parallel()
	gate.Need(t, "root", "devicefilter")
	for line, old := range map[string]bool{"0::": false, "devices:": true} {
		t.Run(line, func(t *testing.T) {
			if old {
				gate.Need(t, "cgroup1", "mountns")
			}
			dir := public(t)
			script := "cat /proc/self/cgroup; cd " + dir + "; mknod zero c 1 5 && mknod full b 1 7 && echo made; mknod other c 1 7 || echo denied; true </dev/full || echo closed; true >/dev/full || echo closed"
			out, _ := output(t, user{old: old}.walled(t, job.Cgroup, "/bin/sh", "sh", "-c", script))
			in := 0
			for text := range strings.Lines(out) {
				if _, path, found := strings.Cut(text, line); found && strings.Contains(path, "/gpuard-wall-") {
					in++
				}
			}
			if in != 1 || strings.Count(out, "/gpuard-wall-") != 1 || !strings.Contains(out, "made\n") || !strings.Contains(out, "denied\n") || strings.Count(out, "closed\n") != 2 {
				t.Errorf("prints\n%s", out)
			}
		})
	}
}

// apart is a new control group of this test's own, in a hierarchy, and what moves a shell there.
func apart(t *testing.T, controller string) (dir, script string) {
	t.Helper()
	dir = filepath.Join(cgroupfs.Own(controller), fmt.Sprintf("%stest-%d", cgroupfs.Prefix, os.Getpid()))
	err := os.Mkdir(dir, 0o755) //nolint:gosec // as the kernel's
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 500 {
			if cgroupfs.Prune(dir) {
				return
			}
			time.Sleep(10 * time.Millisecond) // the last process may not be gone
		}
		t.Errorf("%s cannot be removed", dir)
	})
	return dir, "echo 0 >" + dir + "/cgroup.procs"
}

// wallsIn are the groups of walls below a group.
func wallsIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// TestKilledGroups: whenever the process is killed that builds the wall, no process is left in a group, and the next wall removes the groups.
func TestKilledGroups(t *testing.T) {
	for _, controller := range []string{"", "devices"} {
		t.Run("controller "+controller, func(t *testing.T) {
			gate.Need(t, "root", "devicefilter", "mountns")
			before := ""
			if controller != "" {
				gate.Need(t, "cgroup1")
				before = withoutTwo + "; "
			}
			dir, move := apart(t, controller)
			wall := func(program string, words ...string) *exec.Cmd {
				_, argv, err := isolation.Wall{job.Cgroup, []string{others}}.Command(program, words)
				if err != nil {
					t.Fatal(err)
				}
				path, argv := where(t, before+move, argv...)
				return user{}.command(t, path, argv...)
			}
			most := 0
			for i := range 100 {
				cmd := wall("/bin/sleep", "sleep", "60")
				err := cmd.Start()
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Duration(i) * 200 * time.Microsecond) // the moment is what is varied
				_, _ = cmd.Process.Kill(), cmd.Wait()
				for _, d := range cgroupfs.Folders(dir) {
					if left := cgroupfs.Processes(d); len(left) > 0 {
						t.Errorf("kill %d: %s has the processes %v", i, d, left)
					}
				}
				most = max(most, len(wallsIn(t, dir)))
			}
			if most == 0 || most > 3 {
				t.Errorf("a kill has left %d groups: want one or two, which the next wall removes", most)
			}
			out, code := output(t, wall("/bin/sh", "sh", "-c", "ls -d "+dir+"/*/"))
			if code != 0 || strings.Count(out, "\n") != 1 {
				t.Errorf("exit code %d, groups at the end:\n%s", code, out)
			}
		})
	}
}

// TestSweepBeside: walls that are built at once, each of which removes groups without a process first, all stand.
func TestSweepBeside(t *testing.T) {
	t.Parallel()
	gate.Need(t, "root", "devicefilter")
	var all sync.WaitGroup
	for i := range 40 {
		cmd := user{}.walled(t, job.Cgroup, "/bin/sh", "sh", "-c", "true <>/dev/full || echo closed "+strconv.Itoa(i))
		all.Go(func() {
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.HasSuffix(string(out), fmt.Sprintf("closed %d\n", i)) {
				t.Errorf("%v: %s", err, out)
			}
		})
		if i%4 == 0 {
			all.Go(isolation.SweepGroups)
		}
	}
	all.Wait()
}

// TestSweepGroups: a group of a wall in which a process is stays, with what that has made below.
func TestSweepGroups(t *testing.T) {
	t.Parallel()
	gate.Need(t, "root", "devicefilter")
	cmd := user{}.walled(t, job.Cgroup, "/bin/sh", "sh", "-c", `cd /sys/fs/cgroup; for at in $(awk '/ - cgroup2 /{print $5}' /proc/self/mountinfo); do cd "$at$(sed -n s/^0:://p /proc/self/cgroup)"; done; mkdir own; pwd; read line; test -d own && rmdir own && echo there; true <>/dev/full || echo closed`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var dir string
	_, err = fmt.Fscanln(out, &dir)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		isolation.SweepGroups()
	}
	_, err = fmt.Fprintln(in, "go on")
	if err != nil {
		t.Fatal(err)
	}
	text := make([]byte, 100)
	n, _ := out.Read(text)
	if !strings.HasPrefix(string(text[:n]), "there\n") {
		t.Errorf("says %q", text[:n])
	}
	_ = cmd.Wait()
	isolation.SweepGroups()
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s is left", dir)
	}
}

// TestGroupRefused: an ordinary user is told what to type, also one who owns a control group, and root what is not as it must be.
func TestGroupRefused(t *testing.T) {
	gate.Need(t, "root", "devicefilter", "mountns")
	for name, c := range map[string]struct {
		before string
		uid    uint32
		says   string
	}{
		"a user":               {"true", 1_731_035, "sudo gpuard run --isolate cgroup -- setpriv --reuid NAME"},
		"a user with a group":  {`chown -R 1731035 "$GROUP"; echo 0 >"$GROUP/cgroup.procs"`, 1_731_035, "could move out of it"},
		"root in a user's":     {`chown -R 1731035 "$GROUP"; echo 0 >"$GROUP/cgroup.procs"; ` + withoutOne, 0, "is not root's alone, so that a job could move out"},
		"read-only":            {`mount -o remount,bind,ro "$MOUNT"; ` + withoutOne, 0, "nothing can be written in the control group"},
		"none":                 {withoutTwo + "; " + withoutOne, 0, "version 2: it is not mounted; version 1: it is not mounted"},
		"without capabilities": {withoutOne, 0, "it wants CAP_BPF and CAP_NET_ADMIN"},
		"as it is":             {"true", 0, "cgroup: \n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, _ := apart(t, "")
			mount := strings.TrimSuffix(cgroupfs.Own(""), "/")
			become := ""
			if c.uid != 0 {
				become = fmt.Sprintf("setpriv --reuid %d --regid %[1]d --clear-groups ", c.uid)
			}
			if name == "without capabilities" {
				become = "setpriv --bounding-set -bpf,-sys_admin --inh-caps -all "
			}
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			at := public(t)
			bound := filepath.Join(at, filepath.Base(self))
			script := c.before + "; mount --bind " + filepath.Dir(self) + " " + at + "; exec " + become + bound
			for _, words := range []string{" " + probeGroupFlag, " " + isolation.WallFlag + ` '{"level":"cgroup","nodes":["/dev/full"]}' /bin/echo echo begun`} {
				cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-ec", script+words)
				cmd.Env = append(os.Environ(), "GROUP="+dir, "MOUNT="+mount)
				out, _ := output(t, cmd)
				if strings.Contains(words, isolation.WallFlag) && c.says == "cgroup: \n" {
					c.says = "begun\n"
				}
				if !strings.Contains(out, c.says) || (c.says == "begun\n") != strings.Contains(out, "begun") {
					t.Errorf("%s: %s", words, out)
				}
			}
		})
	}
}

// withoutOne is a script that takes the device controller of version 1 away.
const withoutOne = `for at in $(awk '/ - cgroup .*devices/{print $5}' /proc/self/mountinfo); do umount -l $at; done`

// TestRootLeaves: root can move out of its group, as the documentation says, so that what the same way does for a user is tested by it.
func TestRootLeaves(t *testing.T) {
	t.Parallel()
	gate.Need(t, "root", "devicefilter")
	out, code := output(t, user{}.walled(t, job.Cgroup, "/proc/self/exe", "try", tryFlag, "control group above", public(t), "1"))
	if code != 0 || !strings.HasPrefix(out, "escaped\n") {
		t.Errorf("exit code %d, says %s", code, out)
	}
}
