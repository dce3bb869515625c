package machine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/internal/gate"
	"gpuard/internal/host/files"
	"gpuard/internal/host/proc"
)

// TestTrusted: which owners and modes of a file are trusted, and an owner without a name.
func TestTrusted(t *testing.T) {
	names := func(uid uint32) string { return fmt.Sprint("u", uid) }
	for _, c := range []struct {
		machine  bool
		uid, gid uint32
		mode     os.FileMode
		want     string
	}{
		{true, 0, 0, 0o644, ""}, {false, 7, 7, 0o600, ""}, {false, 0, 0, 0o644, ""}, {false, 7, 7, 0o664, ""},
		{true, 7, 0, 0o644, "it belongs to u7, and only one of u0 counts there; sudo chown u0 f, or remove it"},
		{true, 65534, 65534, 0o644, "it belongs to u65534, and only one of u0 counts there; sudo chown u0 f, or remove it; in a user namespace"},
		{false, 65534, 65534, 0o644, "it belongs to u65534, and only one of u7 counts there; chown u7 f, or remove it"},
		{true, 0, 0, 0o664, "others than its owner may write it (mode 0664); sudo chmod go-w f"},
		{false, 7, 8, 0o664, "others than its owner may write it (mode 0664); chmod go-w f"},
		{false, 0, 0, 0o666, "others than its owner may write it"},
	} {
		err := checkTrusted("f", files.Text{Access: files.Access{UID: c.uid, GID: c.gid, Mode: c.mode}}, c.machine, 7, names)
		if got := fmt.Sprint(err); (err == nil) != (c.want == "") || !strings.Contains(got, c.want) && c.want != "" {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// TestMachineFileBehindWall: where root's uid is not mapped, the policy of the machine is shown as nobody's and counts all the same, unless
// the caller could have put it there. The test reads it as a user in a namespace of its own.
func TestMachineFileBehindWall(t *testing.T) {
	const variable = "GPUARD_TEST_MACHINE_FILE"
	if path := os.Getenv(variable); path != "" {
		h := &Host{Proc: proc.New("/proc")}
		_, err := h.readConfig(path, true)
		fmt.Println("read:", err)
		return
	}
	gate.Need(t, "root", "userns")
	dir, err := os.MkdirTemp("/", "gpuard-test") // what lies in /tmp anybody could have put there
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	const user = 1_731_035
	file := filepath.Join(dir, "gpuard", "config.yaml")
	for _, c := range []struct {
		folder, mode os.FileMode
		owner        int
		first        int // uid that is mapped
		says         string
	}{
		{0o755, 0o644, 0, user, "read: <nil>\n"},
		{0o777, 0o644, 0, user, "it belongs to "},
		{0o755, 0o666, 0, user, "it belongs to "},
		{0o755, 0o664, 0, user, "others than its owner may write it"},
		{0o755, 0o644, user, user, "it belongs to "},
		{0o755, 0o644, 0, 0, "it belongs to "},
	} {
		err = errors.Join(os.RemoveAll(filepath.Dir(file)), os.Mkdir(filepath.Dir(file), 0o755), os.WriteFile(file, nil, 0o600), os.Chmod(file, c.mode),
			os.Chown(file, c.owner, 0), os.Chmod(filepath.Dir(file), c.folder), os.Chmod(dir, 0o755)) //nolint:gosec // for another user
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestMachineFileBehindWall$")
		cmd.Env, cmd.Dir = append(os.Environ(), variable+"="+file), "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, Credential: &syscall.Credential{Uid: uint32(c.first), Gid: uint32(c.first), NoSetGroups: true}, //nolint:gosec // ids
			UidMappings: []syscall.SysProcIDMap{{ContainerID: c.first, HostID: user, Size: 1}}, GidMappings: []syscall.SysProcIDMap{{ContainerID: c.first, HostID: user, Size: 1}}}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.says) {
			t.Errorf("%+v: %v, says %s", c, err, out)
		}
	}
}
