package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
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
	"gpuard/test/executable"
)

// jupyterClient is a Jupyter client with one kernel.
type jupyterClient struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// sendRequest says what to do, and returns the answer.
func (n *jupyterClient) sendRequest(what string) (answer string) {
	n.t.Helper()
	if _, err := fmt.Fprintln(n.in, what); err != nil {
		n.t.Fatal(err)
	}
	line, err := n.out.ReadString('\n')
	if err == nil {
		err = json.Unmarshal([]byte(line), &answer)
	}
	if err != nil {
		n.t.Fatalf("%s: %v", what, err)
	}
	return answer
}

// kernelState is the state of the running kernel: what it sees, its lease and its process.
func (n *jupyterClient) kernelState() (mask, lease string, pid int) {
	n.t.Helper()
	words := strings.Fields(n.sendRequest(`run import os; print(os.environ["CUDA_VISIBLE_DEVICES"], os.environ["GPUARD_LEASE"], os.getpid())`))
	if len(words) != 3 {
		n.t.Fatalf("the kernel says %v", words)
	}
	pid, err := strconv.Atoi(words[2])
	if err != nil {
		n.t.Fatal(err)
	}
	return words[0], words[1], pid
}

// jupyterFixture is a person with a kernel of gpuard's on a machine with one device.
type jupyterFixture struct {
	*demoMachine
	home, bin   string
	connections string // where the client writes its connection files
}

func newJupyterFixture(t *testing.T) *jupyterFixture {
	t.Helper()
	gate.Need(t, "jupyter")
	j := &jupyterFixture{newDemoMachine(t, "demo:1xL4"), t.TempDir(), makeProgramFolder(t), t.TempDir()}
	if got := runCommand(t, setupCommand(t, j.home, j.bin, "jupyter")); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	return j
}

// clientEnv is that of everything Jupyter.
func (j *jupyterFixture) clientEnv() []string {
	return []string{"HOME=" + j.home, "PATH=/usr/bin:/bin", "GPUARD_MACHINE=" + j.machine, "GPUARD_STATE=" + j.state,
		"TMPDIR=" + j.connections, "PYTHONDONTWRITEBYTECODE=1", raceOptions()}
}

func (j *jupyterFixture) startClient(kernel string) *jupyterClient {
	j.t.Helper()
	script, err := filepath.Abs("testdata/jupyter.py")
	if err != nil {
		j.t.Fatal(err)
	}
	n := &jupyterClient{t: j.t, cmd: exec.CommandContext(j.t.Context(), "/usr/bin/python3", script, kernel)}
	log, err := os.CreateTemp(j.home, "client-*.log") // no pipe: a kernel may have it longer than the client
	if err != nil {
		j.t.Fatal(err)
	}
	n.cmd.Env, n.cmd.Dir, n.cmd.Stderr = j.clientEnv(), j.home, log
	out, err := n.cmd.StdoutPipe()
	if err == nil {
		n.in, err = n.cmd.StdinPipe()
	}
	if err == nil {
		err = n.cmd.Start()
	}
	if err != nil {
		j.t.Fatal(err)
	}
	n.out = bufio.NewReader(out)
	j.t.Cleanup(func() {
		_, _ = n.cmd.Process.Kill(), n.cmd.Wait()
		if text, _ := os.ReadFile(log.Name()); j.t.Failed() {
			j.t.Logf("the client and its kernels say:\n%s", text)
		}
		_ = log.Close()
	})
	return n
}

// countConnectionFiles counts the connection files that are there.
func (j *jupyterFixture) countConnectionFiles() int {
	found, _ := filepath.Glob(filepath.Join(j.connections, "*.json"))
	return len(found)
}

