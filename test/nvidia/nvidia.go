// Package nvidia runs NVIDIA's own libraries over invented GPUs: a preloaded library (c/) stands in for the kernel driver,
// and libnvidia-ml, libcuda and nvidia-smi are those that NVIDIA publishes, unchanged. README.md says what they can be asked,
// and what depends on what the pretended driver answers. It knows no rule of gpuard's.
package nvidia

import (
	"bufio"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	"gpuard/internal/gate"
	"gpuard/test/fakegpu"
	"gpuard/test/recorded"
)

//go:embed c machines build.go
var sources embed.FS

// Library is one version of NVIDIA's libraries.
type Library struct {
	Version string
	Folder  string // with libcuda.so.1 and libnvidia-ml.so.1
}

// Libraries are those that "make nvidia" has put into its folder, the oldest first. The test is skipped where there are none.
func Libraries(t testing.TB) (all []Library) {
	t.Helper()
	gate.Need(t, "cc")
	found, err := filepath.Glob(filepath.Join(gate.LibrariesFolder(t, "nvidia"), "*", "libcuda.so.*.*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		all = append(all, Library{strings.TrimPrefix(filepath.Base(path), "libcuda.so."), filepath.Dir(path)})
	}
	slices.SortFunc(all, func(a, b Library) int { return strings.Compare(a.Version, b.Version) })
	return all
}

// InventedMachine is one invented machine with one version of the libraries.
type InventedMachine struct {
	Machine gpu.Machine // as gpuard would read it, as far as the tests need it
	Library Library

	t     testing.TB
	text  string // the machine's file
	root  string // of /proc and /sys, with that file
	built string // the preloaded library, and ask

	module string // version of the kernel module
	calls  int    // that are in the log and were asked for
}

// New makes the machine that machines/NAME.txt describes.
func New(t testing.TB, library Library, name string) *InventedMachine {
	t.Helper()
	text, err := fs.ReadFile(sources, "machines/"+name+".txt")
	if err != nil {
		t.Fatal(err)
	}
	l := &InventedMachine{Library: library, t: t, text: string(text), root: t.TempDir(), built: buildDriver(t)}
	l.Module(library.Version)
	l.Machine = parseMachine(t, l.text)
	l.Machine.Driver = library.Version
	l.writeMachineFiles()
	return l
}

// AddGPULine adds a line to what the machine's file says of a GPU, counted from 0. Programs see it at their next call.
func (l *InventedMachine) AddGPULine(gpu int, line string) {
	l.t.Helper()
	parts := strings.Split(l.text, "\ngpu ")
	parts[gpu] += "\n" + line
	l.text = strings.Join(parts, "\ngpu ")
	l.Module(l.module)
}

// DeviceFile is the path of a GPU's device file: who has it open uses the GPU.
func (l *InventedMachine) DeviceFile(gpu int) string {
	return filepath.Join(l.root, fmt.Sprint("dev/nvidia", gpu))
}

// RemoveNodes leaves the machine without any device file, as a container that was given none.
func (l *InventedMachine) RemoveNodes() {
	l.t.Helper()
	l.text = "nodes none\n" + l.text
	l.Module(l.module)
}

// MakeNodes makes the machine's device files real ones, without a driver behind them: a library opens them as far as the kernel
// lets it. It needs root, and a file system that may have device files.
func (l *InventedMachine) MakeNodes() {
	l.t.Helper()
	node := func(name string, major, minor uint32) {
		path := filepath.Join(l.root, "dev", name)
		err := os.MkdirAll(filepath.Dir(path), 0o755) //nolint:gosec // for all users
		if err == nil {
			_ = os.Remove(path)
			err = unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(major, minor))) //nolint:gosec // small numbers
		}
		if err == nil {
			err = os.Chmod(path, 0o666) //nolint:gosec // as device files are
		}
		if err != nil {
			l.t.Fatalf("cannot make a device file: %v", err)
		}
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if !errors.Is(err, unix.ENXIO) {
			l.t.Skipf("device files in %s cannot be used: %v, %v", l.root, file, err)
		}
	}
	node("nvidiactl", 195, 255)
	node("nvidia-uvm", 235, 0)
	node("nvidia-uvm-tools", 235, 1)
	for i, d := range l.Machine.Devices {
		node(fmt.Sprint("nvidia", i), 195, uint32(i)) //nolint:gosec // a few
		for _, s := range d.MIG {
			for _, minor := range []int{groupCapability(i, s), sliceCapability(i, s)} {
				node(fmt.Sprint("nvidia-caps/nvidia-cap", minor), 237, uint32(minor)) //nolint:gosec // a few
			}
		}
	}
}

