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

	"golang.org/x/sys/unix"

	"gpuard/internal/gate"
	"gpuard/test/executable"
)

// dockyard is a Docker engine of its own.
type dockyard struct {
	*harbour
	dir    string
	daemon *exec.Cmd
	ended  chan error // of the daemon
}

// newDocker starts a Docker engine with the images of newPodman. A stub stands for the hook of NVIDIA's container
// toolkit, so that the engine takes --gpus and passes nothing on.
func newDocker(t *testing.T, r *rack, program string) *dockyard {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "gpuard-docker-")
	if err != nil {
		t.Fatal(err)
	}
	hook := filepath.Join(dir, "bin", "nvidia-container-runtime-hook")
	if err := os.MkdirAll(filepath.Dir(hook), 0o755); err != nil { //nolint:gosec // programs
		t.Fatal(err)
	}
	executable.Write(t, hook, []byte("#!/bin/sh\nexit 0\n"))
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // another user looks for the socket
		t.Fatal(err)
	}
	path := ""
	for _, pair := range r.Env() {
		if value, ok := strings.CutPrefix(pair, "PATH="); ok {
			path = value
		}
	}
	d := &dockyard{dir: dir}
	d.harbour = &harbour{rack: r, engine: "docker", env: []string{"DOCKER_HOST=unix://" + dir + "/socket", "DOCKER_CONFIG=" + dir + "/config", "PATH=" + filepath.Dir(hook) + ":" + path}}
	t.Cleanup(func() {
		if ids := strings.Fields(d.ask("ps", "--all", "--quiet").out); len(ids) > 0 {
			d.ask(append([]string{"rm", "--force"}, ids...)...)
		}
		d.stop()
		_ = exec.Command("umount", dir+"/data").Run()
		_ = os.RemoveAll(dir)
	})
	gate.NeedStart(t, "docker", d.start())
	tar := filepath.Join(dir, "image.tar")
	if text, err := exec.Command("tar", "-C", program, "-cf", tar, "opens").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	d.mustAsk("import", tar, "localhost/opens")
	d.mustAsk("import", "--change", "ENV NVIDIA_VISIBLE_DEVICES=all", tar, "localhost/greedy")
	return d
}

