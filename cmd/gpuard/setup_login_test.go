package main

import (
	"strconv"
	"strings"
	"testing"
)

// TestLoginByUser: each user's shells see what the policy of the machine allows them, gpuard run gives no less than
// without that, and a file that cannot be read hides everything.
func TestLoginByUser(t *testing.T) {
	t.Parallel()
	const rules = "rules:\n- users: [1]\n  devices: [1, 3]\n- users: [2]\n  gpus: 0\n"
	g := govern(t, rules+"login: allowed\n")
	masked := func(uid uint32, flag, want string, env ...string) {
		t.Helper()
		cmd := g.by(uid, "env", flag)
		cmd.Env = append(cmd.Env, env...)
		got := run(t, cmd)
		line := ""
		for l := range strings.Lines(got.out) {
			if value, is := strings.CutPrefix(l, "export CUDA_VISIBLE_DEVICES="); is {
				line = strings.TrimSpace(value)
			}
		}
		if got.code != 0 || line != want && (want != "GPU-" || strings.Count(line, "GPU-") != 2) {
			t.Errorf("uid %d, %s: %q, want %q (exit %d, %s)", uid, flag, line, want, got.code, got.err)
		}
	}
	masked(bob, "--login", "1,3")
	masked(2, "--login", "-1")
	masked(alice, "--login", "") // not named by a rule: may have all
	masked(0, "--login", "")
	masked(0, "--login=none", "-1")
	masked(bob, "--login=none", "-1") // a flag may be stricter
	masked(bob, "--login", "", "CUDA_VISIBLE_DEVICES=3")
	masked(bob, "--login", "", "GPUARD_GPUS=")
	masked(bob, "--login", "", "GPUARD_LOGIN=CUDA_VISIBLE_DEVICES=-1") // what the login had set was taken away by hand
	masked(bob, "--login", "GPU-", "CUDA_DEVICE_ORDER=FASTEST_FIRST")

	inside := g.by(bob, "run", "-q", "--device", "3", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES ${GPUARD_LOGIN-gone}")
	inside.Env = append(inside.Env, "CUDA_VISIBLE_DEVICES=-1", "GPUARD_LOGIN=CUDA_VISIBLE_DEVICES=-1")
	if got := run(t, inside); got.out != "3 gone\n" {
		t.Errorf("gpuard run gives %q: %s", got.out, got.err)
	}
	forged := g.by(bob, "run", "-q", "--device", "0", "--", "true")
	forged.Env = append(forged.Env, "CUDA_VISIBLE_DEVICES=0", "GPUARD_LOGIN=CUDA_VISIBLE_DEVICES=0")
	g.says(forged, 122, "policy: ")

	g.write(rules + "login: none\n")
	for _, uid := range []uint32{alice, bob, 2} {
		masked(uid, "--login", "-1")
	}
	masked(0, "--login", "")
	g.write(rules + "login: all\n")
	masked(bob, "--login", "")
	masked(bob, "--login=allowed", "1,3")
	g.write("login: some\n")
	got := run(t, g.by(bob, "env", "--login"))
	contains(t, got.out, "export CUDA_VISIBLE_DEVICES=-1\n")
	contains(t, got.err, "cannot read "+g.file()+":1:8")
	if got.code == 0 || strings.Contains(got.out, "false") {
		t.Errorf("a file that cannot be read: exit %s, %s", strconv.Itoa(got.code), got.out)
	}
}