// TestJupyter: a kernel of Jupyter has a lease that status shows and that a restart keeps, however the kernel ended,
// and even if other requests wait; the lease ends soon after the kernel is shut down, and the next request gets the
// device.
func TestJupyter(t *testing.T) {
	t.Parallel()
	j := newJupyterFixture(t)
	n := j.startClient("python3-gpuard")
	n.sendRequest("start")
	mask, lease, pid := n.kernelState()
	checkEqual(t, "what the kernel sees", mask, "0")
	s, _ := runStatus(t, gpuardCommand(t, j.state, nil, "status", "--machine", j.machine, "--json"))
	if held := s.Devices[0].Leases; len(held) != 1 || held[0].ID != lease || held[0].PID != pid || held[0].Ended {
		t.Errorf("status shows %+v, and the kernel is process %d with lease %s", held, pid, lease)
	}
	waiter := j.waitingCommand("sh", "-c", "exit 7")
	if err := waiter.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = waiter.Process.Kill(), waiter.Wait() })
	waitUntil(t, "somebody waits", func() bool { return j.isWaiting(waiter.Process.Pid) })
	checkEqual(t, "interrupt", n.sendRequest("interrupt"), "KeyboardInterrupt")
	for _, restart := range []string{"restart", "restart now", "revive"} {
		_, _, before := n.kernelState()
		if restart == "revive" {
			_ = unix.Kill(before, unix.SIGKILL)
		}
		n.sendRequest(restart)
		mask, again, after := n.kernelState()
		checkEqual(t, restart+": lease", again, lease)
		checkEqual(t, restart+": what it sees", mask, "0")
		if after == before {
			t.Errorf("%s: it is the same process", restart)
		}
		if !j.isWaiting(waiter.Process.Pid) {
			t.Fatalf("%s: the waiter got the device", restart)
		}
	}
	checkEqual(t, "connection files while it runs", j.countConnectionFiles(), 1)
	n.sendRequest("shutdown")
	ended := time.Now()
	_ = waiter.Wait()
	checkEqual(t, "exit of the waiter", waiter.ProcessState.ExitCode(), 7)
	spent := time.Since(ended)
	if t.Logf("the waiter had run %s after the end of the kernel", spent); spent > 10*time.Second { // it would be 15 s
		t.Error("it waited for a restart that could not come")
	}
	checkEqual(t, "connection files at the end", j.countConnectionFiles(), 0)
	j.waitUntilFreed()
}

// TestJupyterKilled: nothing of a Jupyter that was killed keeps the device.
func TestJupyterKilled(t *testing.T) {
	t.Parallel()
	j := newJupyterFixture(t)
	n := j.startClient("python3-gpuard")
	n.sendRequest("start")
	_, _, pid := n.kernelState()
	_ = n.cmd.Process.Kill()
	_ = n.cmd.Wait()
	t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGKILL) }) // its own watch of its parent ends it before
	waitUntil(t, "the lease has ended", func() bool { return j.countLeases() == 0 })
	checkEqual(t, "connection files that a killed client leaves", j.countConnectionFiles(), 1)

	m := j.startClient("python3-gpuard")
	m.sendRequest("start")
	_, lease, pid := m.kernelState()
	_ = unix.Kill(pid, unix.SIGKILL)
	waitUntil(t, "the lease waits for the next start", func() bool {
		s, _ := runStatus(t, gpuardCommand(t, j.state, nil, "status", "--machine", j.machine, "--json"))
		held := s.Devices[0].Leases
		return len(held) == 1 && held[0].ID == lease && held[0].KeptUntil != nil
	})
	killed := time.Now()
	_ = m.cmd.Process.Kill()
	_ = m.cmd.Wait()
	j.waitUntilFreed()
	t.Logf("free %s after the end of kernel and client", time.Since(killed))
}

