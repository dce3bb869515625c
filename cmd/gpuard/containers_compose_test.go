package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gpuard/internal/gate"
)

// checkCompose plays a project of docker compose: two services with GPUs and one without, in one lease that lives as long as
// the containers.
func (d *dockerHost) checkCompose() {
	t := d.t
	t.Helper()
	if !gate.Has(t, "compose") {
		return
	}
	p := &composeProject{d, t.TempDir()}
	putText(t, filepath.Join(p.folder, "compose.yaml"), `name: pair
services:
  web:
    image: localhost/greedy
    network_mode: none
    command: /opens /dev/none 10m
    deploy: {resources: {reservations: {devices: [{driver: nvidia, count: all, capabilities: [gpu]}]}}}
  train:
    image: localhost/opens
    network_mode: none
    command: /opens /dev/none 10m
    runtime: nvidia
    environment: ["NVIDIA_VISIBLE_DEVICES=0,3"]
    depends_on: [db]
  db:
    image: localhost/greedy
    network_mode: none
    command: /opens /dev/none 10m
`)
	p.checkComposeRefused("up", "-d", "cannot lease for service train: no file gives it the GPUs of a lease; write one: gpuard setup docker --compose FILE")
	got := p.runInProject("setup", "docker", "--compose", "compose.yaml")
	checkEqual(t, "setup: "+got.err, got.code, 0)
	checkContains(t, got.out, "service web asks for all GPUs and gets 1", "service train gets 2 of the GPUs")

	plain := p.runDocker("compose", "up", "-d", "web")
	checkContains(t, plain.err, "start it by: gpuard docker -- compose up")
	checkEqual(t, "a start without gpuard", plain.code == 0, false)
	p.mustDocker("compose", "down", "--timeout", "0")

	p.mustCompose("up", "-d")
	lease := d.waitForOneLease()
	first := p.givenGPUs()
	checkEqual(t, "GPUs without db", []int{len(first["web"]), len(first["train"]), len(first["db"])}, []int{1, 2, 0})
	for _, id := range first["train"] {
		if id == first["web"][0] {
			t.Errorf("two services have GPU %s", id)
		}
	}
	d.checkKept("up -d", lease)
	p.checkComposeRefused("up", "-d", "cannot start service train: it runs already, and would be replaced; end it first (docker compose stop train), or leave it as it is (--no-recreate)")
	p.mustCompose("up", "-d", "--no-recreate")
	checkEqual(t, "leases after a second up", d.leaseIDs(), []string{lease})
	p.mustDocker("compose", "stop", "--timeout", "0", "web")
	d.checkKept("one of two has ended", lease)
	p.checkComposeRefused("up", "-d", "web", "--no-recreate", "cannot start service web with --no-recreate: its container has GPUs of an earlier lease")
	p.mustCompose("run", "--rm", "--entrypoint", "/opens", "web", "/dev/none", "0s")
	p.mustDocker("compose", "down", "--timeout", "0")
	d.checkFreed("compose down")

	client := p.composeCommand("up", "web")
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	lease = d.waitForOneLease()
	waitUntil(t, "web runs", func() bool { return len(p.givenGPUs()["web"]) == 1 })
	_, _ = client.Process.Kill(), client.Wait()
	if !pollUntil(30*time.Second, func() bool { return len(p.givenGPUs()) == 0 }) { // it was not yet so far that it ends what it starts
		d.checkKept("Compose has left its container", lease)
		p.mustDocker("compose", "down", "--timeout", "0")
	}
	d.checkFreed("the end of an attached client")
	checkEqual(t, "remove", p.runInProject("setup", "docker", "--compose", "compose.yaml", "--remove").code, 0)
	if entries, _ := os.ReadDir(p.folder); len(entries) != 1 {
		t.Errorf("what is left: %v", entries)
	}
}

// composeProject is a folder with a project of docker compose.
type composeProject struct {
	*dockerHost
	folder string
}

func (p *composeProject) runInProject(args ...string) runResult {
	p.t.Helper()
	cmd := p.asOwner(p.cmd(args...))
	cmd.Dir = p.folder
	cmd.Env = append(cmd.Env, "XDG_DATA_HOME="+p.dir+"/data-home", "HOME="+p.dir+"/home")
	return runCommand(p.t, cmd)
}

func (p *composeProject) composeCommand(args ...string) *exec.Cmd {
	cmd := p.engineCommand(append([]string{"-q", "--no-wait", "--", "compose"}, args...)...)
	cmd.Dir = p.folder
	return cmd
}

func (p *composeProject) mustCompose(args ...string) {
	p.t.Helper()
	if got := runCommand(p.t, p.composeCommand(args...)); got.code != 0 {
		p.t.Fatalf("compose %q: %+v", args, got)
	}
}

// checkComposeRefused takes the arguments and, last, what is said.
func (p *composeProject) checkComposeRefused(args ...string) {
	p.t.Helper()
	n := len(args) - 1
	got := runCommand(p.t, p.composeCommand(args[:n]...))
	if got.code != 125 || !strings.Contains(got.err, args[n]) || strings.Count(got.err, "\n") != 1 {
		p.t.Errorf("compose %q: exit %d\n%s", args[:n], got.code, got.err)
	}
}

func (p *composeProject) runDocker(args ...string) runResult {
	p.t.Helper()
	cmd := exec.Command("docker", args...)
	cmd.Env, cmd.Dir = append(os.Environ(), p.env...), p.folder
	return runCommand(p.t, cmd)
}

func (p *composeProject) mustDocker(args ...string) {
	p.t.Helper()
	if got := p.runDocker(args...); got.code != 0 {
		p.t.Fatalf("docker %q: %+v", args, got)
	}
}

// givenGPUs are the GPUs that the engine was asked for, by service. Those of the label are the same.
func (p *composeProject) givenGPUs() map[string][]string {
	p.t.Helper()
	given := map[string][]string{}
	for _, id := range strings.Fields(p.runEngine("ps", "--quiet").out) {
		var got []struct {
			Config struct {
				Labels map[string]string
				Env    []string
			}
			HostConfig struct {
				DeviceRequests []struct{ DeviceIDs []string }
			}
		}
		if err := json.Unmarshal([]byte(p.runEngine("inspect", id).out), &got); err != nil || len(got) != 1 {
			p.t.Fatal(err)
		}
		c := got[0]
		service, list := c.Config.Labels["com.docker.compose.service"], []string(nil)
		for _, r := range c.HostConfig.DeviceRequests {
			list = append(list, r.DeviceIDs...)
		}
		want := strings.Join(list, ",")
		if want == "" {
			want = "void"
		} else if label := c.Config.Labels["gpuard.devices"]; label != want {
			p.t.Errorf("service %s has %s and the label %s", service, want, label)
		}
		if !slices.Contains(c.Config.Env, "NVIDIA_VISIBLE_DEVICES="+want) {
			p.t.Errorf("service %s has %s and the environment %q", service, want, c.Config.Env)
		}
		given[service] = append(given[service], list...)
	}
	return given
}
