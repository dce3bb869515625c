package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// newScriptedEngine is a rack with a program of an engine that answers as the script says.
func newScriptedEngine(t *testing.T, engine, script string) *fakeDriverMachine {
	t.Helper()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	bin := t.TempDir()
	writeFile(t, filepath.Join(bin, engine), "#!/bin/sh\n"+script, 0o755)
	r.env = append(r.env, "PATH="+bin+":"+os.Getenv("PATH"))
	return r
}

// TestContainerRefused: what gpuard cannot keep for a container is said in one line before anything is leased.
func TestContainerRefused(t *testing.T) {
	t.Parallel()
	config := t.TempDir()
	writeFile(t, filepath.Join(config, "gpuard", "config.yaml"), fmt.Sprintf("rules:\n- users: [%d]\n  time: 24h\n", os.Geteuid()), 0)
	const ruled = "cannot start a container on a GPU: the rule at "
	for name, c := range map[string]struct {
		env, want string
		args      []string
	}{
		"a share":                   {want: "cannot give a share of a GPU to a container", args: []string{"podman", "--share", "8G", "--", "run", "image"}},
		"a share, by run":           {want: "cannot give a share of a GPU to a container", args: []string{"run", "--share", "8G", "--", "podman", "run", "image"}},
		"a time, in the background": {want: "cannot use --timeout, --retry, --log or --notify with podman run, unless it is run in the foreground", args: []string{"run", "--timeout", "1h", "--", "podman", "run", "-itd", "image"}},
		"a log, of a start":         {want: "cannot use --timeout, --retry, --log or --notify with podman start, unless it is run in the foreground", args: []string{"podman", "--log", "file", "--", "start", "-a", "one"}},
		"a drift":                   {want: "cannot use --drift with a container: it keeps the GPUs that it was created with", args: []string{"podman", "--drift", "--", "run", "image"}},
		"a proof, in a dry run":     {want: "cannot use --verify with a container", args: []string{"podman", "--verify", "--dry-run", "--", "run", "image"}},
		"a level":                   {want: "cannot isolate a container by namespace", args: []string{"run", "--isolate", "namespace", "--", "podman", "run", "image"}},
		"a level, in the queue":     {want: "cannot isolate a container by namespace", args: []string{"submit", "--isolate", "namespace", "--", "podman", "run", "image"}},
		"a level, in a sweep":       {want: "cannot isolate a container by namespace", args: []string{"sweep", "--isolate", "namespace", "--over", "x=1..2", "--", "podman", "run", "image", "{x}"}},
		"a level, in a dry run":     {want: "write --isolate off", args: []string{"podman", "--isolate", "landlock", "--dry-run", "--", "run", "image"}},
		"a level, at least":         {want: "cannot see to --require-isolation for a container", args: []string{"podman", "--require-isolation", "namespace", "--", "run", "image"}},
		"a rule of time":            {want: ruled, env: config, args: []string{"podman", "--", "run", "image"}},
		"a rule, by run":            {want: ruled, env: config, args: []string{"run", "--", "podman", "run", "image"}},
		"a rule, in a dry run":      {want: ruled, env: config, args: []string{"podman", "--dry-run", "--", "run", "image"}},
		"a rule, in a dry run2":     {want: ruled, env: config, args: []string{"run", "--dry-run", "--", "podman", "run", "image"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newScriptedEngine(t, "podman", "exit 0")
			cmd := r.cmd(c.args...)
			if c.env != "" {
				cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+c.env)
			}
			got := runCommand(t, cmd)
			checkEqual(t, "exit", got.code, 125)
			checkContains(t, got.err, c.want)
			locks, _ := filepath.Glob(filepath.Join(r.state, "leases", "*", "*.lock"))
			checkEqual(t, "leases", len(locks), 0)
		})
	}
}

// TestContainerLeavesDefaultLevel: a level of a configuration file is for jobs that can have it, and counts for no container.
func TestContainerLeavesDefaultLevel(t *testing.T) {
	t.Parallel()
	config := t.TempDir()
	writeFile(t, filepath.Join(config, "gpuard", "config.yaml"), "defaults:\n  isolate: namespace\n", 0)
	for _, args := range [][]string{{"podman", "--dry-run", "--machine", "demo", "--", "run", "image"}, {"run", "--dry-run", "--machine", "demo", "--", "docker", "run", "image"}} {
		r := newScriptedEngine(t, "podman", "exit 0")
		cmd := r.cmd(args...)
		cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+config)
		got := runCommand(t, cmd)
		checkEqual(t, strings.Join(args, " ")+": "+got.err, got.code, 0)
		if text := got.out + got.err; strings.Contains(text, "isolated by") || !strings.Contains(text, "the engine would be started as") {
			t.Errorf("%v says %s", args, text)
		}
	}
}

