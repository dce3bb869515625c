package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/gate"
	"gpuard/test/apart"
)

// deviceFilePattern is of the device files of these tests. They are /dev/zero under other names.
const deviceFilePattern = "/dev/gpuard-test*"

// containerHost is an engine with its own storage, on a machine with fake GPUs.
type containerHost struct {
	*fakeDriverMachine
	engine string   // "docker", "podman"
	env    []string // of the engine
	uid    uint32   // whose it is
}

// asOwner runs a command as the user of the engine.
func (h *containerHost) asOwner(cmd *exec.Cmd) *exec.Cmd {
	cmd.Env = append(cmd.Env, h.env...)
	if h.uid != 0 {
		cmd = asUser(h.uid, cmd)
	}
	return cmd
}

// engineCommand is gpuard with the engine.
func (h *containerHost) engineCommand(args ...string) *exec.Cmd {
	h.t.Helper()
	if isContained() {
		args = append([]string{"--private-state"}, args...)
	}
	return h.asOwner(h.cmd(append([]string{h.engine}, args...)...))
}

// runEngine runs the engine itself.
func (h *containerHost) runEngine(args ...string) runResult {
	h.t.Helper()
	cmd := exec.Command(h.engine, args...)
	cmd.Env = append(os.Environ(), h.env...)
	path := cmd.Path
	cmd = h.asOwner(cmd)
	cmd.Path = path
	return runCommand(h.t, cmd)
}

// leaseIDs are the leases that status shows, each once.
func (h *containerHost) leaseIDs() (ids []string) {
	h.t.Helper()
	s, _ := h.readStatus()
	for _, d := range s.Devices {
		for _, l := range d.Leases {
			if !slices.Contains(ids, l.ID) {
				ids = append(ids, l.ID)
			}
		}
	}
	return ids
}

// waitForOneLease waits for the only lease.
func (h *containerHost) waitForOneLease() string {
	h.t.Helper()
	waitUntil(h.t, "one lease", func() bool { return len(h.leaseIDs()) == 1 })
	return h.leaseIDs()[0]
}

// checkFreed checks that the lease is gone soon after now. A second is promised; a
// machine with much to do gets more, by the time that its engine takes to answer.
func (h *containerHost) checkFreed(what string) {
	h.t.Helper()
	began, slowest := time.Now(), time.Duration(0)
	waitUntil(h.t, "the lease is gone after "+what, func() bool {
		asked := time.Now()
		h.runEngine("ps", "--quiet")
		slowest = max(slowest, time.Since(asked))
		locks, _ := filepath.Glob(filepath.Join(h.state, "leases", "*", "*.lock"))
		return len(locks) == 0
	})
	took := time.Since(began)
	if h.t.Logf("%s: free after %v; the engine answered within %v", what, took, slowest); took > time.Second+25*slowest {
		h.t.Errorf("the lease was gone %v after %s", took, what)
	}
}

// checkKept checks that the lease is there, and still there when an end would have freed it.
func (h *containerHost) checkKept(what, lease string) {
	h.t.Helper()
	for range 2 {
		if got := h.leaseIDs(); !slices.Equal(got, []string{lease}) {
			h.t.Errorf("%s: the leases are %q, not %s", what, got, lease)
		}
		time.Sleep(1200 * time.Millisecond)
	}
}

// buildImageProgram is a folder with the one program of the images.
func buildImageProgram(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	build := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(dir, "opens"), "gpuard/test/opens")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("cannot build the image's program: %v\n%s", err, text)
	}
	return dir
}

// makeDeviceFiles makes device files for fake GPUs, and a CDI file that lists them by UUID.
func makeDeviceFiles(t *testing.T, n int) (cdi string) {
	t.Helper()
	type edits struct {
		DeviceNodes []map[string]string `json:"deviceNodes"`
	}
	type device struct {
		Name  string `json:"name"`
		Edits edits  `json:"containerEdits"`
	}
	spec := struct {
		Version string   `json:"cdiVersion"`
		Kind    string   `json:"kind"`
		Devices []device `json:"devices"`
	}{Version: "0.3.0", Kind: "nvidia.com/gpu"}
	for i := range n {
		path := fmt.Sprintf("/dev/gpuard-test%d", i)
		_ = os.Remove(path)
		if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))); err != nil { //nolint:gosec // a small number
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(path) })
		if err := os.Chmod(path, 0o666); err != nil {
			t.Fatal(err)
		}
		spec.Devices = append(spec.Devices, device{fakeUUID(i), edits{[]map[string]string{{"path": path}}}})
	}
	text, err := json.Marshal(spec)
	if err == nil {
		err = os.MkdirAll("/run/cdi", 0o755)
	}
	cdi = "/run/cdi/gpuard-test.json"
	if err == nil {
		err = os.WriteFile(cdi, text, 0o644) //nolint:gosec // engines of all users read it
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(cdi) })
	return cdi
}

