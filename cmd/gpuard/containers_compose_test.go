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

// compose plays a project of docker compose: two services with GPUs and one without, in one lease that lives as long as
// the containers.
func (d *dockyard) compose() {
	t := d.t
	t.Helper()
	if !gate.Has(t, "compose") {
		return
	}
	p := &composition{d, t.TempDir()}
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
	p.refused("up", "-d", "cannot lease for service train: no file gives it the GPUs of a lease; write one: gpuard setup docker --compose FILE")
	got := p.run("setup", "docker", "--compose", "compose.yaml")
	same(t, "setup: "+got.err, got.code, 0)
	contains(t, got.out, "service web asks for all GPUs and gets 1", "service train gets 2 of the GPUs")

	plain := p.docker("compose", "up", "-d", "web")
	contains(t, plain.err, "start it by: gpuard docker -- compose up")
	same(t, "a start without gpuard", plain.code == 0, false)
	p.mustDocker("compose", "down", "--timeout", "0")

	p.must("up", "-d")
	lease := d.one()
	first := p.given()
	same(t, "GPUs without db", []int{len(first["web"]), len(first["train"]), len(first["db"])}, []int{1, 2, 0})
	for _, id := range first["train"] {
		if id == first["web"][0] {
			t.Errorf("two services have GPU %s", id)
		}
	}
	d.kept("up -d", lease)
	p.refused("up", "-d", "cannot start service train: it runs already, and would be replaced; end it first (docker compose stop train), or leave it as it is (--no-recreate)")
	p.must("up", "-d", "--no-recreate")
	same(t, "leases after a second up", d.leases(), []string{lease})
	p.mustDocker("compose", "stop", "--timeout", "0", "web")
	d.kept("one of two has ended", lease)
	p.refused("up", "-d", "web", "--no-recreate", "cannot start service web with --no-recreate: its container has GPUs of an earlier lease")
	p.must("run", "--rm", "--entrypoint", "/opens", "web", "/dev/none", "0s")
	p.mustDocker("compose", "down", "--timeout", "0")
	d.freed("compose down")

	client := p.gpuard("up", "web")
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	lease = d.one()
	eventually(t, "web runs", func() bool { return len(p.given()["web"]) == 1 })
	_, _ = client.Process.Kill(), client.Wait()
	if !polled(30*time.Second, func() bool { return len(p.given()) == 0 }) { // it was not yet so far that it ends what it starts
		d.kept("Compose has left its container", lease)
		p.mustDocker("compose", "down", "--timeout", "0")
	}
	d.freed("the end of an attached client")
	same(t, "remove", p.run("setup", "docker", "--compose", "compose.yaml", "--remove").code, 0)
	if entries, _ := os.ReadDir(p.folder); len(entries) != 1 {
		t.Errorf("what is left: %v", entries)
	}
}

// composition is a folder with a project of docker compose.
type composition struct {
	*dockyard
	folder string
}

func (p *composition) run(args ...string) result {
	p.t.Helper()
	cmd := p.asOwner(p.cmd(args...))
	cmd.Dir = p.folder
	cmd.Env = append(cmd.Env, "XDG_DATA_HOME="+p.dir+"/data-home", "HOME="+p.dir+"/home")
	return run(p.t, cmd)
}

func (p *composition) gpuard(args ...string) *exec.Cmd {
	cmd := p.dockyard.gpuard(append([]string{"-q", "--no-wait", "--", "compose"}, args...)...)
	cmd.Dir = p.folder
	return cmd
}

func (p *composition) must(args ...string) {
	p.t.Helper()
	if got := run(p.t, p.gpuard(args...)); got.code != 0 {
		p.t.Fatalf("compose %q: %+v", args, got)
	}
}

// refused takes the arguments and, last, what is said.
func (p *composition) refused(args ...string) {
	p.t.Helper()
	n := len(args) - 1
	got := run(p.t, p.gpuard(args[:n]...))
	if got.code != 125 || !strings.Contains(got.err, args[n]) || strings.Count(got.err, "\n") != 1 {
		p.t.Errorf("compose %q: exit %d\n%s", args[:n], got.code, got.err)
	}
}

func (p *composition) docker(args ...string) result {
	p.t.Helper()
	cmd := exec.Command("docker", args...)
	cmd.Env, cmd.Dir = append(os.Environ(), p.env...), p.folder
	return run(p.t, cmd)
}

func (p *composition) mustDocker(args ...string) {
	p.t.Helper()
	if got := p.docker(args...); got.code != 0 {
		p.t.Fatalf("docker %q: %+v", args, got)
	}
}

// given are the GPUs that the engine was asked for, by service. Those of the label are the same.
func (p *composition) given() map[string][]string {
	p.t.Helper()
	given := map[string][]string{}
	for _, id := range strings.Fields(p.ask("ps", "--quiet").out) {
		var got []struct {
			Config struct {
				Labels map[string]string
				Env    []string
			}
			HostConfig struct {
				DeviceRequests []struct{ DeviceIDs []string }
			}
		}
		if err := json.Unmarshal([]byte(p.ask("inspect", id).out), &got); err != nil || len(got) != 1 {
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