// TestContainerBeyond: what would open more than a lease is refused before one is taken and before the engine starts
// anything, also where only the machine tells: a link, a path from the folder, a volume that was made before.
func TestContainerBeyond(t *testing.T) {
	t.Parallel()
	r := newScriptedEngine(t, "podman", `case "$1 $2" in
"info --format") echo '{"host": {"security": {"rootless": true}}, "version": {"Version": "5.4.0"}}' ;;
"volume inspect") echo '[{"Name": "devs", "Options": {"type": "none", "o": "bind", "device": "/dev"}}]' ;;
"inspect --type") echo '[{"Mounts": [{"Type": "bind", "Source": "/dev"}]}]' ;;
*) echo "$@" >> started ;;
esac
`)
	folder := t.TempDir()
	if err := os.Symlink("/dev", filepath.Join(folder, "link")); err != nil {
		t.Fatal(err)
	}
	up := strings.Repeat("../", strings.Count(folder, "/")+1)
	podman := func(args ...string) runResult {
		t.Helper()
		cmd := r.cmd(append([]string{"podman"}, args...)...)
		cmd.Dir = folder
		return runCommand(t, cmd)
	}
	for _, words := range [][]string{
		{"run", "-v", "./link:/x", "image"}, {"run", "-v", up + "dev:/x", "image"}, {"run", "--mount", "type=glob,src=lin?", "image"}, {"run", "--mount", "type=volume,src=devs,dst=/x", "image"},
		{"create", "--volumes-from", "other", "image"}, {"run", "--pid", "host", "image"}, {"--module", "gpu", "run", "image"}, {"exec", "--privileged", "other", "sh"}, {"kube", "play", "file"}, {"restart", "other"}, {"build", "--device", "/dev/dri", "."},
	} {
		got := podman(append([]string{"--"}, words...)...)
		if got.code != 125 || strings.Count(got.err, "\n") != 1 || !strings.Contains(got.err, "cannot ") {
			t.Errorf("%q: exit %d\n%s", words, got.code, got.err)
		}
	}
	for _, args := range [][]string{{"--mem", "900G", "--", "pull", "image"}, {"--", "ps", "--all"}, {"--cpu", "--", "run", "-v", "./data:/x", "image"}} {
		if got := podman(args...); got.code != 0 {
			t.Errorf("%q: exit %d\n%s", args, got.code, got.err)
		}
	}
	text, _ := os.ReadFile(filepath.Join(folder, "started"))
	checkEqual(t, "what the engine was started for", string(text), "pull image\nps --all\nrun -v ./data:/x --env NVIDIA_VISIBLE_DEVICES=void image\n")
	locks, _ := filepath.Glob(filepath.Join(r.state, "leases", "*", "*.lock"))
	checkEqual(t, "leases", len(locks), 0)
}

// TestComposeBeyond: a service without a GPU is judged with what the project's variables stand for, before anything starts.
func TestComposeBeyond(t *testing.T) {
	t.Parallel()
	r := newScriptedEngine(t, "docker", `case "$*" in
"info --format"*) echo '{"ServerVersion": "29.0.0", "CDISpecDirs": ["/etc/cdi"]}' ;;
"compose config --no-interpolate"*) echo '{"name": "p", "services": {"db": {"volumes": ["$DATA:/x"]}, "web": {"image": "x"}}}' ;;
"compose config"*) echo '{"name": "p", "services": {"db": {"volumes": ["./link:/x"]}, "web": {"image": "x"}}}' ;;
ps*) ;;
*) echo "$@" >> started ;;
esac
`)
	folder := t.TempDir()
	if err := os.Symlink("/dev", filepath.Join(folder, "link")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		options, want string
		code          int
	}{
		{"up -d", "cannot start service db beside a lease: ./link among its volumes: it shows the container devices", 125},
		{"run -v ./link:/x web", "cannot keep the container to its lease with -v ./link:/x: it shows the container devices", 125},
		{"up --watch web", "cannot keep the container to its lease with --watch", 125},
		{"watch", "cannot lease for docker compose watch", 125},
		{"up -d web", "", 0},
		{"logs db", "", 0},
	} {
		cmd := r.cmd(append([]string{"docker", "--", "compose"}, strings.Fields(c.options)...)...)
		cmd.Dir = folder
		cmd.Env = append(cmd.Env, "DOCKER_HOST=unix:///var/run/docker.sock")
		got := runCommand(t, cmd)
		if got.code != c.code || !strings.Contains(got.err, c.want) {
			t.Errorf("compose %s: exit %d\n%s", c.options, got.code, got.err)
		}
	}
	text, _ := os.ReadFile(filepath.Join(folder, "started"))
	checkEqual(t, "what the engine was started for", string(text), "compose up -d web\ncompose logs db\n")
}
