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

// dockerHost is a Docker engine of its own.
type dockerHost struct {
	*containerHost
	dir    string
	daemon *exec.Cmd
	ended  chan error // of the daemon
}

// newDockerHost starts a Docker engine with the images of newPodmanHost. A stub stands for the hook of NVIDIA's container
// toolkit, so that the engine takes --gpus and passes nothing on.
func newDockerHost(t *testing.T, r *fakeDriverMachine, program string) *dockerHost {
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
	d := &dockerHost{dir: dir}
	d.containerHost = &containerHost{fakeDriverMachine: r, engine: "docker", env: []string{"DOCKER_HOST=unix://" + dir + "/socket", "DOCKER_CONFIG=" + dir + "/config", "PATH=" + filepath.Dir(hook) + ":" + path}}
	t.Cleanup(func() {
		if ids := strings.Fields(d.runEngine("ps", "--all", "--quiet").out); len(ids) > 0 {
			d.runEngine(append([]string{"rm", "--force"}, ids...)...)
		}
		d.stopDaemon()
		_ = exec.Command("umount", dir+"/data").Run()
		_ = os.RemoveAll(dir)
	})
	gate.NeedStart(t, "docker", d.startDaemon())
	tar := filepath.Join(dir, "image.tar")
	if text, err := exec.Command("tar", "-C", program, "-cf", tar, "opens").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	d.mustRunEngine("import", tar, "localhost/opens")
	d.mustRunEngine("import", "--change", "ENV NVIDIA_VISIBLE_DEVICES=all", tar, "localhost/greedy")
	return d
}

// startDaemon starts the daemon and waits until it answers, or ends with an error. Containers outlive it.
func (d *dockerHost) startDaemon() error {
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
	waitUntil(d.t, "docker answers", func() bool { return d.runEngine("version").code == 0 || len(d.ended) > 0 })
	if len(d.ended) > 0 {
		return fmt.Errorf("dockerd has ended: %s", said())
	}
	return nil
}

func (d *dockerHost) stopDaemon() {
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
	r := newFakeDriverMachine(t, makeA100s(4)...)
	if err := os.Chmod(filepath.Dir(filepath.Dir(r.state)), 0o755); err != nil { //nolint:gosec // another user reads it
		t.Fatal(err)
	}
	checkEqual(t, "root makes the folder of the leases", r.run("run", "-q", "--", "true").code, 0)
	d := newDockerHost(t, r, buildImageProgram(t))
	d.checkRequests()
	d.checkRestarts()
	d.checkRefusals()
	d.checkCompose()
}

// checkRequests checks what the engine understood.
func (d *dockerHost) checkRequests() {
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
		d.mustRunContainer(slices.Concat(strings.Fields(c.flags), []string{"--", line[0], "--name", name}, line[1:], []string{"/opens", deviceFilePattern, "0s"})...)
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
		if err := json.Unmarshal([]byte(d.runEngine("inspect", name).out), &got); err != nil || len(got) != 1 {
			t.Fatalf("%s: %v", c.line, err)
		}
		var want []string
		for _, device := range c.devices {
			want = append(want, fakeUUID(device))
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
		d.mustRunEngine("rm", name)
	}
	checkEqual(t, "leases of containers that are only created", len(d.leaseIDs()), 0)
}

// checkRestarts checks how long leases live.
func (d *dockerHost) checkRestarts() {
	t := d.t
	t.Helper()
	client := d.engineCommand("-q", "--", "run", "--name", "killed", "--network", "none", "localhost/opens", "/opens", deviceFilePattern, "10m")
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	lease := d.waitForOneLease()
	waitUntil(t, "the container runs", func() bool { return d.containerState("killed") == "running" })
	_, _ = client.Process.Kill(), client.Wait()
	d.checkKept("the client was killed", lease)
	d.stopDaemon()
	d.checkKept("the daemon has ended", lease)
	if err := d.startDaemon(); err != nil {
		d.t.Fatal(err)
	}
	d.checkKept("the daemon is there again", lease)
	d.mustRunEngine("restart", "--time", "0", "killed")
	d.checkKept("a restart", lease)
	d.mustRunEngine("stop", "--time", "0", "killed")
	d.checkFreed("stop")
	d.mustRunContainer("--", "start", "killed")
	d.waitForOneLease()
	d.mustRunEngine("rm", "--force", "killed")
	d.checkFreed("rm --force")

	d.mustRunContainer("-q", "--", "run", "-d", "--restart=always", "--name", "again", "--network", "none", "localhost/opens", "/opens", deviceFilePattern, "300ms")
	lease = d.waitForOneLease()
	for range 4 { // the engine starts it again after 0.1, 0.2, 0.4 … s
		d.checkKept("while the engine starts it again and again", lease)
	}
	d.mustRunEngine("rm", "--force", "again")
	d.checkFreed("the end of a container with a restart policy")
}

// checkRefusals checks that an engine that cannot be used is said in one line, before a lease is taken.
func (d *dockerHost) checkRefusals() {
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
		cmd := d.engineCommand("--", "run", "localhost/opens")
		cmd.Env = append(cmd.Env, "DOCKER_HOST="+c.host, "USER=ann")
		if c.uid != 0 {
			cmd = asUser(c.uid, cmd)
		}
		got := runCommand(t, cmd)
		if got.code != 125 || !strings.Contains(got.err, c.want) || strings.Count(got.err, "\n") != 1 {
			t.Errorf("%s: exit %d\n%s", name, got.code, got.err)
		}
	}
	const group = 4711 // of the socket; one user is in it
	if err := os.Chown(d.dir+"/socket", 0, group); err != nil {
		t.Fatal(err)
	}
	for member, code := range map[bool]int{true: 0, false: 125} {
		cmd := asUser(plainUser, d.engineCommand("-q", "--", "run", "--rm", "--network", "none", "localhost/opens", "/opens", deviceFilePattern, "0s"))
		cmd.Env = append(cmd.Env, "DOCKER_CONFIG=/nonexistent")
		if member {
			cmd.SysProcAttr.Credential.Groups = []uint32{group}
		}
		if got := runCommand(t, cmd); got.code != code {
			t.Errorf("a user who is in the socket's group (%t): exit %d\n%s", member, got.code, got.err)
		}
	}
	got := runCommand(t, d.engineCommand("-q", "--", "run", "--pull", "never", "localhost/none"))
	if got.code != 125 || !strings.Contains(got.err, "localhost/none") {
		t.Errorf("an image that is missing: exit %d\n%s", got.code, got.err)
	}
	d.checkFreed("mistakes")
}
