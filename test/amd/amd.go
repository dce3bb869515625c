// Package amd runs AMD's own libraries over invented GPUs. A preloaded library (c/) answers in place of the kernel's drivers, amdgpu
// and KFD; libhsa-runtime64, libamdhip64 and OpenCL are those of Debian and Ubuntu, unchanged. Package nvidia does the same.
// README.md says what they can be asked. It knows no rule of gpuard's variables; the machine is read with gpuard's own reader.
package amd

import (
	"bufio"
	"embed"
	"errors"
	"fmt"
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
	"gpuard/internal/host/amdgpu"
	"gpuard/test/fakegpu"
)

//go:embed c machines build.go
var sources embed.FS

// Library is one version of AMD's libraries, with a C library of its own.
type Library struct {
	Version string // of HIP
	Folder  string // with the libraries and ld-linux-x86-64.so.2
}

// IsBefore reports whether HIP is older than a version.
func (l Library) IsBefore(major, minor int) bool {
	var a, b int
	if _, err := fmt.Sscanf(l.Version, "%d.%d", &a, &b); err != nil {
		return false
	}
	return a < major || a == major && b < minor
}

// HasLibrary reports whether the packages have this library: some have no OpenCL.
func (l Library) HasLibrary(name string) bool {
	_, err := os.Stat(filepath.Join(l.Folder, name))
	return err == nil
}

