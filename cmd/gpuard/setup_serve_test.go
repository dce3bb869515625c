package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuard/internal/gate"
)

// TestSetupServe: the units are some for systemd, for a user and for the machine, and are taken away again.
func TestSetupServe(t *testing.T) {
	t.Parallel()
	home, root, state := quietDir(t), t.TempDir(), stateFolder(t)
	gpuard := func(args ...string) runResult {
		cmd := gpuardCommand(t, state, []string{"SITE=" + root, "HOME=" + home, "XDG_CONFIG_HOME=" + filepath.Join(home, ".config"), "XDG_STATE_HOME=" + filepath.Join(home, "state")}, args...)
		cmd.Args[0] = "hasty" // whose root is SITE
		return runCommand(t, cmd)
	}
	own, system := filepath.Join(home, ".config/systemd/user"), filepath.Join(root, "etc/systemd/system")
	if err := os.MkdirAll(system, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ flag, folder, holds, says string }{
		{"--user", own, "WantedBy=default.target", "systemctl --user enable --now gpuard-serve.socket"},
		{"", system, "StateDirectory=gpuard/serve\n", "systemctl enable --now gpuard-serve.socket"},
	} {
		if c.folder == system && !gate.Has(t, "root") {
			continue
		}
		flags := strings.Fields(c.flag)
		got := gpuard(append([]string{"setup", "serve", "--listen", "127.0.0.1:9123", "--token-file", filepath.Join(home, "token")}, flags...)...)
		checkEqual(t, c.flag+": "+got.err, got.code, 0)
		checkContains(t, got.out, c.says)
		checkContains(t, string(must(os.ReadFile(filepath.Join(c.folder, "gpuard-serve.socket")))), "ListenStream=127.0.0.1:9123")
		checkContains(t, string(must(os.ReadFile(filepath.Join(c.folder, "gpuard-serve.service")))), " serve --token-file "+filepath.Join(home, "token"), "Type=notify", "KillMode=process\n", c.holds)
		if c.folder == own {
			verifyUserUnit(t, "serve", home, "gpuard-serve")
		} else if gate.Has(t, "systemd") {
			verifySystemUnits(t, root, "gpuard-serve.service", "gpuard-serve.socket")
		}
		tls := gpuard(append([]string{"setup", "serve", "--listen", "0.0.0.0:9123", "--name", "box.example.org,box", "--token-file", "/etc/token", "--tls-cert", "/etc/a b.pem", "--tls-key", "/etc/key.pem"}, flags...)...)
		checkEqual(t, "with TLS: "+tls.err, tls.code, 0)
		checkContains(t, string(must(os.ReadFile(filepath.Join(c.folder, "gpuard-serve.service")))), `--tls-cert "/etc/a b.pem" --tls-key /etc/key.pem --name box.example.org --name box`)
		checkEqual(t, "remove", gpuard(append([]string{"setup", "serve", "--remove"}, flags...)...).code, 0)
		if left := must(filepath.Glob(filepath.Join(c.folder, "gpuard-serve*"))); len(left) > 0 {
			t.Errorf("still there: %q", left)
		}
	}
	for _, bad := range [][]string{{"--listen", "8470"}, {"--listen", "a b:1"}, {"--token-file", "a$b"}, {"--tls-cert", "a"}, {"--listen", "0.0.0.0:8470", "--token-file", "a"}} {
		if got := gpuard(append([]string{"setup", "serve", "--user"}, bad...)...); got.code != 2 {
			t.Errorf("%v: exit %d, %s", bad, got.code, got.err)
		}
	}
}

// TestServeBySystemd: gpuard serve takes the socket that systemd has opened, and says when it is ready.
func TestServeBySystemd(t *testing.T) {
	gate.Need(t, "systemd")
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(1)...)
	notify := filepath.Join(t.TempDir(), "notify")
	ready, err := net.ListenPacket("unixgram", notify)
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	inner := r.viewCommand("serve")
	cmd := exec.Command("systemd-socket-activate", append([]string{"-l", address, "-E", "NOTIFY_SOCKET=" + notify}, append(envPassingFlags(inner.Env), "gpuard", "serve")...)...)
	cmd.Env = inner.Env
	heard := &outputBuffer{}
	cmd.Stderr = heard
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	p := &website{t: t, base: "http://" + address, cmd: cmd}
	waitUntil(t, "the page answers: "+heard.String(), func() bool { return p.get("/api/status").code == 200 })
	text := make([]byte, 100)
	_ = ready.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, _, err := ready.ReadFrom(text); err != nil || string(text[:n]) != "READY=1" {
		t.Errorf("%q, %v", text[:n], err)
	}
}

// envPassingFlags are flags with which systemd-socket-activate passes an environment on.
func envPassingFlags(env []string) (flags []string) {
	for _, one := range env {
		if name, _, ok := strings.Cut(one, "="); ok {
			flags = append(flags, "-E", name)
		}
	}
	return flags
}
