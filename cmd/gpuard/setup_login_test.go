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
	g := newPolicyMachine(t, rules+"login: allowed\n")
	masked := func(uid uint32, flag, want string, env ...string) {
		t.Helper()
		cmd := g.commandAs(uid, "env", flag)
		cmd.Env = append(cmd.Env, env...)
		got := runCommand(t, cmd)
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
	masked(bobUID, "--login", "1,3")
	masked(2, "--login", "-1")
	masked(aliceUID, "--login", "") // not named by a rule: may have all
	masked(0, "--login", "")
	masked(0, "--login=none", "-1")
	masked(bobUID, "--login=none", "-1") // a flag may be stricter
	masked(bobUID, "--login", "", "CUDA_VISIBLE_DEVICES=3")
	masked(bobUID, "--login", "", "GPUARD_GPUS=")
	masked(bobUID, "--login", "", "GPUARD_LOGIN=CUDA_VISIBLE_DEVICES=-1") // what the login had set was taken away by hand
	masked(bobUID, "--login", "GPU-", "CUDA_DEVICE_ORDER=FASTEST_FIRST")

	inside := g.commandAs(bobUID, "run", "-q", "--device", "3", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES ${GPUARD_LOGIN-gone}")
	inside.Env = append(inside.Env, "CUDA_VISIBLE_DEVICES=-1", "GPUARD_LOGIN=CUDA_VISIBLE_DEVICES=-1")
	if got := runCommand(t, inside); got.out != "3 gone\n" {
		t.Errorf("gpuard run gives %q: %s", got.out, got.err)
	}
	forged := g.commandAs(bobUID, "run", "-q", "--device", "0", "--", "true")
	forged.Env = append(forged.Env, "CUDA_VISIBLE_DEVICES=0", "GPUARD_LOGIN=CUDA_VISIBLE_DEVICES=0")
	g.checkRun(forged, 122, "policy: ")

	g.writePolicy(rules + "login: none\n")
	for _, uid := range []uint32{aliceUID, bobUID, 2} {
		masked(uid, "--login", "-1")
	}
	masked(0, "--login", "")
	g.writePolicy(rules + "login: all\n")
	masked(bobUID, "--login", "")
	masked(bobUID, "--login=allowed", "1,3")
	g.writePolicy("login: some\n")
	got := runCommand(t, g.commandAs(bobUID, "env", "--login"))
	checkContains(t, got.out, "export CUDA_VISIBLE_DEVICES=-1\n")
	checkContains(t, got.err, "cannot read "+g.policyFile()+":1:8")
	if got.code == 0 || strings.Contains(got.out, "false") {
		t.Errorf("a file that cannot be read: exit %s, %s", strconv.Itoa(got.code), got.out)
	}
}
