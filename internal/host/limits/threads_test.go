package limits

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/internal/gate"
)

// TestNoProcess: a user with a low limit is told before the Go runtime ends with a dump; root, and a user with room, are not.
func TestNoProcess(t *testing.T) {
	if limit := os.Getenv("LIMITS_TEST"); limit != "" { // this very test, as another user
		var n uint64
		_, _ = fmt.Sscan(limit, &n)
		if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			t.Fatal(err)
		}
		fmt.Printf("[%s]", ProcessObstacle("/"))
		return
	}
	gate.Need(t, "root")
	as := func(uid, limit int) string {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestNoProcess$")
		cmd.Env = append(os.Environ(), fmt.Sprint("LIMITS_TEST=", limit))
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		_, rest, _ := strings.Cut(string(out), "[")
		text, _, _ := strings.Cut(rest, "]")
		return text
	}
	const nobodyElse = 1_731_004 // no other test is this user
	if got := as(nobodyElse, 11); !regexp.MustCompile(`^cannot start: this user may have no more processes \(ulimit -u is 11, \d are running, and gpuard needs about 12\); .*ulimit -u 6\d$`).MatchString(got) {
		t.Errorf("with a limit of 11: %q", got)
	}
	for uid, limit := range map[int]int{0: 8, nobodyElse: 40} {
		if got := as(uid, limit); got != "" {
			t.Errorf("user %d with a limit of %d: %q", uid, limit, got)
		}
	}
	if got := ThreadFailureText(); !strings.HasPrefix(got, "cannot go on: the system gives this user no more processes (") {
		t.Error(got)
	}
}