// newPodmanHost is podman of a user, with the image "opens", and "greedy" whose environment asks for all GPUs.
func newPodmanHost(t *testing.T, r *fakeDriverMachine, uid uint32, program string) *containerHost {
	t.Helper()
	home, err := os.MkdirTemp("/var/tmp", "gpuard-podman-")
	if err == nil {
		err = os.Chown(home, int(uid), int(uid))
	}
	if err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(home, "containers.conf")
	storage := filepath.Join(home, "storage.conf")
	putText(t, conf, "[containers]\ndefault_ulimits = [\"nofile=1024:20000\",\"nproc=4096:20000\"]\nnetns = \"none\"\n[engine]\ncgroup_manager = \"cgroupfs\"\nruntime = \"runc\"\nevents_logger = \"file\"\n")
	putText(t, storage, fmt.Sprintf("[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\n", home+"/graph", home+"/run"))
	for _, path := range []string{conf, storage} {
		if err := os.Chmod(path, 0o644); err != nil { //nolint:gosec // the user reads it
			t.Fatal(err)
		}
	}
	h := &containerHost{r, "podman", []string{"HOME=" + home, "XDG_RUNTIME_DIR=" + home, "CONTAINERS_CONF=" + conf, "CONTAINERS_STORAGE_CONF=" + storage, "XDG_CONFIG_HOME=" + home, "XDG_DATA_HOME=" + home}, uid}
	t.Cleanup(func() {
		h.runEngine("rm", "--all", "--force", "--time", "0")
		h.runEngine("unshare", "rm", "-rf", home+"/graph")
		apart.KillProcesses(apart.ProcessesNaming(home)) // rootless podman leaves a process that keeps its user namespace
		_ = os.RemoveAll(home)
	})
	tar := filepath.Join(home, "image.tar")
	if text, err := exec.Command("tar", "-C", program, "-cf", tar, "opens").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if err := os.Chmod(tar, 0o644); err != nil { //nolint:gosec // the user reads it
		t.Fatal(err)
	}
	for _, args := range [][]string{{"import", tar, "localhost/opens"}, {"import", "--change", "ENV NVIDIA_VISIBLE_DEVICES=all", tar, "localhost/greedy"}} {
		if got := h.runEngine(args...); got.code != 0 {
			gate.NeedStart(t, "podman", fmt.Errorf("podman %q: %+v", args, got))
		}
	}
	return h
}

// openedDevices is what the image's program says of device files.
func openedDevices(text string) (words []string) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) == 3 && f[0] == "opens":
			words = append(words, f[1])
		case len(f) > 1 && f[0] == "cannot":
			words = append(words, "cannot "+f[2])
		case len(f) == 1 && strings.Contains(f[0], "="):
			words = append(words, f[0])
		}
	}
	return words
}

// TestPodman: with real podman, of root and of a user without rights, a container opens the devices of its lease and no
// other, and the lease lives as long as the container.
func TestPodman(t *testing.T) { //nolint:paralleltest // its device files and CDI file are the machine's
	gate.Need(t, "root", "privileged", "podman", "cc")
	makeDeviceFiles(t, 4)
	program := buildImageProgram(t)
	for name, uid := range map[string]uint32{"rootful": 0, "rootless": plainUser} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newFakeDriverMachine(t, makeA100s(4)...)
			if err := os.Chmod(filepath.Dir(filepath.Dir(r.state)), 0o755); err != nil { //nolint:gosec // the user reads it
				t.Fatal(err)
			}
			checkEqual(t, "root makes the folder of the leases", r.run("run", "-q", "--", "true").code, 0)
			h := newPodmanHost(t, r, uid, program)
			h.checkDevices()
			h.checkLeaseEnds()
			h.checkManyContainers()
			h.checkMistakes()
			if uid == 0 {
				h.checkService()
			}
		})
	}
}

// plainUser is a user with a name, which rootless podman needs.
const plainUser = 65534

// TestPodmanBrokenCDI: a CDI file that cannot be read is named in one line, and leaves no lease.
func TestPodmanBrokenCDI(t *testing.T) { //nolint:paralleltest // its CDI file is the machine's
	gate.Need(t, "root", "privileged", "podman", "cc")
	cdi := makeDeviceFiles(t, 1)
	putText(t, cdi, "{")
	h := newPodmanHost(t, newFakeDriverMachine(t, makeA100s(1)...), 0, buildImageProgram(t))
	got := runCommand(t, h.engineCommand("-q", "--", "run", "--rm", "localhost/opens", "/opens", deviceFilePattern, "0s"))
	want := "cannot give /dev/nvidia0 to a container of podman: it is not there, and a CDI file cannot be read ("
	if got.code != 125 || !strings.Contains(got.err, want) || !strings.Contains(got.err, cdi) || strings.Count(got.err, "\n") != 1 {
		t.Errorf("exit %d\n%s", got.code, got.err)
	}
	h.checkFreed("a CDI file that cannot be read")
}

