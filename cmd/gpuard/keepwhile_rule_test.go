package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuard/internal/app/holder"
	"gpuard/internal/host/proc"
)

// ruledKernelFixture is a rig with a rule for its user.
type ruledKernelFixture struct {
	*kernelFixture
	config string
}

func newRuledKernelFixture(t *testing.T, limits string) *ruledKernelFixture {
	t.Helper()
	r := &ruledKernelFixture{newKernelFixture(t), t.TempDir()}
	r.writeRule(limits)
	return r
}

func (r *ruledKernelFixture) writeRule(limits string) {
	r.t.Helper()
	writeFile(r.t, filepath.Join(r.config, "gpuard", "config.yaml"), fmt.Sprintf("rules:\n- users: [%d]\n%s", os.Geteuid(), limits), 0)
}

// ruledCommand is the program under that rule, by one of its names.
func (r *ruledKernelFixture) ruledCommand(name string, command ...string) *exec.Cmd {
	cmd := r.kernelCommand(nil, command...)
	cmd.Args[0] = name
	cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+r.config)
	return cmd
}

// startRuledKernel starts a command, and returns its lease and the moment that its holder was told, when no other holder is left.
func (r *ruledKernelFixture) startRuledKernel() (cmd *exec.Cmd, lease string, until time.Duration) {
	r.t.Helper()
	cmd = r.ruledCommand("lasting", "sh", "-c", `echo "$GPUARD_LEASE"; exec sleep 600`)
	lease = strings.TrimSpace(startAndReadLine(r.t, cmd))
	waitUntil(r.t, "one holder", func() bool {
		holders := holdersOf(r.leaseFolder())
		if len(holders) != 1 {
			return false
		}
		words := proc.New("/proc").Arguments(holders[0])
		i := slices.Index(words, lease)
		if i < 0 || i+1 == len(words) {
			return false
		}
		var orders holder.Orders
		if err := json.Unmarshal([]byte(words[i+1]), &orders); err != nil {
			r.t.Error(err)
		}
		until = time.Duration(orders.Until)
		return true
	})
	return cmd, lease, until
}

// TestKeepWhileRuleOfTime: under a rule that limits the time a kernel starts, and is ended when the time of its lease
// is over, with what it started (which has its output: the end is seen only when all are gone). Nothing else would end
// the lease.
func TestKeepWhileRuleOfTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ program, script string }{
		"ends when it is asked": {"lasting", `sleep 600 & echo on; exec sleep 600`},
		"has to be killed":      {"hasty", `trap '' TERM; sleep 600 & echo on; while :; do sleep 0.1; done`},
		"leaves somebody":       {"hasty", `(trap '' TERM; sleep 600; sleep 600) & echo on; exec sleep 600`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRuledKernelFixture(t, "  time: 2s\n")
			started := time.Now()
			got := runCommand(t, r.ruledCommand(c.program, "sh", "-c", c.script))
			if spent := time.Since(started); got.code != -1 || spent < 2*time.Second || spent > time.Minute {
				t.Errorf("exit %d after %s", got.code, spent)
			}
			checkEqual(t, "output", got.out, "on\n")
			checkContains(t, got.err, "gpuard: the time of lease ", " is over: ending the command\n")
			r.waitUntilFreed()
		})
	}
}

