package launch

import (
	"fmt"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSignal: how a process ended that another process has waited for. A kernel that cannot tell says so for every end.
func TestSignal(t *testing.T) {
	told := 0
	cases := []struct{ script, want string }{
		{"exit 0", ""},
		{"exit 3", ""},
		{"exit 129", "SIGHUP"},
		{"exit 130", "SIGINT"},
		{"exit 139", ""},
		{"exit 255", ""},
		{"kill -KILL $$", "SIGKILL"},
		{"kill -TERM $$", "SIGTERM"},
	}
	for _, c := range cases {
		cmd := exec.Command("sh", "-c", "read line; "+c.script)
		in, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		pidfd, err := OpenPidfd(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		ended := ExitChannel(pidfd)
		_ = in.Close()
		_ = cmd.Wait()
		<-ended
		got, known := EndSignalOf(pidfd)
		_ = pidfd.Close()
		if known {
			told++
		}
		if known && got != c.want || !known && got != "" {
			t.Errorf("%s: %q (known: %v), want %q", c.script, got, known, c.want)
		}
	}
	var name unix.Utsname
	major, minor := 0, 0
	_ = unix.Uname(&name)
	_, _ = fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor)
	tells := major > 6 || major == 6 && minor >= 15
	if tells != (told == len(cases)) || !tells && told > 0 {
		t.Errorf("Linux %d.%d: %d of %d ends are known", major, minor, told, len(cases))
	}
}
