package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// withFileSizeLimit is the program where files may have at most so many blocks of 512 bytes.
func withFileSizeLimit(t *testing.T, blocks string, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	self := filepath.Join(t.TempDir(), "gpuard")
	if err := os.Symlink(cmd.Path, self); err != nil {
		t.Fatal(err)
	}
	cmd.Args = append([]string{"sh", "-c", `ulimit -f "$0" && exec "$@"`, blocks, self}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	return cmd
}

// TestFileSizeLimit: if the limit on the size of files (ulimit -f) leaves no room for a lease, there is an error with
// the reason, and not death by SIGXFSZ. Nothing is leased, and nothing is left behind.
func TestFileSizeLimit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		code int
	}{
		"run":   {[]string{"run", "--machine", "demo:1xL4", "--", "true"}, 125},
		"stay":  {[]string{"run", "--machine", "demo:1xL4", "--timeout", "1m", "--", "true"}, 125},
		"pid":   {[]string{"reserve", "--machine", "demo:1xL4", "--pid", "PID"}, 125},
		"shell": {[]string{"reserve", "--shell", "--machine", "demo:1xL4"}, 125},
		"sweep": {[]string{"sweep", "--machine", "demo:1xL4", "--over", "a=1,2", "--", "echo", "{{.a}}"}, 125},
		"up":    {[]string{"up", "--machine", "demo:1xL4"}, 1},
		"up -d": {[]string{"up", "-d", "--machine", "demo:1xL4"}, 1},
		"drain": {[]string{"drain", "--machine", "demo:1xL4", "0"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDemoMachine(t, "demo:1xL4")
			here := quietDir(t)
			if err := os.WriteFile(filepath.Join(here, "gpuard.yaml"), []byte("services: {a: {command: [sleep, '60']}}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			for i, word := range c.args {
				if word == "PID" {
					c.args[i] = strconv.Itoa(startSleep(t).Process.Pid)
				}
			}
			cmd := withFileSizeLimit(t, "0", gpuardCommand(t, r.state, []string{"HOME=" + here}, c.args...))
			cmd.Dir = here
			got := mustReturn(t, cmd)
			if got.code != c.code || !strings.Contains(got.err, "file too large") || !strings.Contains(joinLines(got.err), "your limit on the size of files (ulimit -f) is too low") {
				t.Errorf("exit %d, %s%s; want %d", got.code, got.out, got.err, c.code)
			}
			if n := r.countLeases(); n != 0 {
				t.Errorf("%d leases", n)
			}
			r.claimAll(1)
		})
	}
}

// TestFileSizeOfTheCommand: what the command is started with is as without gpuard: it ends by the signal, unless it
// catches that itself.
func TestFileSizeOfTheCommand(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"exec": nil, "stay": {"--timeout", "1m"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDemoMachine(t, "demo:1xL4")
			const script = `grep -E '^Sig(Ign|Blk)' /proc/self/status; exec dd if=/dev/zero of="$DEVICES/large" bs=1M count=1 2>/dev/null`
			cmd := r.jobCommand("sh", "-c", script)
			cmd.Args = append(append(append([]string{}, cmd.Args[:2]...), flags...), cmd.Args[2:]...)
			plain := exec.CommandContext(t.Context(), "/bin/sh", "-c", "ulimit -f 64; "+script)
			plain.Env = cmd.Env
			got, want := runCommand(t, withFileSizeLimit(t, "64", cmd)), runCommand(t, plain)
			if got.out != want.out || got.code != want.code || want.code != -1 {
				t.Errorf("exit %d, %q%s; without gpuard %d, %q", got.code, got.out, got.err, want.code, want.out)
			}
		})
	}
}

// TestFileSizeOfTheLog: a log that may not grow any more costs the log, which is said, and not the command.
func TestFileSizeOfTheLog(t *testing.T) {
	t.Parallel()
	r := newDemoMachine(t, "demo:1xL4")
	cmd := r.jobCommand("sh", "-c", `head -c 200000 /dev/zero | tr '\0' x; echo; echo LAST`)
	cmd.Args = append(append(append([]string{}, cmd.Args[:2]...), "--log", filepath.Join(t.TempDir(), "log")), cmd.Args[2:]...)
	got := mustReturn(t, withFileSizeLimit(t, "64", cmd))
	if got.code != 0 || !strings.HasSuffix(got.out, "LAST\n") || !strings.Contains(got.err, "the log is not complete") {
		t.Errorf("exit %d, %d bytes, %s", got.code, len(got.out), got.err)
	}
}