// checkDevices checks what containers open.
func (h *containerHost) checkDevices() {
	t := h.t
	t.Helper()
	const void = "NVIDIA_VISIBLE_DEVICES=void"
	for _, c := range []struct{ flags, line, want string }{
		{"--device 1", "run --rm localhost/opens", "gpuard-test1 " + void},
		{"--device 3,0", "run --rm localhost/opens", "gpuard-test0 gpuard-test3 " + void},
		{"--device 2", "run --rm localhost/greedy", "gpuard-test2 " + void},
		{"--device 2", "run --rm --device nvidia.com/gpu=all -e NVIDIA_VISIBLE_DEVICES=all localhost/greedy", "gpuard-test2 " + void},
		{"--device 0", "run --rm --gpus all localhost/opens", "gpuard-test0 " + void},
		{"--cpu", "run --rm localhost/greedy", void},
	} {
		cmd := h.engineCommand(slices.Concat(strings.Fields(c.flags), []string{"--"}, strings.Fields(c.line), []string{"/opens", deviceFilePattern, "0s"})...)
		cmd.Env = append(cmd.Env, "CUDA_VISIBLE_DEVICES=0,1,2,3")
		got := runCommand(t, cmd)
		if words := strings.Join(openedDevices(got.out), " "); got.code != 0 || words != c.want {
			t.Errorf("%s -- %s: exit %d, it sees %q, want %q\n%s", c.flags, c.line, got.code, words, c.want, got.err)
		}
	}
	h.checkFreed("six containers")
}

// checkLeaseEnds checks how long leases live.
func (h *containerHost) checkLeaseEnds() {
	t := h.t
	t.Helper()
	client := h.engineCommand("-q", "--", "run", "--name", "killed", "localhost/opens", "/opens", deviceFilePattern, "5s")
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	lease := h.waitForOneLease()
	waitUntil(t, "the container runs", func() bool { return h.containerState("killed") == "running" })
	_, _ = client.Process.Kill(), client.Wait()
	h.checkKept("the client was killed", lease)
	checkEqual(t, "the container", h.containerState("killed"), "running")
	waitUntil(t, "the container has ended", func() bool { return h.containerState("killed") != "running" })
	h.checkFreed("the end of a container without a client")

	h.mustRunContainer("-q", "--gpus", "2", "--", "run", "-d", "--name", "behind", "localhost/opens", "/opens", deviceFilePattern, "10m")
	lease = h.waitForOneLease()
	h.checkKept("in the background", lease)
	s, _ := h.readStatus()
	if l := s.Devices[0].Leases; len(l) == 1 && (l[0].Command != "behind" || l[0].Ended) {
		t.Errorf("status shows %+v", l)
	}
	refused := runCommand(t, h.asOwner(h.cmd("cancel", lease)))
	checkEqual(t, "cancel of a container's lease", refused.code, 1)
	checkContains(t, refused.err, "runs in another PID namespace; end its container")
	h.mustRunEngine("restart", "--time", "0", "behind")
	h.checkKept("a restart", lease)
	got := runCommand(t, h.engineCommand("--", "exec", "behind", "/opens", deviceFilePattern, "0s"))
	checkEqual(t, "exec: "+got.err, []any{got.code, len(openedDevices(got.out))}, []any{0, 3})
	h.mustRunEngine("stop", "--time", "0", "behind")
	h.checkFreed("stop")
	got = runCommand(t, h.engineCommand("--device", "0", "--", "start", "behind"))
	checkEqual(t, "start", got.code, 0)
	checkContains(t, got.err, "a container starts on the GPUs that it was created with, whatever --gpus, --device and --mig say")
	again := h.waitForOneLease()
	if s, _ := h.readStatus(); again == lease || len(s.Devices[0].Leases)+len(s.Devices[1].Leases)+len(s.Devices[2].Leases)+len(s.Devices[3].Leases) != 2 {
		t.Errorf("the start has lease %s: %+v", again, s.Devices)
	}
	h.mustRunEngine("rm", "--force", "--time", "0", "behind")
	h.checkFreed("rm --force")

	h.mustRunContainer("--device", "2", "--", "create", "--name", "later", "localhost/opens", "/opens", deviceFilePattern, "0s")
	checkEqual(t, "leases of a container that is only created", len(h.leaseIDs()), 0)
	got = runCommand(t, h.engineCommand("-q", "--", "start", "--attach", "later"))
	checkEqual(t, "its devices: "+got.err, strings.Join(openedDevices(got.out), " "), "gpuard-test2 NVIDIA_VISIBLE_DEVICES=void")
	h.checkFreed("a container that was created before")
}

