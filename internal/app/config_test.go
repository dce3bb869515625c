package app

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
	"gpuard/internal/core/policy"
	"gpuard/internal/core/visible"
	"gpuard/internal/gate"
	"gpuard/internal/host/files"
	"gpuard/internal/host/proc"
)

// TestLoginEnds: where the file system of a configuration file does not answer, as one of a server that is gone, a login goes on
// after a moment, shows no device, and names the file.
func TestLoginEnds(t *testing.T) {
	gate.Need(t, "fuse")
	fuse, err := syscall.Open("/dev/fuse", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	dir := filepath.Join(root, "etc", "gpuard")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("silent", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40755,user_id=0,group_id=0", fuse)); err != nil {
		_ = syscall.Close(fuse)
		t.Fatal(err)
	}
	defer func() { _, _ = syscall.Unmount(dir, syscall.MNT_DETACH), syscall.Close(fuse) }() // which answers whoever still reads
	a := &App{Root: root, Patience: 50 * time.Millisecond, Env: visible.Env{}}
	vars, err := a.Login(t.Context(), policy.LoginAll)
	if err == nil || !strings.Contains(err.Error(), "cannot read "+a.MachineConfig()+" within 50ms: ") {
		t.Errorf("%v", err)
	}
	if text := fmt.Sprint(vars); !strings.Contains(text, "{CUDA_VISIBLE_DEVICES -1 false}") {
		t.Error(text)
	}
}

// TestTrusted: who may have written a file, and what an owner without a name means.
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
		err := trusted("f", files.Text{Access: files.Access{UID: c.uid, GID: c.gid, Mode: c.mode}}, c.machine, 7, names)
		if got := fmt.Sprint(err); (err == nil) != (c.want == "") || !strings.Contains(got, c.want) && c.want != "" {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// TestTicketMax: a ticket carries what the rules give at once, but for a move, which gives back as much as it takes, and inside of
// a lease, where rules say nothing.
func TestTicketMax(t *testing.T) {
	q := &question{app: &App{Proc: proc.New("/proc")}, spec: job.Spec{GPUs: 1}, machine: gpu.Machine{}}
	two := policy.Limits{{GPUs: new(3)}, {GPUs: new(2)}}
	for want, in := range map[int][]pick.Context{2: {{Limits: two}}, 0: {{}, {Limits: two, Moving: "k3f9"}, {Limits: two, Parent: &job.Lease{ID: "k3f9"}}}} {
		for _, in := range in {
			if got := q.ticket(in, time.Now()).Max; got != want {
				t.Errorf("%+v: max %d, want %d", in, got, want)
			}
		}
	}
}
