package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/app/holder"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/gate"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/store"
	"gpuard/test/fakegpu"
)

// runInNamespaces runs a script in PID and mount namespaces of its own, on the fake machine and with nothing that makes that
// right.
func (r *fakeDriverMachine) runInNamespaces(script string) runResult {
	r.t.Helper()
	cmd := gpuardCommand(r.t, r.state, append(r.Env(), "LC_ALL=C"))
	path, err := exec.LookPath("unshare")
	if err != nil {
		r.t.Fatal(err)
	}
	cmd.Path = path
	cmd.Args = []string{"unshare", "--pid", "--mount", "--fork", "--mount-proc", "sh", "-c", script}
	return runCommand(r.t, cmd)
}

// TestDriverPrivateNamespace: nothing is leased where other leases cannot be seen, unless the folder comes from
// outside, or the caller says that there are none.
func TestDriverPrivateNamespace(t *testing.T) {
	gate.Need(t, "pidns")
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	for _, words := range []string{
		"run -- sh -c 'echo started'", "run -q --json -- sh -c 'echo started'", "run --dry-run -- true", "run --dry-run --json -- true",
		"reserve --shell", "reserve --pid $$",
	} {
		for _, made := range []bool{false, true} {
			if made {
				outside := r.run("run", "-q", "--", "true") // makes the folder
				checkEqual(t, "run outside", outside.code, 0)
			}
			got := r.runInNamespaces("gpuard " + words)
			if got.code != 125 || strings.Contains(got.out, "started") || strings.Contains(got.out, "GPU 0") {
				t.Errorf("%s: exit %d, %s%s", words, got.code, got.out, got.err)
			}
			checkContains(t, got.out+got.err, "cannot lease a GPU here: ", "private PID namespace", "would not be seen outside", "mount the host's "+r.state, "--private-state")
		}
		waitForWriters(t, r.state)
		if err := os.RemoveAll(r.state); err != nil {
			t.Fatal(err)
		}
	}
	var root, folder unix.Stat_t
	if err := errors.Join(unix.Stat("/", &root), unix.Stat(filepath.Dir(r.state), &folder)); err != nil {
		t.Fatal(err)
	}
	below := 125
	if root.Dev == folder.Dev { // its path is then the same on the disk
		below = 0
	}
	for _, words := range []string{
		"run -q -- sh -c 'echo $GPUARD_GPUS $GPUARD_LEASE'", "run --dry-run --json -- true", "reserve --shell", "reserve --pid $$",
	} {
		verb, rest, _ := strings.Cut(words, " ")
		got := r.runInNamespaces("gpuard " + verb + " --private-state " + rest)
		if got.code != 0 || !strings.Contains(got.out, "GPU") {
			t.Errorf("%s with --private-state: exit %d, %s%s", words, got.code, got.out, got.err)
		}
		got = r.runInNamespaces("mkdir -p $GPUARD_STATE && mount --bind $GPUARD_STATE $GPUARD_STATE && gpuard " + words)
		if got.code != 0 || !strings.Contains(got.out, "GPU") {
			t.Errorf("%s over a mounted folder: exit %d, %s%s", words, got.code, got.out, got.err)
		}
		// Of a mount above only one that shows the same folder of a disk is the host's.
		got = r.runInNamespaces("mount --bind ${GPUARD_STATE%/*} ${GPUARD_STATE%/*} && gpuard " + words)
		checkEqual(t, words+" below the same folder", got.code, below)
		got = r.runInNamespaces("mount -t tmpfs none ${GPUARD_STATE%/*} && gpuard " + words)
		checkEqual(t, words+" below a mount", got.code, 125)
		checkContains(t, got.out+got.err, "that folder itself: whose "+filepath.Dir(r.state)+" this is does not show")
	}
	checkEqual(t, "a CPU job", r.runInNamespaces("gpuard run -q --cpu -- sh -c 'exit 7'").code, 7) // leases nothing
}

// TestDriverStartsSlowly: the reason is shown if the driver has to start its devices first.
func TestDriverStartsSlowly(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		persistence string
		delay       int
		told        bool
	}{{"0", 1200, true}, {"1", 1200, false}, {"0", 0, false}, {"", 1200, false}} {
		t.Run(fmt.Sprintf("%s after %d ms", test.persistence, test.delay), func(t *testing.T) {
			t.Parallel()
			r := newFakeDriverMachine(t, fakegpu.A100(0).With("persistence", test.persistence))
			if test.delay > 0 {
				r.Delay("nvmlInit_v2", fakegpu.AnyGPU, test.delay)
			}
			began := time.Now()
			got := r.run("run", "--", "echo", "started")
			if test.delay == 0 && time.Since(began) > time.Second {
				t.Log("the machine is too busy to tell") // its own slowness may have looked like the driver's
				return
			}
			checkEqual(t, "exit and output", []any{got.code, got.out}, []any{0, "started\n"})
			if told := strings.Contains(got.err, "the driver took"); told != test.told {
				t.Errorf("told: %t, want %t\n%s", told, test.told, got.err)
			}
			if test.told {
				checkContains(t, got.err, "the driver took ", " s to start, as it does each time while persistence mode is off: sudo nvidia-smi -pm 1\n")
			}
		})
	}
}

// TestHolderTouches: a holder keeps its entry young, and what the entry needs, for as long as the command runs.
func TestHolderTouches(t *testing.T) {
	t.Parallel()
	r := newDemoMachine(t, "demo:1xL4")
	folder, err := store.Open(r.leaseFolder(), nil, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close() //nolint:errcheck // read only
	command := startSleep(t)
	held, err := folder.Claim("boot", nil, func(store.View) (job.Lease, error) {
		return job.Lease{Devices: []gpu.UUID{"GPU-0"}, PID: command.Process.Pid, Command: "sleep"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	pidfd, err := launch.OpenPidfd(command.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	pair, _ := filepath.Glob(filepath.Join(r.leaseFolder(), "leases", "*", held.Lease.ID+"-*"))
	all := append(pair, r.leaseFolder(), filepath.Join(r.leaseFolder(), "lock"), filepath.Join(r.leaseFolder(), "format"))
	if len(all) != 5 {
		t.Fatalf("the lease is %v", pair)
	}
	orders := holder.Orders{Folder: r.leaseFolder(), Lease: held.Lease.ID}
	keeps := gpuardCommand(t, r.state, nil, append([]string{launch.HolderFlag, "3", "4"}, must(orders.Words())...)...)
	keeps.Args[0] = "hasty"
	keeps.ExtraFiles = []*os.File{pidfd, held.Lock}
	if err := keeps.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = pidfd.Close(), held.Lock.Close()
	for range 2 { // again and again
		old := time.Now().Add(-20 * 24 * time.Hour)
		for _, path := range all {
			if err := os.Chtimes(path, old, old); err != nil {
				t.Fatal(err)
			}
		}
		waitUntil(t, "everything is young again", func() bool {
			for _, path := range all {
				if info, err := os.Lstat(path); err != nil || time.Since(info.ModTime()) > time.Hour {
					return false
				}
			}
			return true
		})
	}
	_ = command.Process.Kill()
	_ = command.Wait()
	if err := keeps.Wait(); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(r.leaseFolder(), "leases", "*", held.Lease.ID+"-*")); len(left) > 0 {
		t.Errorf("the holder has left %v", left)
	}
}