// TestJupyterOfVSCode: the command line is changed as VS Code does it, and started by the interpreter that a person
// chose there.
func TestJupyterOfVSCode(t *testing.T) {
	t.Parallel()
	j := newJupyterFixture(t)
	var spec struct{ Argv []string }
	text, err := os.ReadFile(filepath.Join(j.home, ".local/share/jupyter/kernels/python3-gpuard/kernel.json"))
	if err == nil {
		err = json.Unmarshal(text, &spec)
	}
	if err != nil {
		t.Fatal(err)
	}
	chosen := filepath.Join(j.bin, "python3")
	if err := os.Symlink("/usr/bin/python3", chosen); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(j.connections, "of VS Code", "kernel-v2.json")
	writeFile(t, file, "{}", 0)
	i := slices.Index(spec.Argv, "{connection_file}")
	if i < 1 || spec.Argv[i-1] != "-f" {
		t.Fatalf("argv is %q", spec.Argv)
	}
	args := append(slices.Delete(spec.Argv, i-1, i+1), `--f="`+file+`"`)
	k := slices.Index(args, "ipykernel_launcher")
	args = slices.Replace(args, k-1, k+1, "-c", "import os, sys; print(os.environ['GPUARD_LEASE'], sys.executable, sys.argv[1], flush=True)")
	lease := ""
	for range 2 {
		cmd := exec.CommandContext(t.Context(), chosen, args[1:]...)
		cmd.Env = j.clientEnv()
		out, err := cmd.Output()
		words := strings.SplitN(strings.TrimSpace(string(out)), " ", 3)
		if err != nil || len(words) != 3 || words[1] != chosen || words[2] != `--f="`+file+`"` || lease != "" && words[0] != lease {
			t.Errorf("%v: %q after lease %q", err, out, lease)
		}
		lease = words[0]
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	j.waitUntilFreed()
}

// TestSetupJupyter: the kernel is over the one that Jupyter would start, with everything in its folder; two calls do as
// much as one, and --remove leaves every byte as it was.
func TestSetupJupyter(t *testing.T) {
	t.Parallel()
	home, bin := makeEditedHome(t), makeProgramFolder(t)
	own := filepath.Join(home, ".local/share/jupyter/kernels")
	spec := `{"argv": ["{resource_dir}/start", "-f", "{connection_file}"], "display_name": "Mine (local)", "language": "r",
 "env": {"CUDA_VISIBLE_DEVICES": "0", "LD_LIBRARY_PATH": "${HOME}/lib"}, "interrupt_mode": "message", "own": [1, 2],
 "metadata": {"kernel_provisioner": {"provisioner_name": "docker"}}}`
	for path, text := range map[string]string{"Mine/kernel.json": spec, "Mine/start": "#!/bin/sh\n", "Mine/img/logo-64x64.png": "\x89PNG\xff"} {
		writeFile(t, filepath.Join(own, path), text, 0o750)
	}
	if err := os.Symlink("Mine", filepath.Join(own, "linked")); err != nil { // as jupyter kernelspec install --symlink
		t.Fatal(err)
	}
	before := readTree(t, home)
	setup := func(want int, args ...string) runResult {
		t.Helper()
		got := runCommand(t, setupCommand(t, home, bin, append([]string{"jupyter"}, args...)...))
		if got.code != want {
			t.Fatalf("%v: %+v", args, got)
		}
		return got
	}
	choice := []string{"--kernel", "mine", "--mem", "20G", "--fallback", "cpu"}
	setup(0, append(choice, "--dry-run")...)
	checkSameTree(t, "after --dry-run", before, readTree(t, home))
	got := setup(0, choice...)
	checkContains(t, got.out, "CUDA_VISIBLE_DEVICES", `"Mine (GPU, mem 20G, fallback cpu)"`, `note: the provisioner "docker" starts it`)
	if strings.Contains(got.out, "PNG") {
		t.Errorf("a picture is shown:\n%s", got.out)
	}
	written := readTree(t, home)
	setup(0, choice...)
	checkSameTree(t, "after the second time", written, readTree(t, home))
	folder := filepath.Join(own, "mine-gpuard-mem20g-fallbackcpu")
	var read struct {
		Argv []string
		Env  map[string]string
		Mode string `json:"interrupt_mode"`
	}
	text, err := os.ReadFile(filepath.Join(folder, "kernel.json"))
	if err == nil {
		err = json.Unmarshal(text, &read)
	}
	if err != nil {
		t.Fatal(err)
	}
	checkEqual(t, "argv", read.Argv, []string{filepath.Join(bin, "gpuard"), "run", "--mem=20G", "--fallback=cpu", "--keep-while=kernel", "--",
		"{resource_dir}/start", "-f", "{connection_file}"})
	checkEqual(t, "env", read.Env, map[string]string{"LD_LIBRARY_PATH": "${HOME}/lib"})
	checkEqual(t, "interrupt_mode", read.Mode, "message")
	if info, err := os.Stat(filepath.Join(folder, "start")); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("the kernel's own program: %v, %v", info, err)
	}
	setup(0, "--kernel", "mine", "--cpu")
	if text, _ := os.ReadFile(filepath.Join(own, "mine-gpuard-cpu", "kernel.json")); strings.Contains(string(text), "keep-while") || !strings.Contains(string(text), "Mine (no GPU)") {
		t.Errorf("without a GPU: %s", text)
	}
	setup(0, "--kernel", "mine", "--cpu", "--remove")
	for _, pattern := range []string{"A?00", "A*00"} { // what a name of a kernel cannot have tells them apart all the same
		setup(0, "--kernel", "mine", "--model", pattern)
	}
	if both, _ := filepath.Glob(filepath.Join(own, "mine-gpuard-modela-00-*")); len(both) != 2 {
		t.Errorf("of two choices there are %q", both)
	}
	for _, pattern := range []string{"A?00", "A*00"} {
		setup(0, "--kernel", "mine", "--model", pattern, "--remove")
	}
	checkContains(t, setup(0, "--kernel", "LINKED").out, "linked-gpuard/start", "linked-gpuard/img/logo-64x64.png")
	checkContains(t, setup(2, "--kernel", "mien").err, "did you mean --kernel mine?")
	if got := setup(2, "--kernel", "nowhere").err; !strings.Contains(got, "; choose another: mine, linked") || strings.Contains(got, "-gpuard") {
		t.Error(got)
	}
	setup(0, "--kernel", "linked", "--remove")
	checkContains(t, setup(2, "--kernel", "mine", "--name", " Mine").err, "without blanks around it")
	setup(0, "--kernel", "mine", "--exclude", strings.Repeat("0,", 60)+"1")
	if long, _ := filepath.Glob(filepath.Join(own, "mine-gpuard-exclude0*")); len(long) != 1 || len(filepath.Base(long[0])) > 100 {
		t.Errorf("a long choice is %q", long)
	}
	setup(0, "--kernel", "mine", "--exclude", strings.Repeat("0,", 60)+"1", "--remove")
	checkContains(t, setup(2, "--kernel", "mine-gpuard-mem20g-fallbackcpu").err, "starts gpuard already")
	checkContains(t, setup(2, "--kernel", "a/b").err, "names of kernels")
	checkContains(t, setup(2, "--kernel", "mine", "--quota", "mps", "--share", "1G").err, "--quota mps")

	// An edited file stays, with a message.
	edited := append([]byte(" "), text...)
	writeFile(t, filepath.Join(folder, "kernel.json"), string(edited), 0)
	checkContains(t, setup(1, append(choice, "--name", "Other")...).err, "it was changed")
	checkContains(t, setup(1, append(choice, "--remove")...).err, "it was changed")
	if left, _ := os.ReadFile(filepath.Join(folder, "kernel.json")); string(left) != string(edited) {
		t.Errorf("what somebody edited is %q", left)
	}
	writeFile(t, filepath.Join(folder, "kernel.json"), string(text), 0)
	setup(0, append(choice, "--remove")...)
	checkSameTree(t, "after --remove", before, readTree(t, home))
}

