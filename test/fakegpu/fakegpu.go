// Package fakegpu is a fake NVIDIA driver for tests: libnvidia-ml.so.1, libcuda.so.1 and nvidia-smi, written in C, over
// one folder of small files that a test changes while programs run. README.md describes the folder. It knows nothing of
// gpuard's own rules.
package fakegpu

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Driver is one fake machine. Its methods may be called while programs read it: every file is replaced in one step.
type Driver struct {
	Dir string // the state folder; lib/ and bin/ in it hold this machine's libraries and nvidia-smi
	Job string // the program fakegpu-job

	t testing.TB
}

// New makes a machine with these devices, in this order. It is gone at the end of the test.
func New(t testing.TB, gpus ...GPU) *Driver {
	t.Helper()
	paths := Build(t)
	d := &Driver{Dir: t.TempDir(), Job: paths.Job, t: t}
	// Tests with two users: t.TempDir makes a folder that only one of them can enter.
	if err := os.Chmod(filepath.Dir(d.Dir), 0o755); err != nil {
		t.Fatalf("cannot open the fake driver's folder to other users: %v", err)
	}
	d.WriteFile("driver", "550.54.15")
	d.WriteFile("cuda", "12.4")
	d.makeFolder("gpus", 0o755)
	for i, g := range gpus {
		d.writeDevice(fmt.Sprintf("gpus/%d", i), g)
	}
	d.SetLinks(pairedLinkRows(len(gpus))...)
	var all []Seen
	for _, g := range gpus {
		all = append(all, Seen{UUID: g["uuid"], PCI: g["pci"]})
	}
	d.SetCUDATable(Answer{Devices: all}) // of CUDA without variables; any others are what a test is about
	d.installBuilt(paths)
	return d
}

// writeDevice writes one into a folder below Dir.
func (d *Driver) writeDevice(folder string, g GPU) {
	d.t.Helper()
	d.makeFolder(folder+"/procs.d", 0o777|os.ModeSticky) // jobs of any user put themselves on a device here
	// One file for many values: hundreds of tests make machines.
	values := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(g)) {
		dir, name := path.Split(folder + "/" + key)
		values[dir] += name + " " + g[key] + "\n"
	}
	for dir, text := range values {
		d.WriteFile(dir+"values", text)
	}
	if minor, numbered := g["minor"]; numbered {
		d.WriteFile("dev/nvidia"+minor, "")
		if err := os.Chmod(filepath.Join(d.Dir, "dev", "nvidia"+minor), 0o666); err != nil { //nolint:gosec // as device files are
			d.t.Fatalf("cannot make the fake device: %v", err)
		}
	}
}

// DeviceFile is the path of a device's file: what opens it proves that it uses the device.
func (d *Driver) DeviceFile(minor int) string {
	return filepath.Join(d.Dir, "dev", fmt.Sprint("nvidia", minor))
}

// Add adds one more device at the end, in one step. Processes that have the library open keep those that they have
// counted.
func (d *Driver) Add(g GPU) {
	d.t.Helper()
	found, err := filepath.Glob(filepath.Join(d.Dir, "gpus", "[0-9]*"))
	if err != nil {
		d.t.Fatal(err)
	}
	d.writeDevice("new", g)
	d.SetLinks(pairedLinkRows(len(found) + 1)...)
	if err := os.Rename(filepath.Join(d.Dir, "new"), filepath.Join(d.Dir, "gpus", fmt.Sprint(len(found)))); err != nil {
		d.t.Fatalf("cannot add a device: %v", err)
	}
}

// pairedLinkRows is an ordinary board: two devices on a switch, two switches on a socket.
func pairedLinkRows(n int) []string {
	rows := make([]string, n)
	for i := range n {
		words := make([]string, n)
		for j := range n {
			switch {
			case i == j:
				words[j] = "X"
			case i/2 == j/2:
				words[j] = "PIX"
			case i/4 == j/4:
				words[j] = "PHB"
			default:
				words[j] = "SYS"
			}
		}
		rows[i] = strings.Join(words, " ")
	}
	return rows
}

