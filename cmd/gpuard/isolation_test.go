package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/job"
	"gpuard/internal/gate"
	"gpuard/internal/host/isolation"
	"gpuard/test/executable"
	"gpuard/test/fakegpu"
)

// deviceFileMachine is a machine with four GPUs whose device files are real: the kernel opens them, or does not. Their numbers are not the
// indices of the GPUs, as on machines where the driver found them in another order.
type deviceFileMachine struct {
	*fakeDriverMachine
	root string
}

func newDeviceFileMachine(t *testing.T) *deviceFileMachine {
	t.Helper()
	gate.Need(t, "root", "isolation")
	var gpus []fakegpu.GPU
	for i := range 4 {
		gpus = append(gpus, fakegpu.A100(i).With("minor", fmt.Sprint(3-i)))
	}
	root, err := os.MkdirTemp("/var/tmp", "gpuard-wall") // not in /dev/shm: its files are allowed by Landlock one by one then
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	w := &deviceFileMachine{newFakeDriverMachine(t, gpus...), root}
	dev := filepath.Join(w.root, "dev")
	err = errors.Join(os.Chmod(root, 0o755), os.Mkdir(dev, 0o755)) //nolint:gosec // for every user
	if err != nil {
		t.Fatal(err)
	}
	for name, number := range map[string]uint64{"nvidia0": unix.Mkdev(195, 0), "nvidia1": unix.Mkdev(195, 1), "nvidia2": unix.Mkdev(195, 2), "nvidia3": unix.Mkdev(195, 3),
		"nvidiactl": unix.Mkdev(195, 255), "nvidia-uvm": unix.Mkdev(235, 0), "nvidia-uvm-tools": unix.Mkdev(235, 1)} {
		path := filepath.Join(dev, name)
		err = unix.Mknod(path, unix.S_IFCHR|0o666, int(number)) //nolint:gosec // small
		if err == nil {
			err = os.Chmod(path, 0o666) //nolint:gosec // as device files are
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	executable.Write(t, filepath.Join(w.root, "tries"), []byte(`#!/bin/sh
opens=
for name in nvidia0 nvidia1 nvidia2 nvidia3 nvidiactl nvidia-uvm nvidia-uvm-tools; do
	why=$( (true <>`+dev+`/$name) 2>&1 )
	case $why in *"No such device or address"*) opens="$opens $name";; esac # there is no driver behind it
done
echo "opens$opens, mask $CUDA_VISIBLE_DEVICES"
`))
	if got := runCommand(t, exec.CommandContext(t.Context(), filepath.Join(w.root, "tries"))); !strings.HasPrefix(got.out, "opens nvidia0 nvidia1 nvidia2 nvidia3 nvidiactl nvidia-uvm nvidia-uvm-tools, mask ") {
		t.Skipf("device files cannot be used in %s: %s%s", w.root, got.out, got.err)
	}
	return w
}

// wantOpensText is what the script says that opens the GPUs of these indices, and is shown no other.
func (w *deviceFileMachine) wantOpensText(indices ...int) string {
	text := "opens"
	var ids []string
	for minor := range 4 {
		for _, i := range indices {
			if 3-i == minor {
				text += fmt.Sprint(" nvidia", minor)
			}
		}
	}
	for _, i := range indices {
		ids = append(ids, fakeUUID(i))
	}
	return text + " nvidiactl nvidia-uvm nvidia-uvm-tools, mask " + strings.Join(ids, ",") + "\n"
}

func (w *deviceFileMachine) isolatedCommand(args ...string) *exec.Cmd {
	w.t.Helper()
	cmd := w.cmd(args...)
	cmd.Args[0], cmd.Env = "labbox", append(cmd.Env, "LABBOX="+w.root)
	cmd.Dir = w.root
	return cmd
}

// levels are those that are possible here.
func levels() []string {
	all := []string{"namespace", "landlock"}
	if isolation.Cgroup() == "" {
		all = append(all, "cgroup")
	}
	return all
}

func (w *deviceFileMachine) openScriptPath() string { return filepath.Join(w.root, "tries") }

// TestWallOfRun: run, alone and beside its command, and with several processes.
func TestWallOfRun(t *testing.T) {
	t.Parallel()
	w := newDeviceFileMachine(t)
	for _, level := range append(levels(), "auto") {
		for name, flags := range map[string][]string{"in its place": nil, "beside it": {"--timeout", "1h"}, "with a log": {"--log", filepath.Join(w.root, "log-"+level)}} {
			got := runCommand(t, w.isolatedCommand(append(append([]string{"run", "-q", "--device", "1,3", "--isolate", level}, flags...), "--", w.openScriptPath())...))
			checkEqual(t, level+" "+name+": "+got.err, []any{got.code, got.out}, []any{0, w.wantOpensText(1, 3)})
		}
		got := runCommand(t, w.isolatedCommand("run", "-q", "--device", "0,2", "--isolate", level, "--ranks", "--", w.openScriptPath()))
		checkEqual(t, level+" ranks: "+got.err, []any{got.code, got.out}, []any{0, w.wantOpensText(0, 2) + w.wantOpensText(0, 2)})
		got = runCommand(t, w.isolatedCommand("run", "-q", "--cpu", "--isolate", level, "--", w.openScriptPath()))
		checkEqual(t, level+" cpu: "+got.err, []any{got.code, got.out}, []any{0, "opens nvidiactl nvidia-uvm nvidia-uvm-tools, mask -1\n"})
	}
	got := runCommand(t, w.isolatedCommand("run", "-q", "--device", "1", "--", w.openScriptPath()))
	checkContains(t, got.out, "opens nvidia0 nvidia1 nvidia2 nvidia3 nvidiactl")
	got = runCommand(t, w.isolatedCommand("run", "-q", "--device", "1", "--isolate", "namespace", "--", "sh", "-c", "exit 37"))
	checkEqual(t, "exit code", got.code, 37)
	got = runCommand(t, w.isolatedCommand("run", "-q", "--device", "1", "--isolate", "landlock", "--", "sh", "-c", "kill -USR1 $$"))
	checkEqual(t, "signal", got.code, -1)
	checkEqual(t, "leases", len(w.leaseIsolations()), 0)
}

// TestWallWithoutDevice: a job without a device, because it asked for none or fell back to that, opens no GPU of another vendor either.
func TestWallWithoutDevice(t *testing.T) {
	t.Parallel()
	w := newDeviceFileMachine(t)
	kfd, render := filepath.Join(w.root, "dev", "kfd"), filepath.Join(w.root, "dev", "dri", "renderD128")
	err := os.Mkdir(filepath.Dir(render), 0o755) //nolint:gosec // for every user
	for _, path := range []string{kfd, render} {
		if err == nil {
			err = unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 7))) // as /dev/full, which can be opened
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	startToFirstLine(t, w.isolatedCommand("run", "--gpus", "4", "--", "sh", "-c", "echo on; exec sleep 60"))
	script := "true <>" + kfd + " && echo opens; true <>" + render + " && echo opens; echo done"
	for _, level := range levels() {
		for _, flags := range []string{"--cpu", "--fallback cpu", "--cpu --timeout 1h"} {
			got := runCommand(t, w.isolatedCommand(append(append([]string{"run", "-q", "--require-isolation", level}, strings.Fields(flags)...), "--", "bash", "-c", script)...))
			checkEqual(t, level+" "+flags+": "+got.err, []any{got.code, got.out}, []any{0, "done\n"})
		}
	}
}

// leaseIsolations are the leases of the machine, when what has ended is cleaned up.
func (w *deviceFileMachine) leaseIsolations() (all []job.Isolation) {
	w.t.Helper()
	s, _ := runStatus(w.t, w.isolatedCommand("status", "--json"))
	for _, d := range s.Devices {
		for _, l := range d.Leases {
			all = append(all, l.Isolation)
		}
	}
	return all
}

// TestWallShown: the level in force stands in the line at the start, in plan and lease, in JSON too.
func TestWallShown(t *testing.T) {
	t.Parallel()
	w := newDeviceFileMachine(t)
	startToFirstLine(t, w.isolatedCommand("run", "--device", "1", "--isolate", "landlock", "--", "sh", "-c", "echo on; exec sleep 60"))
	checkEqual(t, "leases", w.leaseIsolations(), []job.Isolation{job.Landlock})
	got := runCommand(t, w.isolatedCommand("status"))
	checkContains(t, got.out, "isolated by landlock")
	got = runCommand(t, w.isolatedCommand("run", "--device", "2", "--require-isolation", "namespace", "--dry-run", "--", "true"))
	checkContains(t, got.out+got.err, "isolated by namespace", "files of other users and of root are shown as nobody's")
	got = runCommand(t, w.isolatedCommand("run", "--device", "2", "--isolate", "auto", "--", "true"))
	checkContains(t, got.err, "isolated by namespace, lease ")
	got = runCommand(t, w.isolatedCommand("run", "--json", "--device", "2", "--isolate", "auto", "--", "true"))
	checkContains(t, got.out+got.err, `"isolation":"namespace"`)
}

// TestWallByDefault: the default of a configuration file counts where no flag says otherwise.
func TestWallByDefault(t *testing.T) {
	t.Parallel()
	w := newDeviceFileMachine(t)
	config := filepath.Join(w.root, "config")
	err := os.MkdirAll(filepath.Join(config, "gpuard"), 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(config, "gpuard", "config.yaml"), []byte("defaults:\n  isolate: namespace\n"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.env = append(w.env, "XDG_CONFIG_HOME="+config)
	for flags, want := range map[string]string{"": "opens nvidia2 nvidiactl", "--isolate off": "opens nvidia0 nvidia1 nvidia2 nvidia3 nvidiactl", "--require-isolation landlock": "opens nvidia2 nvidiactl"} {
		got := runCommand(t, w.isolatedCommand(append(append([]string{"run", "-q", "--device", "1"}, strings.Fields(flags)...), "--", w.openScriptPath())...))
		checkContains(t, got.out+got.err, want)
	}
}

// TestWallOfOthers: jobs of a queue and of a sweep, with a keeper and without, and services are behind the same wall.
func TestWallOfOthers(t *testing.T) {
	t.Parallel()
	w := newDeviceFileMachine(t)
	for _, flags := range []string{"", "--timeout 1h"} {
		words := append([]string{"submit", "--device", "1", "--isolate", "namespace"}, strings.Fields(flags)...)
		got := runCommand(t, w.isolatedCommand(append(words, "--", w.openScriptPath())...))
		checkEqual(t, "submit "+flags+got.err, got.code, 0)
	}
	got := runCommand(t, w.isolatedCommand("wait", "1", "2"))
	checkEqual(t, "wait: "+got.out+got.err, got.code, 0)
	for _, number := range []string{"1", "2"} {
		checkContains(t, runCommand(t, w.isolatedCommand("logs", number)).out, w.wantOpensText(1))
	}
	for _, flags := range []string{"", "--timeout 1h"} {
		words := append([]string{"sweep", "--device", "1", "--isolate", "landlock", "--over", "x=1,2"}, strings.Fields(flags)...)
		got = runCommand(t, w.isolatedCommand(append(words, "--", w.openScriptPath())...))
		checkEqual(t, "sweep "+flags+": "+got.out+got.err, got.code, 0)
	}
	got = runCommand(t, w.isolatedCommand("sweep", "--device", "1", "--isolate", "landlock", "--over", "x=1,2", "--", "sh", "-c", w.openScriptPath()+" | grep -q '^opens nvidia2 nvidiactl'"))
	checkEqual(t, "what a sweep opens: "+got.out+got.err, got.code, 0)
}

// TestWallFailsClosed: where the wall cannot be built as asked, nothing is started and nothing stays leased.
func TestWallFailsClosed(t *testing.T) {
	t.Parallel()
	w := newDeviceFileMachine(t)
	words := []string{"--device", "1", "--isolate", "namespace", "--", "sh", "-c", "echo begun"}
	for name, flags := range map[string][]string{"in its place": {"run", "-q"}, "beside it": {"run", "-q", "--timeout", "1h"}} {
		cmd := w.isolatedCommand(append(flags, words...)...)
		folder, err := os.Open("/")
		if err != nil {
			t.Fatal(err)
		}
		cmd.ExtraFiles = []*os.File{folder}
		got := runCommand(t, cmd)
		_ = folder.Close()
		checkEqual(t, name+": "+got.err, []any{got.code, got.out}, []any{125, ""})
		checkContains(t, got.err, `cannot start "sh" behind a wall, so it was not started: descriptor 3`, "3>&-")
	}
	for _, flags := range [][]string{{"--isolate", "auto"}, {"--require-isolation", "namespace"}} { // Landlock needs no closed folder
		cmd := w.isolatedCommand(append(append([]string{"run", "-q", "--device", "1"}, flags...), "--", w.openScriptPath())...)
		folder, err := os.Open("/")
		if err != nil {
			t.Fatal(err)
		}
		cmd.ExtraFiles = []*os.File{folder}
		got := runCommand(t, cmd)
		_ = folder.Close()
		checkEqual(t, flags[0]+": "+got.err, []any{got.code, got.out}, []any{0, w.wantOpensText(1)})
	}
	waitUntil(t, "nothing is leased", func() bool { return len(w.leaseIsolations()) == 0 })
	for flags, says := range map[string]string{
		"--ids index --isolate namespace":                  "cannot use --ids index",
		"--isolate off --require-isolation landlock":       "contradict each other",
		"--isolate namespace --require-isolation landlock": "asks for less than the second",
		"--isolate cgroup --require-isolation namespace":   "asks for less than the second",
		"--ids index --isolate cgroup":                     "cannot use --ids index",
		"--machine demo --isolate cgroup":                  "the machine is invented",
		"--isolate moat":                                   "write off, auto, namespace, landlock or cgroup",
		"--require-isolation auto":                         "write cgroup, namespace or landlock",
		"--machine demo --isolate namespace":               "the machine is invented",
		"--machine demo --require-isolation namespace":     "the machine is invented",
	} {
		got := runCommand(t, w.isolatedCommand(append(append([]string{"run"}, strings.Fields(flags)...), "--", "echo", "begun")...))
		if got.code != 122 && got.code != 125 || got.out != "" {
			t.Errorf("%s: exit code %d, prints %s", flags, got.code, got.out)
		}
		checkContains(t, strings.Join(strings.Fields(got.err), " "), says)
	}
}

// TestWallOfFamilies: what a program starts is behind the same wall, however it is started.
func TestWallOfFamilies(t *testing.T) {
	t.Parallel()
	gate.Need(t, "python3")
	w := newDeviceFileMachine(t)
	script := filepath.Join(w.root, "family.py")
	err := os.WriteFile(script, []byte(`
import multiprocessing, os, subprocess, sys

def opens(number):
    try:
        os.close(os.open(f"`+w.root+`/dev/nvidia{number}", os.O_RDWR))
    except OSError as e:
        return e.strerror == "No such device or address"  # there is no driver behind it
    return True

if __name__ == "__main__":
    for method in "fork", "spawn", "forkserver":
        with multiprocessing.get_context(method).Pool(4) as pool:
            print(method, [n for n, is_open in enumerate(pool.map(opens, range(4))) if is_open], flush=True)
    ranks = [subprocess.Popen([sys.executable, "-c", "import os, subprocess; print(subprocess.run(['`+w.openScriptPath()+`'], capture_output=True, text=True).stdout.split(', ')[0])"],
             start_new_session=True, env={"PATH": os.environ["PATH"], "RANK": str(i)}, stdout=subprocess.PIPE, text=True) for i in range(3)]
    for rank in ranks:
        print(rank.communicate()[0], end="", flush=True)
    if os.fork() == 0:  # a daemon
        os.setsid()
        print("daemon", [n for n in range(4) if opens(n)], flush=True)
        os._exit(0)
    os.wait()
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	rank := "opens nvidia0 nvidia2 nvidiactl nvidia-uvm nvidia-uvm-tools\n"
	for _, level := range levels() {
		got := runCommand(t, w.isolatedCommand("run", "-q", "--device", "1,3", "--isolate", level, "--", "python3", script))
		checkEqual(t, level+": "+got.err, got.out, "fork [0, 2]\nspawn [0, 2]\nforkserver [0, 2]\n"+rank+rank+rank+"daemon [0, 2]\n")
	}
}

// TestWallJobControl: behind a wall the keys of the terminal, jobs, bg and fg, deaths and exit codes are as without gpuard.
func TestWallJobControl(t *testing.T) {
	gate.Need(t, "isolation")
	for _, level := range levels() {
		for _, beside := range []string{"", " --timeout 1h"} {
			t.Run(level+beside, func(t *testing.T) {
				t.Parallel()
				compareWithPrefix(t, strings.Fields("gpuard run -q --cpu --isolate "+level+beside+" --"), func(f *commandPrefix) (seen []string) {
					s := startOnTerminal(f, f.cmd(jobControlShells()["bash"]...))
					s.waitForScreen(shellPrompt + "$")
					note := func(text string) { seen = append(seen, f.comparableText(text)) }
					note(s.typeLine("ulimit -c 0; PS1='" + shellPrompt + "'"))
					s.typeKeys("$FRONT listen INT WINCH USR1 TERM\n")
					pid := s.waitForListener()
					s.typeKeys("\x03")
					note(s.waitForScreen("got INT\n"))
					s.typeKeys("\x1a")
					note(s.waitForScreen(shellPrompt + "$"))
					note(s.typeLine("echo code $?"))
					note(s.typeLine("jobs"))
					s.typeKeys("fg\n")
					s.waitForForeground(s.cmd.Process.Pid)
					note(s.waitForScreen("USR1 TERM\n"))
					s.typeKeys("\x03")
					note(s.waitForScreen("got INT\n"))
					err := unix.Kill(pid, unix.SIGUSR2)
					if err != nil {
						f.Error(err)
					}
					note(s.waitForScreen(shellPrompt + "$"))
					note(s.typeLine("echo code $?"))
					note(s.typeLine("$FRONT sh -c 'exit 9'; echo code $?"))
					note(s.typeLine(`sh -c "trap '' INT; $FRONT grep SigIgn /proc/self/status; true"`))
					note(s.typeLine(`sh -c "trap '' HUP QUIT INT; $FRONT grep SigIgn /proc/self/status; true"`))
					return seen
				})
			})
		}
	}
}

// TestWallExplained: explain and verify know that numbers mean the GPUs of the lease there.
func TestWallExplained(t *testing.T) {
	t.Parallel()
	w := newDeviceFileMachine(t)
	for i, level := range levels() {
		device := i + 1
		lease := startToFirstLine(t, w.isolatedCommand("run", "-q", "--anyway", "--device", fmt.Sprint(device), "--isolate", level, "--", "sh", "-c", "echo $GPUARD_LEASE; exec env CUDA_VISIBLE_DEVICES=0 sleep 60"))
		s, _ := runStatus(t, w.isolatedCommand("status", "--json"))
		pid := s.Devices[device].Leases[0].PID
		said := ""
		waitUntil(t, "the process has its own variable", func() bool {
			got := runCommand(t, w.isolatedCommand("explain", fmt.Sprint(pid)))
			said = got.out + got.err
			return strings.Contains(said, "CUDA_VISIBLE_DEVICES=0 ") || strings.Contains(said, "CUDA_VISIBLE_DEVICES=0\n")
		})
		checkContains(t, said, "isolated by "+level, "lease "+lease+": what it sees is what the lease holds", fmt.Sprintf("cuda:0     %d  A100", device))
	}
}

// TestWallWithin: a lease within the lease has a wall within the wall, of root and of an ordinary user; a namespace cannot be made under
// Landlock, so auto takes the other there.
func TestWallWithin(t *testing.T) {
	t.Parallel()
	w := newDeviceFileMachine(t)
	err := errors.Join(os.Chmod(filepath.Dir(w.state), 0o777), os.Chmod(filepath.Dir(filepath.Dir(w.state)), 0o755)) //nolint:gosec // for another user's leases
	if err != nil {
		t.Fatal(err)
	}
	for _, uid := range []uint32{0, bobUID} {
		for _, levels := range pairs(uid) {
			cmd := w.isolatedCommand("run", "-q", "--device", "1,2", "--isolate", levels[0], "--", "labbox", "run", "-q", "--device", "GPU-fa4e0000-0000-4000-8000-000000000002", "--isolate", levels[1], "--", w.openScriptPath())
			if uid != 0 {
				cmd = asUser(uid, cmd)
			}
			got := runCommand(t, cmd)
			if levels == [2]string{"landlock", "namespace"} {
				checkEqual(t, "exit code under Landlock", got.code, 122)
				checkContains(t, strings.Join(strings.Fields(got.err), " "), "or Landlock forbids it", "here works --isolate landlock")
				continue
			}
			checkEqual(t, fmt.Sprintf("user %d, %q: %s", uid, levels, got.err), []any{got.code, got.out}, []any{0, w.wantOpensText(2)})
		}
	}
}

// pairs are the levels of an outer and an inner wall.
func pairs(uid uint32) [][2]string {
	all := [][2]string{{"namespace", "namespace"}, {"namespace", "landlock"}, {"namespace", "auto"}, {"landlock", "landlock"}, {"landlock", "auto"}, {"landlock", "namespace"}}
	if uid == 0 && slices.Contains(levels(), "cgroup") {
		all = append(all, [2]string{"cgroup", "cgroup"}, [2]string{"cgroup", "namespace"}, [2]string{"cgroup", "landlock"}, [2]string{"cgroup", "auto"}, [2]string{"landlock", "cgroup"})
	}
	return all
}

// TestWallOfServices: a service of a project is behind the wall that its file asks for.
func TestWallOfServices(t *testing.T) {
	t.Parallel()
	w := newDeviceFileMachine(t)
	project := quietDir(t)
	text := fmt.Sprintf("services:\n  worker:\n    command: [sh, -c, '%s; exec sleep 600']\n    device: [1]\n    isolate: landlock\n", w.openScriptPath())
	err := os.WriteFile(filepath.Join(project, "gpuard.yaml"), []byte(text), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	in := func(words ...string) runResult {
		cmd := w.isolatedCommand(words...)
		cmd.Dir = project
		return runCommand(t, cmd)
	}
	got := in("up", "-d")
	checkEqual(t, "up: "+got.out+got.err, got.code, 0)
	waitUntil(t, "the service says what it opens", func() bool {
		got = in("logs", "worker")
		return strings.Contains(got.out, "opens nvidia2 nvidiactl nvidia-uvm nvidia-uvm-tools, mask "+fakeUUID(1))
	})
	checkEqual(t, "level", w.leaseIsolations(), []job.Isolation{job.Landlock})
	got = in("down")
	checkEqual(t, "down: "+got.out+got.err, got.code, 0)
}

// TestWallOutlivesGpuard: a kill of the gpuard beside a command, or of the holder, takes nothing of its wall away.
func TestWallOutlivesGpuard(t *testing.T) {
	t.Parallel()
	w := newDeviceFileMachine(t)
	for device, level := range levels() {
		out := filepath.Join(quietDir(t), "out") // not in a folder on the way to the device files, where Landlock allows no new file
		cmd := w.isolatedCommand("run", "-q", "--timeout", "1h", "--device", fmt.Sprint(device), "--isolate", level, "--", "sh", "-c", "echo begun; while test -e "+w.root+"/stay; do sleep 0.01; done; "+w.openScriptPath()+" >"+out+".new; mv "+out+".new "+out)
		err := os.WriteFile(filepath.Join(w.root, "stay"), nil, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		checkEqual(t, "start", startToFirstLine(t, cmd), "begun")
		err = cmd.Process.Kill()
		if err == nil {
			waitUntil(t, "gpuard is gone", func() bool { // and not waited for: the command has its streams
				stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
				return err != nil || strings.Contains(string(stat), ") Z ")
			})
			err = os.Remove(filepath.Join(w.root, "stay"))
		}
		if err != nil {
			t.Fatal(err)
		}
		waitUntil(t, "the command has written what it opens", func() bool { _, err := os.Stat(out); return err == nil })
		text, err := os.ReadFile(out)
		checkEqual(t, level, []any{string(text), err}, []any{w.wantOpensText(device), nil})
	}
}