// TestSetupJupyterInAnEnvironment: a kernel of an environment is set up there, and its interpreter may still be chosen.
func TestSetupJupyterInAnEnvironment(t *testing.T) {
	t.Parallel()
	home, bin := makeEditedHome(t), makeProgramFolder(t)
	venv := filepath.Join(home, "venv")
	writeFile(t, filepath.Join(venv, "share/jupyter/kernels/python3/kernel.json"), `{"argv": ["python", "-m", "ipykernel_launcher", "-f", "{connection_file}"], "display_name": "Python 3 (ipykernel)"}`, 0o644)
	before := readTree(t, home)
	setup := func(venv string, args ...string) runResult {
		cmd := setupCommand(t, home, bin, append([]string{"jupyter"}, args...)...)
		cmd.Env = append(cmd.Env, "VIRTUAL_ENV="+venv)
		return runCommand(t, cmd)
	}
	if got := setup(venv); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	text, err := os.ReadFile(filepath.Join(venv, "share/jupyter/kernels/python3-gpuard/kernel.json"))
	if err != nil {
		t.Fatal(err)
	}
	// The first word is filled in by Jupyter, or by VS Code, and so is one place with the connection file.
	checkContains(t, string(text), "\"argv\": [\n  \"python\",\n  \"-c\",", `"Python 3 (GPU)"`)
	checkEqual(t, "places with the connection file", strings.Count(string(text), "{connection_file}"), 1)
	another := filepath.Join(t.TempDir(), "another")
	writeFile(t, filepath.Join(another, "share/jupyter/kernels/python3/kernel.json"), `{"argv": ["python3"]}`, 0)
	setup(another)
	checkContains(t, setup("", "--remove").err, "cannot tell which kernel python3-gpuard is meant", "and "+another)
	for _, active := range []string{another, ""} { // when only one is left, it is found though nothing is active
		if got := setup(active, "--remove"); got.code != 0 {
			t.Fatalf("%+v", got)
		}
	}
	checkSameTree(t, "after --remove", before, readTree(t, home))
	writeFile(t, filepath.Join(another, "share/jupyter/kernels/Python3-gpuard/kernel.json"), `{"argv": ["python3"]}`, 0)
	checkContains(t, setup(another).err, "there is one of that name in "+another)
	if err := os.Symlink(filepath.Join(venv, "bin/jupyter"), filepath.Join(bin, "jupyter")); err != nil { // as pipx does it
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(venv, "bin/jupyter"), "#!/bin/sh\n", 0o755)
	checkContains(t, setup("", "--kernel", "none").err, venv+"/share/jupyter/kernels")
	kernels := filepath.Join(venv, "share/jupyter/kernels/python3")
	for i := range 101 {
		writeFile(t, filepath.Join(kernels, fmt.Sprint(i)), "", 0)
	}
	checkContains(t, setup(venv).err, "cannot copy the kernel in "+kernels+": it has more than 100 files")
	writeFile(t, filepath.Join(kernels, "kernel.json"), "{\n \"argv\": [,]}", 0)
	checkContains(t, setup(venv).err, "kernels/python3/kernel.json: line 2:", "mend it, or make it again")
}