// start starts the daemon and waits until it answers, or ends with an error. Containers outlive it.
func (d *dockyard) start() error {
	d.t.Helper()
	d.daemon = exec.Command("dockerd", "--host", "unix://"+d.dir+"/socket", "--data-root", d.dir+"/data", "--exec-root", d.dir+"/exec", "--pidfile", d.dir+"/pid",
		"--iptables=false", "--bridge=none", "--storage-driver=vfs", "--live-restore")
	d.daemon.Env = append(os.Environ(), "PATH="+d.dir+"/bin:"+os.Getenv("PATH"))
	log, err := os.OpenFile(d.dir+"/log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer log.Close() //nolint:errcheck // the daemon has it
	d.daemon.Stdout, d.daemon.Stderr = log, log
	if err := d.daemon.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.ended = make(chan error, 1)
	go func() { d.ended <- d.daemon.Wait() }()
	said := func() string {
		text, _ := os.ReadFile(d.dir + "/log")
		return string(text)
	}
	defer func() {
		if d.t.Failed() {
			d.t.Log(said())
		}
	}()
	eventually(d.t, "docker answers", func() bool { return d.ask("version").code == 0 || len(d.ended) > 0 })
	if len(d.ended) > 0 {
		return fmt.Errorf("dockerd has ended: %s", said())
	}
	return nil
}

func (d *dockyard) stop() {
	if d.daemon.Process == nil {
		return
	}
	_ = d.daemon.Process.Signal(unix.SIGTERM)
	d.t.Logf("dockerd has ended: %v", <-d.ended)
}

// TestDocker: a real Docker engine is asked for exactly the devices of the lease, and the lease lives as long as the
// container, also when the engine's daemon is started again.
func TestDocker(t *testing.T) {
	t.Parallel()
	gate.Need(t, "root", "privileged", "docker", "cc")
	r := newRack(t, a100s(4)...)
	if err := os.Chmod(filepath.Dir(filepath.Dir(r.state)), 0o755); err != nil { //nolint:gosec // another user reads it
		t.Fatal(err)
	}
	same(t, "root makes the folder of the leases", r.run("run", "-q", "--", "true").code, 0)
	d := newDocker(t, r, image(t))
	d.requests()
	d.restarts()
	d.refusals()
	d.compose()
}

// requests checks what the engine understood.
func (d *dockyard) requests() {
	t := d.t
	t.Helper()
	for i, c := range []struct {
		flags, line, env string
		devices          []int
	}{
		{"--device 1", "create localhost/opens", "", []int{1}},
		{"--device 3,0", "create --gpus all -e A=b localhost/greedy", "A=b NVIDIA_VISIBLE_DEVICES=all", []int{3, 0}},
		{"--device 2", "create --env NVIDIA_VISIBLE_DEVICES=1,2 localhost/opens", "", []int{2}},
		{"--cpu", "create --gpus all localhost/greedy", "NVIDIA_VISIBLE_DEVICES=void", nil},
	} {
		name := fmt.Sprintf("asked-%d", i)
		line := strings.Fields(c.line)
		d.do(slices.Concat(strings.Fields(c.flags), []string{"--", line[0], "--name", name}, line[1:], []string{"/opens", pattern, "0s"})...)
		var got []struct {
			HostConfig struct {
				Privileged     bool
				Devices        []any
				DeviceRequests []struct {
					Driver       string
					Count        int
					DeviceIDs    []string
					Capabilities [][]string
				}
			}
			Config struct{ Env []string }
		}
		if err := json.Unmarshal([]byte(d.ask("inspect", name).out), &got); err != nil || len(got) != 1 {
			t.Fatalf("%s: %v", c.line, err)
		}
		var want []string
		for _, device := range c.devices {
			want = append(want, uuid(device))
		}
		requests := got[0].HostConfig.DeviceRequests
		switch {
		case want == nil && len(requests) > 0:
			t.Errorf("%s: %+v", c.line, requests)
		case want != nil && (len(requests) != 1 || requests[0].Count != 0 || !slices.Equal(requests[0].DeviceIDs, want) || fmt.Sprint(requests[0].Capabilities) != "[[gpu]]"):
			t.Errorf("%s: the engine is asked for %+v, want %q", c.line, requests, want)
		}
		env := slices.DeleteFunc(got[0].Config.Env, func(pair string) bool { return strings.HasPrefix(pair, "PATH=") })
		slices.Sort(env)
		if strings.Join(env, " ") != c.env || len(got[0].HostConfig.Devices) > 0 || got[0].HostConfig.Privileged {
			t.Errorf("%s: its environment is %q, want %q; %+v", c.line, env, c.env, got[0].HostConfig)
		}
		d.mustAsk("rm", name)
	}
	same(t, "leases of containers that are only created", len(d.leases()), 0)
}

// restarts checks how long leases live.
func (d *dockyard) restarts() {
	t := d.t
	t.Helper()
	client := d.gpuard("-q", "--", "run", "--name", "killed", "--network", "none", "localhost/opens", "/opens", pattern, "10m")
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	lease := d.one()
	eventually(t, "the container runs", func() bool { return d.state("killed") == "running" })
	_, _ = client.Process.Kill(), client.Wait()
	d.kept("the client was killed", lease)
	d.stop()
	d.kept("the daemon has ended", lease)
	if err := d.start(); err != nil {
		d.t.Fatal(err)
	}
	d.kept("the daemon is there again", lease)
	d.mustAsk("restart", "--time", "0", "killed")
	d.kept("a restart", lease)
	d.mustAsk("stop", "--time", "0", "killed")
	d.freed("stop")
	d.do("--", "start", "killed")
	d.one()
	d.mustAsk("rm", "--force", "killed")
	d.freed("rm --force")

	d.do("-q", "--", "run", "-d", "--restart=always", "--name", "again", "--network", "none", "localhost/opens", "/opens", pattern, "300ms")
	lease = d.one()
	for range 4 { // the engine starts it again after 0.1, 0.2, 0.4 … s
		d.kept("while the engine starts it again and again", lease)
	}
	d.mustAsk("rm", "--force", "again")
	d.freed("the end of a container with a restart policy")
}

// refusals checks that an engine that cannot be used is said in one line, before a lease is taken.
func (d *dockyard) refusals() {
	t := d.t
	t.Helper()
	for name, c := range map[string]struct {
		host, want string
		uid        uint32
	}{
		"daemon down":  {"unix:///var/tmp/gpuard-none/socket", "cannot use docker: its daemon does not run; start it: sudo systemctl start docker", 0},
		"not allowed":  {"unix://" + d.dir + "/socket", "cannot use docker: you may not open its socket; ask the administrator for the group docker", plainUser},
		"not this one": {"tcp://192.0.2.1:2375", "cannot lease for an engine that is not of this machine: docker works with tcp://192.0.2.1:2375", 0},
	} {
		cmd := d.gpuard("--", "run", "localhost/opens")
		cmd.Env = append(cmd.Env, "DOCKER_HOST="+c.host, "USER=ann")
		if c.uid != 0 {
			cmd = as(c.uid, cmd)
		}
		got := run(t, cmd)
		if got.code != 125 || !strings.Contains(got.err, c.want) || strings.Count(got.err, "\n") != 1 {
			t.Errorf("%s: exit %d\n%s", name, got.code, got.err)
		}
	}
	const group = 4711 // of the socket; one user is in it
	if err := os.Chown(d.dir+"/socket", 0, group); err != nil {
		t.Fatal(err)
	}
	for member, code := range map[bool]int{true: 0, false: 125} {
		cmd := as(plainUser, d.gpuard("-q", "--", "run", "--rm", "--network", "none", "localhost/opens", "/opens", pattern, "0s"))
		cmd.Env = append(cmd.Env, "DOCKER_CONFIG=/nonexistent")
		if member {
			cmd.SysProcAttr.Credential.Groups = []uint32{group}
		}
		if got := run(t, cmd); got.code != code {
			t.Errorf("a user who is in the socket's group (%t): exit %d\n%s", member, got.code, got.err)
		}
	}
	got := run(t, d.gpuard("-q", "--", "run", "--pull", "never", "localhost/none"))
	if got.code != 125 || !strings.Contains(got.err, "localhost/none") {
		t.Errorf("an image that is missing: exit %d\n%s", got.code, got.err)
	}
	d.freed("mistakes")
}