// Libraries are those that "make amd" has put into its folder, the oldest first. The test is skipped where there are none.
func Libraries(t testing.TB) (all []Library) {
	t.Helper()
	gate.Need(t, "cc")
	folders, err := filepath.Glob(filepath.Join(gate.LibrariesFolder(t, "amd"), "*", "libhsa-runtime64.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range folders {
		folder := filepath.Dir(path)
		all = append(all, Library{filepath.Base(folder), folder})
	}
	slices.SortFunc(all, func(a, b Library) int { return strings.Compare(a.Version, b.Version) })
	return all
}

// Runtime is one of AMD's.
type Runtime string

// HIP and OpenCL lie above HSA, which is ROCr: they count within what it shows.
const (
	HSA    Runtime = "hsa"
	HIP    Runtime = "hip"
	OpenCL Runtime = "opencl"
)

// InventedMachine is one invented machine with one version of the libraries.
type InventedMachine struct {
	Machine gpu.Machine // as gpuard reads it
	Library Library

	t     testing.TB
	root  string // of /proc, /sys and /dev, with the machine's file
	built string // the preloaded library, and ask
	gpus  []gpuEntry
}

// New makes the machine that machines/NAME.txt describes. Of the GPUs in missing, counted from 0, it has no render node.
func New(t testing.TB, library Library, name string, missing ...int) *InventedMachine {
	t.Helper()
	return NewBelow(t, t.TempDir(), library, name, missing...)
}

// NewBelow is New with the folder of the machine's files, which MakeNodes wants on a file system that may have device files.
func NewBelow(t testing.TB, root string, library Library, name string, missing ...int) *InventedMachine {
	t.Helper()
	text, err := sources.ReadFile("machines/" + name + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	l := &InventedMachine{Library: library, t: t, root: root, built: buildDriver(t), gpus: parseMachine(t, string(text))}
	parts := strings.Split(string(text), "\ngpu ")
	for _, i := range missing {
		parts[i] += "\ndenied " + strconv.Itoa(int(unix.ENOENT))
		l.gpus[i].missing = true
	}
	l.writeFile("machine", strings.Join(parts, "\ngpu "))
	l.writeSysFiles()
	if l.Machine, err = amdgpu.New(l.root).Read(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	return l
}

// runtimeCommand runs a program on this machine, with the libraries' own loader and C library.
func (l *InventedMachine) runtimeCommand(program string, args ...string) *exec.Cmd {
	l.writeFile("vendors/amd.icd", filepath.Join(l.Library.Folder, "libamdocl64.so")+"\n")
	loader := filepath.Join(l.Library.Folder, "ld-linux-x86-64.so.2")
	cmd := exec.CommandContext(l.t.Context(), loader, append([]string{"--library-path", l.Library.Folder, "--preload", filepath.Join(l.built, "driver.so"), program}, args...)...) //nolint:gosec // ours
	cmd.Env = append(os.Environ(), "LAB_MACHINE="+filepath.Join(l.root, "machine"), "OCL_ICD_VENDORS="+filepath.Join(l.root, "vendors"))
	return cmd
}

// MakeNodes makes the machine's device files real ones, without a driver behind them: a library opens them as far as the kernel
// lets it. It needs root, and a file system that may have device files.
func (l *InventedMachine) MakeNodes() {
	l.t.Helper()
	node := func(name string, major, minor uint32) {
		path := filepath.Join(l.root, "dev", name)
		_ = os.Remove(path)
		err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(major, minor))) //nolint:gosec // small numbers
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
	node("kfd", unusedMajor, 0)
	for _, c := range l.gpus {
		node(fmt.Sprint("dri/renderD", c.minor), unusedMajor, uint32(c.minor)) //nolint:gosec // small
	}
}

// unusedMajor has no driver on any computer (docs.kernel.org/admin-guide/devices.html: "60-63 char LOCAL/EXPERIMENTAL USE").
const unusedMajor = 60

// Root is the folder of the machine's dev, proc and sys.
func (l *InventedMachine) Root() string { return l.root }

// Own is a command, for a shell, that prints what a runtime shows to it, in the form that Shown reads.
func (l *InventedMachine) Own(runtime Runtime) []string {
	return l.runtimeCommand(filepath.Join(l.built, "ask"), string(runtime), "own").Args
}

// Env is what the command of Own needs, where MakeNodes has made the device files.
func (l *InventedMachine) Env() []string {
	return []string{"LAB_NODES=real", "LAB_MACHINE=" + filepath.Join(l.root, "machine"), "OCL_ICD_VENDORS=" + filepath.Join(l.root, "vendors")}
}

// Shown are the devices in a line of Own.
func (l *InventedMachine) Shown(line string) (ids []gpu.UUID) {
	l.t.Helper()
	if strings.TrimSpace(line) == "" {
		return nil
	}
	for _, minor := range l.parseAnswer(line).Devices {
		i := slices.IndexFunc(l.Machine.Devices, func(d gpu.Device) bool { return *d.Minor == minor })
		ids = append(ids, l.Machine.Devices[i].UUID)
	}
	return ids
}

// Question is what a program's environment says; nil is a variable that is not set.
type Question struct{ ROCR, HIP, CUDA, Ordinal *string }

// Env is the question's variables as NAME=value.
func (q Question) Env() (env []string) {
	for _, v := range []struct {
		name  string
		value *string
	}{{"ROCR_VISIBLE_DEVICES", q.ROCR}, {"HIP_VISIBLE_DEVICES", q.HIP}, {"CUDA_VISIBLE_DEVICES", q.CUDA}, {"GPU_DEVICE_ORDINAL", q.Ordinal}} {
		if v.value != nil {
			env = append(env, v.name+"="+*v.value)
		}
	}
	return env
}

// Answer is what a runtime shows.
type Answer struct {
	Ended   bool // the library ended the program
	Code    int
	Devices []int // the minor numbers of their render nodes
}

// Ask asks a runtime the questions.
func (l *InventedMachine) Ask(runtime Runtime, questions []Question) (answers []Answer) {
	l.t.Helper()
	var text strings.Builder
	for _, q := range questions {
		fmt.Fprintln(&text, fakegpu.Escape(q.ROCR), fakegpu.Escape(q.HIP), fakegpu.Escape(q.CUDA), fakegpu.Escape(q.Ordinal))
	}
	cmd := l.runtimeCommand(filepath.Join(l.built, "ask"), string(runtime))
	cmd.Stdin, cmd.Stderr = strings.NewReader(text.String()), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		l.t.Fatalf("cannot ask %s of %s: %v", runtime, l.Library.Version, err)
	}
	for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
		answers = append(answers, l.parseAnswer(lines.Text()))
	}
	if len(answers) != len(questions) {
		l.t.Fatalf("%s of %s gave %d answers to %d questions", runtime, l.Library.Version, len(answers), len(questions))
	}
	return answers
}

// parseAnswer reads a line of ask.
func (l *InventedMachine) parseAnswer(line string) Answer {
	l.t.Helper()
	if line == "ended" {
		return Answer{Ended: true}
	}
	words := strings.Fields(line)
	code, err := strconv.Atoi(words[0])
	if err != nil {
		l.t.Fatal(err)
	}
	a := Answer{Code: code}
	for _, word := range words[1:] {
		at := slices.IndexFunc(l.gpus, func(c gpuEntry) bool {
			return word == fmt.Sprintf("%02x/%d", c.bus, c.memory)
		})
		if at < 0 {
			l.t.Fatalf("%s shows %s, which the machine does not have", l.Library.Version, word)
		}
		a.Devices = append(a.Devices, l.gpus[at].minor)
	}
	return a
}