// TestJupyterPlaces: kernels are searched in Jupyter's folders, in its order.
func TestJupyterPlaces(t *testing.T) {
	t.Parallel()
	gate.Need(t, "jupyter")
	home := t.TempDir()
	for _, env := range [][]string{
		nil,
		{"JUPYTER_PATH=" + home + "/a:" + home + "/b"},
		{"XDG_DATA_HOME=" + home + "/data"},
		{"XDG_DATA_HOME=" + home + "/data", "JUPYTER_DATA_DIR=" + home + "/own", "JUPYTER_PATH=" + home + "/own"},
		{"XDG_DATA_HOME=" + home + "/data", "PYTHONUSERBASE=" + home + "/base"},
	} {
		jupyter := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", "from jupyter_core.paths import jupyter_path; print(', '.join(dict.fromkeys(jupyter_path('kernels'))))")
		jupyter.Env = append([]string{"HOME=" + home, "PATH=/usr/bin:/bin"}, env...)
		want := runCommand(t, jupyter)
		cmd := setupCommand(t, home, "/usr/bin", "jupyter", "--kernel", "none")
		cmd.Env = append(cmd.Env, append([]string{"PATH=/usr/bin:/bin", "VIRTUAL_ENV=", "CONDA_PREFIX="}, env...)...)
		checkContains(t, runCommand(t, cmd).err, "there is none in "+strings.TrimSpace(want.out)+";")
	}
	// Releases of Jupyter differ in the folders besides an active environment; this is the order of newer ones.
	prefix := filepath.Join(home, "env")
	writeFile(t, filepath.Join(prefix, "bin/x"), "", 0)
	for env, first := range map[string]bool{
		"VIRTUAL_ENV=" + prefix: true, "CONDA_PREFIX=" + prefix + " CONDA_DEFAULT_ENV=mine": true, "CONDA_PREFIX=" + prefix + " CONDA_DEFAULT_ENV=base": false,
		"VIRTUAL_ENV=" + prefix + " JUPYTER_PREFER_ENV_PATH=no": false, "CONDA_PREFIX=" + prefix + " JUPYTER_PREFER_ENV_PATH=1": true,
	} {
		cmd := setupCommand(t, home, "/usr/bin", "jupyter", "--kernel", "none")
		cmd.Env = append(cmd.Env, append([]string{"VIRTUAL_ENV=", "CONDA_PREFIX="}, strings.Fields(env)...)...)
		if said := runCommand(t, cmd).err; strings.Contains(said, "there is none in "+prefix) != first || !strings.Contains(said, prefix+"/share/jupyter/kernels") {
			t.Errorf("%s: %s", env, said)
		}
	}
}