// installBuilt copies the libraries: a process that opens two machines must get two of each.
func (d *Driver) installBuilt(paths Paths) {
	d.t.Helper()
	d.makeFolder("lib", 0o755)
	d.makeFolder("bin", 0o755)
	for _, library := range []string{paths.Library, paths.CUDA} {
		code, err := os.ReadFile(library)
		if err != nil {
			d.t.Fatalf("cannot install the fake driver: %v", err)
		}
		d.WriteFile("lib/"+filepath.Base(library), string(code))
	}
	for _, program := range []string{paths.SMI, paths.MPS, paths.Job} {
		name := filepath.Join(d.Dir, "bin", filepath.Base(program))
		if err := os.Symlink(program, name); err != nil && !os.IsExist(err) {
			d.t.Fatalf("cannot install the fake driver: %v", err)
		}
	}
}

// Library is the path of this machine's libnvidia-ml.so.1. A process that opens it by this path sees this machine
// whatever its environment says.
func (d *Driver) Library() string { return filepath.Join(d.Dir, "lib", "libnvidia-ml.so.1") }

// Env is what a program needs to see this machine: append it to the program's environment.
func (d *Driver) Env() []string {
	return []string{
		"FAKEGPU_DIR=" + d.Dir,
		"LD_LIBRARY_PATH=" + joinPath(filepath.Join(d.Dir, "lib"), os.Getenv("LD_LIBRARY_PATH")),
		"PATH=" + joinPath(filepath.Join(d.Dir, "bin"), os.Getenv("PATH")),
	}
}

func joinPath(first, rest string) string {
	if rest == "" {
		return first
	}
	return first + ":" + rest
}

// HideSymbols replaces the libraries by ones in which these symbols do not exist.
func (d *Driver) HideSymbols(symbols ...string) {
	d.t.Helper()
	d.installBuilt(Build(d.t, symbols...))
}

// SetValue replaces one value of a device, such as "temperature" or "mig/0/memory_total". README.md lists the names.
func (d *Driver) SetValue(gpu int, key, value string) {
	d.t.Helper()
	d.WriteFile(fmt.Sprintf("gpus/%d/%s", gpu, key), value)
}

// UnsetValue takes a reading away: the driver says that it is not supported.
func (d *Driver) UnsetValue(gpu int, key string) {
	d.t.Helper()
	d.SetValue(gpu, key, "")
}

// WriteFile replaces any file below Dir, such as "driver", "init" or "nvswitch".
func (d *Driver) WriteFile(file, text string) {
	d.t.Helper()
	name := filepath.Join(d.Dir, file)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		d.t.Fatalf("cannot change the fake driver: %v", err)
	}
	if !strings.HasSuffix(text, "\n") && !strings.HasPrefix(file, "lib/") {
		text += "\n"
	}
	mustWrite(d.t, name+".new", text)
	if err := os.Rename(name+".new", name); err != nil {
		d.t.Fatalf("cannot change the fake driver: %v", err)
	}
}

// RemoveFile removes a file below Dir: "lib/libnvidia-ml.so.1" is a machine without the library, "bin/nvidia-smi" one
// without that program.
func (d *Driver) RemoveFile(path string) {
	d.t.Helper()
	if err := os.Remove(filepath.Join(d.Dir, path)); err != nil && !os.IsNotExist(err) {
		d.t.Fatalf("cannot change the fake driver: %v", err)
	}
}

// SetLinks replaces the link matrix: one row of words per device, as `nvidia-smi topo -m` prints them ("X PIX", "NV12/SYS
// X").
func (d *Driver) SetLinks(rows ...string) {
	d.t.Helper()
	d.WriteFile("links", strings.Join(rows, "\n"))
}

// Kinds of processes as nvidia-smi prints them.
const (
	Compute  = "C"
	Graphics = "G"
	Both     = "C+G"
)

// AddProcess puts a process on a device; it stays listed until ClearProcesses, whether or not the PID exists.
// bytes below zero: the driver does not say. instance: GPU instance and compute instance of a MIG device, or nothing.
func (d *Driver) AddProcess(gpu, pid int, bytes int64, kind string, instance ...int) {
	d.t.Helper()
	d.addProcess(gpu, pid, bytes, kind, instance, "")
}

