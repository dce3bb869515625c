package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// requiring is a walled machine on which root and an ordinary user must have at least this level.
func requiring(t *testing.T, level string) (w *deviceFileMachine, place string) {
	t.Helper()
	w = newDeviceFileMachine(t)
	file := filepath.Join(w.root, "etc", "gpuard", "config.yaml")
	err := os.MkdirAll(filepath.Dir(file), 0o755) //nolint:gosec // for every user
	if err == nil {
		err = os.WriteFile(file, []byte("rules:\n- name: all\n  users: [root, "+fmt.Sprint(aliceUID)+"]\n  require_isolation: "+level+"\n"), 0o644) //nolint:gosec // likewise
	}
	if err != nil {
		t.Fatal(err)
	}
	return w, `policy: rule "all" (` + file + `:2)`
}

// TestWallByRule: what a rule of the machine requires holds for every command that starts a job, whatever it asks for.
func TestWallByRule(t *testing.T) {
	t.Parallel()
	w, place := requiring(t, "landlock")
	refused := func(says string, words ...string) {
		t.Helper()
		got := runCommand(t, w.isolatedCommand(words...))
		if got.code != 122 || got.out != "" {
			t.Errorf("%q: exit code %d, prints %s", words, got.code, got.out)
		}
		checkContains(t, strings.Join(strings.Fields(got.err), " "), place+" requires isolation by landlock at least", says)
	}
	for _, flags := range []string{"", "--isolate auto", "--isolate landlock", "--require-isolation namespace", "--timeout 1h", "--anyway"} {
		got := runCommand(t, w.isolatedCommand(append(append([]string{"run", "-q", "--device", "1"}, strings.Fields(flags)...), "--", w.openScriptPath())...))
		checkEqual(t, flags+": "+got.err, []any{got.code, got.out}, []any{0, w.wantOpensText(1)})
	}
	got := runCommand(t, w.isolatedCommand("run", "-q", "--device", "1,2", "--", "labbox", "run", "-q", "--device", "GPU-fa4e0000-0000-4000-8000-000000000001", "--", w.openScriptPath()))
	checkEqual(t, "inside of a lease: "+got.err, []any{got.code, got.out}, []any{0, w.wantOpensText(1)})
	got = runCommand(t, w.isolatedCommand("run", "--device", "1", "--", "true"))
	checkContains(t, got.err, "isolated by landlock")
	refused("leave --isolate off out, or have ", "run", "--device", "1", "--isolate", "off", "--", "echo", "begun")
	refused("cannot isolate the job by namespace", "run", "--isolate", "namespace", "--", "echo", "begun")
	refused("without isolation", "run", "--cpu", "--isolate", "off", "--", "echo", "begun")
	refused("without isolation", "run", "--isolate", "off", "--timeout", "1h", "--", "echo", "begun")
	refused("without isolation", "submit", "--isolate", "off", "--", "echo", "begun")
	refused("without isolation", "sweep", "--isolate", "off", "--over", "x=1,2", "--", "echo", "begun")
	refused("which only a command can have that gpuard starts", "reserve", "--for", "1h")

	got = runCommand(t, w.isolatedCommand("submit", "--device", "1", "--", w.openScriptPath()))
	checkEqual(t, "submit: "+got.err, got.code, 0)
	checkEqual(t, "wait", runCommand(t, w.isolatedCommand("wait", "1")).code, 0)
	checkContains(t, runCommand(t, w.isolatedCommand("logs", "1")).out, w.wantOpensText(1))
	got = runCommand(t, w.isolatedCommand("sweep", "--device", "1", "--over", "x=1,2", "--", "sh", "-c", w.openScriptPath()+" | grep -q '^opens nvidia2 nvidiactl'"))
	checkEqual(t, "sweep: "+got.out+got.err, got.code, 0)
	checkEqual(t, "leases", len(w.leaseIsolations()), 0)
}

// TestWallByRuleOfServices: the services of a project, and a default of the user's that asks for none.
func TestWallByRuleOfServices(t *testing.T) {
	t.Parallel()
	w, place := requiring(t, "namespace")
	write := func(name, text string) {
		t.Helper()
		err := os.MkdirAll(filepath.Dir(filepath.Join(w.root, name)), 0o755) //nolint:gosec // a test's
		if err == nil {
			err = os.WriteFile(filepath.Join(w.root, name), []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write("gpuard.yaml", "services:\n  right:\n    device: 1\n    command: sh -c '"+w.openScriptPath()+" >right; exec sleep 60'\n")
	got := runCommand(t, w.isolatedCommand("up", "-d"))
	checkEqual(t, "up: "+got.out+got.err, got.code, 0)
	t.Cleanup(func() { _ = w.isolatedCommand("down").Run() })
	waitUntil(t, "the service has begun", func() bool {
		text, _ := os.ReadFile(filepath.Join(w.root, "right"))
		return string(text) == w.wantOpensText(1)
	})
	write("gpuard.yaml", "services:\n  wrong:\n    isolate: off\n    command: sh -c 'echo begun >wrong'\n")
	got = runCommand(t, w.isolatedCommand("up", "-d"))
	if got.code == 0 {
		t.Errorf("up: %s%s", got.out, got.err)
	}
	checkContains(t, strings.Join(strings.Fields(got.out+got.err), " "), place)
	_, err := os.Stat(filepath.Join(w.root, "wrong"))
	if err == nil {
		t.Error("the service was started without a wall")
	}
	write("config/gpuard/config.yaml", "defaults:\n  isolate: off\n")
	w.env = append(w.env, "XDG_CONFIG_HOME="+filepath.Join(w.root, "config"))
	got = runCommand(t, w.isolatedCommand("run", "--", "echo", "begun"))
	checkEqual(t, "a default: "+got.out, got.code, 122)
	checkContains(t, strings.Join(strings.Fields(got.err), " "), place)
}

// TestWallByRuleOfContainers: an engine starts its containers outside of any wall.
func TestWallByRuleOfContainers(t *testing.T) {
	t.Parallel()
	w, place := requiring(t, "namespace")
	bin := t.TempDir()
	installStubDocker(t, bin, "stubengine")
	for _, words := range [][]string{{"docker", "--", "run", "image"}, {"run", "--", "docker", "run", "image"}, {"submit", "--", "docker", "run", "image"}} {
		cmd := w.isolatedCommand(words...)
		cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"), "DOCKER_HOST=unix:///none")
		got := runCommand(t, cmd)
		if got.code == 0 {
			t.Errorf("%q: %s%s", words, got.out, got.err)
		}
		checkContains(t, strings.Join(strings.Fields(got.err), " "), "cannot start a container on a GPU: "+strings.TrimPrefix(place, "policy: ")+" requires isolation by namespace at least")
	}
}