// TestKeepWhileRuleAnew: the time counts over all starts; a lease whose time is over is not taken over, nor is one that
// was given under other rules.
func TestKeepWhileRuleAnew(t *testing.T) {
	t.Parallel()
	r := newRuledKernelFixture(t, "  time: 24h\n")
	first, lease, until := r.startRuledKernel()
	killAndWait(first)
	r.writeRule("  # where it stands makes no difference\n  name: mine\n  time: 24h\n")
	next, again, still := r.startRuledKernel()
	checkEqual(t, "lease", again, lease)
	checkEqual(t, "end of its time", still, until)
	now, err := proc.New("/proc").Uptime()
	if left := until - now; err != nil || left < 23*time.Hour || left > 24*time.Hour {
		t.Errorf("its holder is told to end it in %v, %v", left, err)
	}
	killAndWait(next)
	r.writeRule("  time: 24h\n  gpus: 1\n")
	next, narrower, _ := r.startRuledKernel()
	if narrower == lease {
		t.Error("a lease that was given under a wider rule was taken over")
	}
	killAndWait(next)
	r.writeRule("  time: 3s\n")
	short := r.ruledCommand("lasting", "sh", "-c", `echo "$GPUARD_LEASE"`)
	other := strings.TrimSpace(startAndReadLine(t, short))
	if other == lease {
		t.Error("a lease that was given under another rule was taken over")
	}
	_ = short.Wait()
	time.Sleep(3 * time.Second) // it is kept for ten minutes
	checkEqual(t, "leases", r.countLeases(), 1)
	last, third, _ := r.startRuledKernel()
	if third == other {
		t.Error("a lease whose time is over was taken over")
	}
	killAndWait(last)
	if got := runCommand(t, r.releaseCommand(third)); got.code != 0 {
		t.Errorf("%+v", got)
	}
	r.writeRule("  devices: [7]\n")
	if got := runCommand(t, r.ruledCommand("gpuard", "true")); got.code != 122 {
		t.Errorf("exit %d: %s", got.code, got.err)
	}
	r.writeRule("defaults:\n  share: 8G\n  quota: mps\n  timeout: 1h\n  retry: 3\n") // those that contradict are left out
	if got := runCommand(t, r.ruledCommand("hasty", "true")); got.code != 0 {
		t.Errorf("exit %d: %s", got.code, got.err)
	}
	r.removeKernelFile()
	r.waitUntilFreed()
}

// TestKeepWhileDrained: a next start does not begin on a device that was drained meanwhile.
func TestKeepWhileDrained(t *testing.T) {
	t.Parallel()
	k := kernelFixtureOn(newDemoMachine(t, "demo:2xL4"))
	k.writeKernelFile()
	begin := func() (*exec.Cmd, []string) {
		cmd := k.kernelCommand(nil, "sh", "-c", `echo "$GPUARD_LEASE $CUDA_VISIBLE_DEVICES"; exec sleep 600`)
		return cmd, strings.Fields(startAndReadLine(t, cmd))
	}
	first, had := begin()
	if got := runCommand(t, gpuardCommand(t, k.state, nil, "drain", had[1], "--reason", "smoke", "--machine", k.machine)); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	killAndWait(first)
	next, has := begin()
	if has[0] == had[0] || has[1] == had[1] {
		t.Errorf("it had lease and device %v, and has %v", had, has)
	}
	checkEqual(t, "leases", k.countLeases(), 1)
	killAndWait(next)
	k.removeKernelFile()
	k.waitUntilFreed()
}

// TestKeepWhileOfAnother: another user with the same file does not get the lease.
func TestKeepWhileOfAnother(t *testing.T) {
	t.Parallel()
	k := kernelFixtureOn(newSharedDemoMachine(t, "demo:2xL4"))
	writeFile(t, k.file, "{}", 0o644) // both can read it
	begin := func(uid uint32) (*exec.Cmd, []string) {
		cmd := asUser(uid, k.kernelCommand(nil, "sh", "-c", `echo "$GPUARD_LEASE $CUDA_VISIBLE_DEVICES"; exec sleep 600`))
		cmd.Args[0] = "lasting"
		return cmd, strings.Fields(startAndReadLine(t, cmd))
	}
	first, had := begin(aliceUID)
	killAndWait(first)
	other, has := begin(bobUID)
	if has[0] == had[0] || has[1] == had[1] {
		t.Errorf("alice had lease and device %v, and bob has %v", had, has)
	}
	checkEqual(t, "leases", k.countLeases(), 2)
	next, again := begin(aliceUID)
	checkEqual(t, "alice's lease and device", again, had)
	for id, cmd := range map[string]*exec.Cmd{has[0]: other, had[0]: next} {
		killAndWait(cmd)
		if got := runCommand(t, k.releaseCommand(id)); got.code != 0 {
			t.Errorf("%+v", got)
		}
	}
}