// Root is the folder of the machine's dev, proc and sys.
func (l *InventedMachine) Root() string { return l.root }

// Module changes the version of the pretended kernel module, which is that of the library otherwise.
func (l *InventedMachine) Module(version string) {
	l.t.Helper()
	l.module = version
	l.writeFile("machine", "driver "+version+"\n"+l.text+"\n")
}

// Env is what a program needs to run on this machine. The folder of the machine is in LD_LIBRARY_PATH for Enter.
func (l *InventedMachine) Env() []string {
	env := []string{
		"LD_PRELOAD=" + filepath.Join(l.built, "driver.so"), "LAB_MACHINE=" + filepath.Join(l.root, "machine"),
		"LD_LIBRARY_PATH=" + l.Library.Folder + ":" + l.root, "LAB_LOG=" + filepath.Join(l.root, "log"),
	}
	l.writeFile(environmentFile, strings.Join(env, "\n"))
	return env
}

const environmentFile = "lab-environment"

// ReenterMachine begins this program again on the machine, if it is one of those that gpuard starts with an environment of their own, in
// which nothing is preloaded.
func ReenterMachine() {
	if os.Getenv("LD_PRELOAD") != "" {
		return
	}
	_, folder, _ := strings.Cut(os.Getenv("LD_LIBRARY_PATH"), ":")
	text, err := os.ReadFile(filepath.Join(folder, environmentFile))
	self, lost := os.Executable()
	if folder == "" || err != nil || lost != nil {
		return
	}
	if err := unix.Exec(self, os.Args, append(os.Environ(), strings.Split(string(text), "\n")...)); err != nil {
		panic(err)
	}
}

// Own is a command that prints what libcuda shows to it, in the form that Shown reads.
func (l *InventedMachine) Own() []string { return []string{filepath.Join(l.built, "ask"), "own"} }

// ParseShown reads a line of ask: the code of cuInit and the devices.
func (l *InventedMachine) ParseShown(line string) (code int, devices []gpu.UUID) {
	l.t.Helper()
	words := strings.Fields(line)
	if len(words) == 0 {
		l.t.Fatalf("libcuda %s gave no answer", l.Library.Version)
	}
	code, err := strconv.Atoi(words[0])
	if err != nil {
		l.t.Fatal(err)
	}
	for _, digits := range words[1:] {
		devices = append(devices, l.uuidOfDigits(digits))
	}
	return code, devices
}

// CountNewCalls is how often programs have called the kernel driver since the last time.
func (l *InventedMachine) CountNewCalls() int {
	l.t.Helper()
	text, err := os.ReadFile(filepath.Join(l.root, "log"))
	if err != nil {
		l.t.Fatal(err)
	}
	before := l.calls
	l.calls = strings.Count("\n"+string(text), "\ncall ")
	return l.calls - before
}

// Ask asks libcuda the questions of the rows, and returns them with its answers.
func (l *InventedMachine) Ask(rows []recorded.Row) []recorded.Row {
	l.t.Helper()
	var questions strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&questions, "%s %s\n", fakegpu.Escape(r.Visible), fakegpu.Escape(r.Order))
	}
	cmd := exec.CommandContext(l.t.Context(), filepath.Join(l.built, "ask")) //nolint:gosec // ours
	cmd.Env, cmd.Stdin, cmd.Stderr = append(os.Environ(), l.Env()[:3]...), strings.NewReader(questions.String()), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		l.t.Fatalf("cannot ask libcuda %s: %v", l.Library.Version, err)
	}
	answers := bufio.NewScanner(strings.NewReader(string(out)))
	rows = slices.Clone(rows)
	for i := range rows {
		if !answers.Scan() {
			l.t.Fatalf("libcuda %s gave %d answers to %d questions", l.Library.Version, i, len(rows))
		}
		rows[i].Code, rows[i].Devices = l.ParseShown(answers.Text())
	}
	return rows
}

// uuidOfDigits is the UUID with these digits.
func (l *InventedMachine) uuidOfDigits(digits string) gpu.UUID {
	l.t.Helper()
	for _, d := range l.Machine.Devices {
		ids := []gpu.UUID{d.UUID}
		for _, s := range d.MIG {
			ids = append(ids, s.UUID)
		}
		for _, id := range ids {
			if strings.ReplaceAll(string(id[4:]), "-", "") == digits {
				return id
			}
		}
	}
	l.t.Fatalf("libcuda shows a device with the digits %s, which the machine does not have", digits)
	return ""
}