// TrackProcess is AddProcess for a real process: the line counts only while the PID exists and is no zombie.
func (d *Driver) TrackProcess(gpu, pid int, bytes int64, kind string, instance ...int) {
	d.t.Helper()
	d.addProcess(gpu, pid, bytes, kind, instance, " track")
}

func (d *Driver) addProcess(gpu, pid int, bytes int64, kind string, instance []int, end string) {
	d.t.Helper()
	line := fmt.Sprintf("%d %d %s", pid, bytes, kind)
	if bytes < 0 {
		line = fmt.Sprintf("%d - %s", pid, kind)
	}
	for _, id := range instance {
		line += fmt.Sprintf(" %d", id)
	}
	d.appendLine(fmt.Sprintf("gpus/%d/processes", gpu), line+end)
}

// ClearProcesses ends what AddProcess and TrackProcess put on a device, not what a job put there itself.
func (d *Driver) ClearProcesses(gpu int) {
	d.t.Helper()
	d.UnsetValue(gpu, "processes")
}

// AnyGPU means every device in Hang and Fail.
const AnyGPU = -1

// Hang makes an NVML function block for that device (or Any) until Answer; "*" is every function.
func (d *Driver) Hang(function string, gpu int) {
	d.t.Helper()
	d.appendLine("hang", ruleLine(function, gpu))
}

// Delay makes each call of an NVML function take that many milliseconds more.
func (d *Driver) Delay(function string, gpu, milliseconds int) {
	d.t.Helper()
	d.appendLine("hang", fmt.Sprintf("%s %d", ruleLine(function, gpu), milliseconds))
}

// Answer ends every Hang and Delay.
func (d *Driver) Answer() {
	d.t.Helper()
	d.RemoveFile("hang")
}

// Fail makes an NVML function return that nvmlReturn_t until Remove("fail").
func (d *Driver) Fail(function string, gpu, code int) {
	d.t.Helper()
	d.appendLine("fail", fmt.Sprintf("%s %d", ruleLine(function, gpu), code))
}

// Crash makes the library read through a null pointer in an NVML function until Remove("crash"); nvidia-smi is spared.
// With a signal it is sent instead, and SIGABRT by abort(3). The file "crashes" has a line for each.
func (d *Driver) Crash(function string, gpu int, signal ...int) {
	d.t.Helper()
	line := ruleLine(function, gpu)
	for _, number := range signal {
		line += fmt.Sprintf(" %d", number)
	}
	d.appendLine("crash", line)
}

// FailInit makes nvmlInit return that nvmlReturn_t: 9 driver not loaded, 18 library and driver differ, 4 no permission;
// 0 works again.
func (d *Driver) FailInit(code int) {
	d.t.Helper()
	d.WriteFile("init", fmt.Sprint(code))
}

// LoseGPU makes a device fall off the bus: it has no handle any more, and handles that were there answer "GPU is lost".
// With Set(gpu, "lost", "handle") instead its handle and identity can still be read.
func (d *Driver) LoseGPU(gpu int) {
	d.t.Helper()
	d.SetValue(gpu, "lost", "all")
}

// XID reports a driver error on a device to programs that wait for events.
func (d *Driver) XID(gpu, number int) {
	d.t.Helper()
	d.appendLine(fmt.Sprintf("gpus/%d/xids", gpu), fmt.Sprint(number))
}

func ruleLine(function string, gpu int) string {
	if gpu == AnyGPU {
		return function + " *"
	}
	return fmt.Sprintf("%s %d", function, gpu)
}

// appendLine appends a line to a file below Dir.
func (d *Driver) appendLine(path, line string) {
	d.t.Helper()
	text, err := os.ReadFile(filepath.Join(d.Dir, path))
	if err != nil && !os.IsNotExist(err) {
		d.t.Fatalf("cannot change the fake driver: %v", err)
	}
	d.WriteFile(path, string(text)+line)
}

func (d *Driver) makeFolder(path string, mode os.FileMode) {
	d.t.Helper()
	name := filepath.Join(d.Dir, path)
	err := os.MkdirAll(name, 0o755)
	if err == nil {
		err = os.Chmod(name, mode)
	}
	if err != nil {
		d.t.Fatalf("cannot change the fake driver: %v", err)
	}
}

func mustWrite(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatalf("cannot change the fake driver: %v", err)
	}
}