// TestJupyterGuide: what the page about Jupyter says to type works, in this order, and leaves nothing that it does not
// say.
func TestJupyterGuide(t *testing.T) {
	t.Parallel()
	home, bin, state := t.TempDir(), makeProgramFolder(t), stateFolder(t)
	kernels := filepath.Join(home, ".local/share/jupyter/kernels")
	writeFile(t, filepath.Join(kernels, "python3/kernel.json"), `{"argv": ["python3", "-f", "{connection_file}"], "display_name": "Python 3"}`, 0)
	n := 0
	_, blocks := readPage(t, "docs/how-to/jupyter.md")
	for _, line := range typedLines(blocks) {
		cmd := gpuardCommand(t, state, []string{"GPUARD_MACHINE=demo", "HOME=" + home, "PATH=" + bin + ":" + os.Getenv("PATH"), "XDG_STATE_HOME=", "XDG_DATA_HOME="})
		cmd.Path, cmd.Args, cmd.Dir = "/bin/sh", []string{"sh", "-c", line}, home
		if got := runCommand(t, cmd); got.code != 0 {
			t.Errorf("%s: exit %d\n%s%s", line, got.code, got.out, got.err)
		}
		n++
	}
	left, _ := filepath.Glob(filepath.Join(kernels, "*-gpuard*"))
	for i := range left {
		left[i] = filepath.Base(left[i])
	}
	checkEqual(t, "kernels", left, []string{"python3-gpuard", "python3-gpuard-cpu", "python3-gpuard-fallbackcpu", "python3-gpuard-gpus2", "python3-gpuard-share8g"})
	if n < 8 {
		t.Errorf("only %d commands were found", n)
	}
}

func writeFile(t testing.TB, path, text string, mode os.FileMode) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	switch {
	case err == nil && mode&0o100 != 0:
		executable.Write(t, path, []byte(text))
	case err == nil:
		err = os.WriteFile(path, []byte(text), 0o644)
	}
	if err == nil && mode != 0 {
		err = os.Chmod(path, mode)
	}
	if err != nil {
		t.Fatal(err)
	}
}