// containerState is the engine's word for what a container does.
func (h *containerHost) containerState(name string) string {
	return strings.TrimSpace(h.runEngine("inspect", "--format", "{{.State.Status}}", name).out)
}

// mustRunContainer runs gpuard with the engine, which must succeed.
func (h *containerHost) mustRunContainer(args ...string) {
	h.t.Helper()
	if got := runCommand(h.t, h.engineCommand(args...)); got.code != 0 {
		h.t.Fatalf("gpuard %s %q: %+v", h.engine, args, got)
	}
}

func (h *containerHost) mustRunEngine(args ...string) {
	h.t.Helper()
	if got := h.runEngine(args...); got.code != 0 {
		h.t.Fatalf("%s %q: %+v", h.engine, args, got)
	}
}

// checkManyContainers starts 20 containers at the same moment on 4 devices: each gets its turn, and no two have one device together.
func (h *containerHost) checkManyContainers() {
	t := h.t
	t.Helper()
	const n = 20
	answers := make(chan runResult, n)
	for range n {
		cmd := h.engineCommand("-q", "--", "run", "--rm", "localhost/opens", "/opens", deviceFilePattern, "200ms")
		go func() { answers <- runCommand(t, cmd) }()
	}
	type stay struct{ from, to int }
	stays := map[string][]stay{}
	for range n {
		got := <-answers
		f := strings.Fields(got.out)
		if got.code != 0 || len(f) < 5 || f[0] != "opens" || len(openedDevices(got.out)) != 2 {
			t.Errorf("a container of %d: exit %d\n%s%s", n, got.code, got.out, got.err)
			continue
		}
		from, _ := strconv.Atoi(f[2])
		to, _ := strconv.Atoi(f[len(f)-1])
		for _, other := range stays[f[1]] {
			if from < other.to && other.from < to {
				t.Errorf("two containers had %s together", f[1])
			}
		}
		stays[f[1]] = append(stays[f[1]], stay{from, to})
	}
	checkEqual(t, "devices in use", len(stays), 4)
	h.checkFreed("the last of many containers")
}

// checkMistakes checks that what goes wrong is said in one line, and leaves no lease.
func (h *containerHost) checkMistakes() {
	t := h.t
	t.Helper()
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"-- run --pull=never localhost/none", 125, "image not known"},
		{"-- run --privileged localhost/opens", 125, "cannot keep the container to its lease with --privileged"},
		{"-- run --device /dev/nvidia3 localhost/opens", 125, "it is not of the lease"},
		{"-- run --name", 125, "cannot read the command line of podman: option --name has no value"},
		{"-- start none", 125, "cannot start the container none: podman knows none of that name"},
		{"-- run localhost/opens /none", 127, "no such file"},
		{"--log-nothing -- run localhost/opens", 125, "no such flag"},
		{"--gpus 5 -- run localhost/opens", 122, "cannot give 5 GPUs"},
	} {
		got := runCommand(t, h.engineCommand(strings.Fields(c.args)...))
		if got.code != c.code || !strings.Contains(got.err, c.want) {
			t.Errorf("%s: exit %d, want %d\n%s", c.args, got.code, c.code, got.err)
		}
	}
	h.checkFreed("mistakes")
}

// checkService checks that a service whose command starts a container is one like any other: ready by its output, shown by its
// name, started again when the container ends, and ended with it.
func (h *containerHost) checkService() {
	t := h.t
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "gpuard-project-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	putText(t, filepath.Join(dir, "gpuard.yaml"), "services:\n  web:\n    command: podman run --rm localhost/opens /opens "+deviceFilePattern+" 10m\n    device: [1]\n    ready: {log: ^opens}\n    restart: always\n")
	project := func(args ...string) runResult {
		cmd := h.cmd(args...)
		cmd.Env, cmd.Dir = append(cmd.Env, h.env...), dir
		return runCommand(t, cmd)
	}
	got := project("up", "-d")
	checkEqual(t, "up: "+got.err, got.code, 0)
	checkContains(t, got.out, "web is ready")
	first := h.waitForOneLease()
	s, _ := h.readStatus()
	if l := s.Devices[1].Leases; len(l) != 1 || l[0].Command != filepath.Base(dir)+"/web" {
		t.Errorf("status shows %+v", s.Devices)
	}
	h.mustRunEngine("kill", "--all")
	waitUntil(t, "it is started again", func() bool {
		got := project("logs")
		return strings.Count(got.out, "opens gpuard-test1 ") == 2
	})
	if now := h.waitForOneLease(); now == "" {
		t.Errorf("no lease after %s", first)
	}
	checkEqual(t, "down", project("down").code, 0)
	checkEqual(t, "containers that are left", h.runEngine("ps", "--quiet").out, "")
	h.checkFreed("down")
}
