package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/app/engine"
)

// runStubEngine is a container engine for the chaos: its containers are processes that have nothing of their client, and live
// on when that is killed. A container's file in $ENGINE is locked as long as it lives.
func runStubEngine() {
	var answer any
	folder := os.Getenv("ENGINE")
	switch args := os.Args[1:]; args[0] {
	case "info":
		answer = map[string]any{"ServerVersion": "29.0.0", "Runtimes": map[string]any{"nvidia": map[string]any{}}}
	case "ps":
		name, value, _ := strings.Cut(strings.TrimPrefix(args[len(args)-1], "label="), "=")
		for _, c := range liveContainers(folder, "") {
			if has, found := c.Config.Labels[name]; found && (value == "" || has == value) { // as podman takes an empty value
				fmt.Println(c.ID)
			}
		}
		return
	case "inspect":
		answer = slices.DeleteFunc(liveContainers(folder, ""), func(c engine.Container) bool { return !slices.Contains(args, c.ID) })
	case "run":
		if os.Getenv("STUB_PULLS") != "" { // it has no container before it has the image
			time.Sleep(time.Hour)
		}
		os.Exit(runStubContainer(folder, args))
	case "kill":
		for _, c := range liveContainers(folder, "") {
			if i := slices.Index(args, "--signal"); slices.Contains(args, c.ID) && i > 0 {
				_ = unix.Kill(c.State.PID, unix.SignalNum(args[i+1]))
			} else if slices.Contains(args, c.ID) {
				_ = unix.Kill(-c.State.PID, unix.SIGKILL)
			}
		}
		return
	default:
		fmt.Fprintf(os.Stderr, "cannot do %q\n", args)
		os.Exit(125)
	}
	text, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}

// liveContainers are those of an engine and a lease that live; "" is any lease.
func liveContainers(folder, lease string) []engine.Container {
	all := []engine.Container{}
	found, _ := filepath.Glob(filepath.Join(folder, "*.json"))
	for _, path := range found {
		file, err := os.Open(path)
		if err != nil {
			continue
		}
		var c engine.Container
		lives := unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil
		text, _ := io.ReadAll(file)
		_ = file.Close()
		if lives && json.Unmarshal(text, &c) == nil && (lease == "" || c.Config.Labels[engine.LeaseLabel] == lease) {
			all = append(all, c)
		}
	}
	return all
}

// runStubContainer starts a container, and ends as it does.
func runStubContainer(folder string, args []string) int {
	c := engine.Container{ID: fmt.Sprintf("%016x", rand.Uint64())}
	c.Config.Labels = map[string]string{}
	for i, word := range args {
		if name, value, found := strings.Cut(word, "="); found && args[i-1] == "--label" {
			c.Config.Labels[name] = value
		}
	}
	path := filepath.Join(folder, c.ID)
	file, err := os.Create(path)
	if err == nil {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX)
	}
	if err == nil {
		err = unix.CloseRange(3, 1<<20, unix.CLOSE_RANGE_CLOEXEC) // the lock of the lease is the client's
	}
	self, _ := os.Executable()
	cmd := exec.Command(self)
	cmd.Args = []string{"contained", path}
	words := args[slices.Index(args, "image")+1:]
	if len(words) > 0 {
		cmd.Args = append(cmd.Args, words...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	}
	cmd.Env = append(os.Environ(), "GPUARD_LEASE="+c.Config.Labels[engine.LeaseLabel], "GPUARD_GPUS="+c.Config.Labels[engine.DevicesLabel])
	cmd.ExtraFiles, cmd.SysProcAttr = []*os.File{file}, &syscall.SysProcAttr{Setsid: true}
	var begin io.WriteCloser
	if err == nil {
		begin, err = cmd.StdinPipe()
	}
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		c.State.Status, c.State.PID = "running", cmd.Process.Pid
		err = json.NewEncoder(file).Encode(c)
		_ = file.Close()
	}
	if err == nil {
		err = os.Rename(path, path+".json")
	}
	if err == nil {
		// Only now others can see it. One of them may have killed it already, which is no failure of its start.
		_, err = begin.Write([]byte{'\n'})
		if errors.Is(err, unix.EPIPE) {
			err = nil
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot run a container:", err)
		return 125
	}
	if len(words) > 0 { // one that is looked after: its client passes signals on, and all that is in it ends with its first process
		signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP) // as docker does with a terminal, it passes none on
		defer unix.Kill(-cmd.Process.Pid, unix.SIGKILL)       //nolint:errcheck // there may be nothing left
	}
	_ = cmd.Wait()
	_ = os.Remove(path + ".json")
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return cmd.ProcessState.ExitCode()
}

// runContained is what runs in a container: nothing if its client was killed before it was written down.
func runContained() {
	if n, _ := os.Stdin.Read(make([]byte, 1)); n != 1 {
		return
	}
	if words := os.Args[2:]; len(words) > 0 {
		path, err := exec.LookPath(words[0])
		if err == nil {
			err = unix.Exec(path, words, os.Environ())
		}
		panic(err)
	}
	occupyDevices()
}

// installEngine installs the engine as docker, and returns the environment in which it is found.
func (c *chaosTest) installEngine(env []string) []string {
	c.t.Helper()
	bin := filepath.Dir(c.program)
	if err := os.Symlink("gpuard", filepath.Join(bin, "stubengine")); err != nil {
		c.t.Fatal(err)
	}
	folder := installStubDocker(c.t, bin, filepath.Join(bin, "stubengine"))
	path := ""
	for _, pair := range env {
		if value, found := strings.CutPrefix(pair, "PATH="); found {
			path = value
		}
	}
	c.beside = append(c.beside, func(stop <-chan struct{}) { c.killContainers(stop, folder) })
	return []string{"PATH=" + bin + ":" + path, "DOCKER_HOST=unix:///none"}
}

// installStubDocker installs the engine as docker in a folder of PATH, and returns where its containers are.
func installStubDocker(t testing.TB, bin, engine string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	if err := os.Chmod(folder, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(bin, "docker"), fmt.Sprintf("#!/bin/sh\nENGINE=%s exec %s \"$@\"\n", folder, engine), 0o755)
	return folder
}

// noClientMark marks, in their command line, the holders that must not be killed: a container without a client loses its lease
// with its holder (docs/decisions/0027-containers.md).
const noClientMark = "/without-a-client"

func hasNoClient(pid int) bool {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return len(line) == 0 || strings.Contains(string(line), noClientMark)
}

// containerCommand prepares a run in a container, whose client may be killed if attacked.
func (c *chaosTest) containerCommand(uid uint32, words string, attacked bool, flags ...string) *exec.Cmd {
	cmd := c.userCommand(uid, slices.Concat(c.expandWords(words), []string{c.program, "docker", "-q"}, flags, []string{"--", "run", "--rm", "image"})...)
	if attacked {
		cmd.Env = append(cmd.Env, "DOCKER_CONFIG="+noClientMark)
	}
	return cmd
}

// killContainers kills containers, until stop.
func (c *chaosTest) killContainers(stop <-chan struct{}, folder string) {
	for sleepUnlessStopped(stop, 300*time.Millisecond) {
		if found := liveContainers(folder, ""); len(found) > 0 && unix.Kill(found[rand.IntN(len(found))].State.PID, unix.SIGKILL) == nil {
			c.mu.Lock()
			c.sent["container killed"]++
			c.mu.Unlock()
		}
	}
}
