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

// ruled is a rig with a rule for its user.
type ruled struct {
	*kernelRig
	config string
}

func newRuled(t *testing.T, limits string) *ruled {
	t.Helper()
	r := &ruled{newKernelRig(t), t.TempDir()}
	r.rule(limits)
	return r
}

func (r *ruled) rule(limits string) {
	r.t.Helper()
	writeFile(r.t, filepath.Join(r.config, "gpuard", "config.yaml"), fmt.Sprintf("rules:\n- users: [%d]\n%s", os.Geteuid(), limits), 0)
}

// kernel is the program under that rule, by one of its names.
func (r *ruled) kernel(name string, command ...string) *exec.Cmd {
	cmd := r.kernelRig.kernel(nil, command...)
	cmd.Args[0] = name
	cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+r.config)
	return cmd
}

// begin starts a command, and returns its lease and the moment that its holder was told, when no other holder is left.
func (r *ruled) begin() (cmd *exec.Cmd, lease string, until time.Duration) {
	r.t.Helper()
	cmd = r.kernel("lasting", "sh", "-c", `echo "$GPUARD_LEASE"; exec sleep 600`)
	lease = strings.TrimSpace(saysLine(r.t, cmd))
	eventually(r.t, "one holder", func() bool {
		holders := holdersOf(r.folder())
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
			r := newRuled(t, "  time: 2s\n")
			started := time.Now()
			got := run(t, r.kernel(c.program, "sh", "-c", c.script))
			if spent := time.Since(started); got.code != -1 || spent < 2*time.Second || spent > time.Minute {
				t.Errorf("exit %d after %s", got.code, spent)
			}
			same(t, "output", got.out, "on\n")
			contains(t, got.err, "gpuard: the time of lease ", " is over: ending the command\n")
			r.freed()
		})
	}
}

// TestKeepWhileRuleAnew: the time counts over all starts; a lease whose time is over is not taken over, nor is one that
// was given under other rules.
func TestKeepWhileRuleAnew(t *testing.T) {
	t.Parallel()
	r := newRuled(t, "  time: 24h\n")
	first, lease, until := r.begin()
	endNow(first)
	r.rule("  # where it stands makes no difference\n  name: mine\n  time: 24h\n")
	next, again, still := r.begin()
	same(t, "lease", again, lease)
	same(t, "end of its time", still, until)
	now, err := proc.New("/proc").Uptime()
	if left := until - now; err != nil || left < 23*time.Hour || left > 24*time.Hour {
		t.Errorf("its holder is told to end it in %v, %v", left, err)
	}
	endNow(next)
	r.rule("  time: 24h\n  gpus: 1\n")
	next, narrower, _ := r.begin()
	if narrower == lease {
		t.Error("a lease that was given under a wider rule was taken over")
	}
	endNow(next)
	r.rule("  time: 3s\n")
	short := r.kernel("lasting", "sh", "-c", `echo "$GPUARD_LEASE"`)
	other := strings.TrimSpace(saysLine(t, short))
	if other == lease {
		t.Error("a lease that was given under another rule was taken over")
	}
	_ = short.Wait()
	time.Sleep(3 * time.Second) // it is kept for ten minutes
	same(t, "leases", r.leases(), 1)
	last, third, _ := r.begin()
	if third == other {
		t.Error("a lease whose time is over was taken over")
	}
	endNow(last)
	if got := run(t, r.release(third)); got.code != 0 {
		t.Errorf("%+v", got)
	}
	r.rule("  devices: [7]\n")
	if got := run(t, r.kernel("gpuard", "true")); got.code != 122 {
		t.Errorf("exit %d: %s", got.code, got.err)
	}
	r.rule("defaults:\n  share: 8G\n  quota: mps\n  timeout: 1h\n  retry: 3\n") // those that contradict are left out
	if got := run(t, r.kernel("hasty", "true")); got.code != 0 {
		t.Errorf("exit %d: %s", got.code, got.err)
	}
	r.remove()
	r.freed()
}

// TestKeepWhileDrained: a next start does not begin on a device that was drained meanwhile.
func TestKeepWhileDrained(t *testing.T) {
	t.Parallel()
	k := keptOn(newRig(t, "demo:2xL4"))
	k.write()
	begin := func() (*exec.Cmd, []string) {
		cmd := k.kernel(nil, "sh", "-c", `echo "$GPUARD_LEASE $CUDA_VISIBLE_DEVICES"; exec sleep 600`)
		return cmd, strings.Fields(saysLine(t, cmd))
	}
	first, had := begin()
	if got := run(t, program(t, k.state, nil, "drain", had[1], "--reason", "smoke", "--machine", k.machine)); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	endNow(first)
	next, has := begin()
	if has[0] == had[0] || has[1] == had[1] {
		t.Errorf("it had lease and device %v, and has %v", had, has)
	}
	same(t, "leases", k.leases(), 1)
	endNow(next)
	k.remove()
	k.freed()
}

// TestKeepWhileOfAnother: another user with the same file does not get the lease.
func TestKeepWhileOfAnother(t *testing.T) {
	t.Parallel()
	k := keptOn(forUsers(t, "demo:2xL4"))
	writeFile(t, k.file, "{}", 0o644) // both can read it
	begin := func(uid uint32) (*exec.Cmd, []string) {
		cmd := as(uid, k.kernel(nil, "sh", "-c", `echo "$GPUARD_LEASE $CUDA_VISIBLE_DEVICES"; exec sleep 600`))
		cmd.Args[0] = "lasting"
		return cmd, strings.Fields(saysLine(t, cmd))
	}
	first, had := begin(alice)
	endNow(first)
	other, has := begin(bob)
	if has[0] == had[0] || has[1] == had[1] {
		t.Errorf("alice had lease and device %v, and bob has %v", had, has)
	}
	same(t, "leases", k.leases(), 2)
	next, again := begin(alice)
	same(t, "alice's lease and device", again, had)
	for id, cmd := range map[string]*exec.Cmd{has[0]: other, had[0]: next} {
		endNow(cmd)
		if got := run(t, k.release(id)); got.code != 0 {
			t.Errorf("%+v", got)
		}
	}
}
