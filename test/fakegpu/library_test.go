package fakegpu

import (
	"bufio"
	"os/exec"
	"strings"
	"testing"

	"gpuard/internal/gate"
)

// pythonCommand runs a program that calls the library as any stranger would: with its own idea of the calling convention.
// Its first argument is the path of the library, or the paths of several.
func pythonCommand(t *testing.T, program string, d ...*Driver) *exec.Cmd {
	t.Helper()
	gate.Need(t, "python3")
	args := []string{"-c", "import ctypes, sys\nlibs = [ctypes.CDLL(path) for path in sys.argv[1:]]\nnvml = libs[0]\n" + program}
	for _, machine := range d {
		args = append(args, machine.Library())
	}
	cmd := exec.Command("python3", args...)
	cmd.Env = []string{"LC_ALL=C"} // FAKEGPU_DIR is not there: the path of the library is enough
	return cmd
}

func mustOutput(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

func TestTwoMachinesInOneProcess(t *testing.T) {
	first, second := New(t, A100(0)), New(t, GeForce(1), GeForce(2))
	out := mustOutput(t, pythonCommand(t, `
for lib in libs:
    count, device, name = ctypes.c_uint(), ctypes.c_void_p(), ctypes.create_string_buffer(96)
    print(lib.nvmlInit_v2(), lib.nvmlDeviceGetCount_v2(ctypes.byref(count)), count.value)
    print(lib.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)), lib.nvmlDeviceGetName(device, name, 96), name.value.decode())
`, first, second))
	if want := "0 0 1\n0 0 NVIDIA A100-SXM4-80GB\n0 0 2\n0 0 NVIDIA GeForce RTX 3090\n"; out != want {
		t.Errorf("two libraries:\n%s\nwant\n%s", out, want)
	}
}

func TestMisuseIsAnError(t *testing.T) {
	out := mustOutput(t, pythonCommand(t, `
count, device, small = ctypes.c_uint(), ctypes.c_void_p(), ctypes.create_string_buffer(4)
print(nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)), nvml.nvmlShutdown())
nvml.nvmlInit_v2()
print(nvml.nvmlDeviceGetCount_v2(None), nvml.nvmlDeviceGetHandleByIndex_v2(1, ctypes.byref(device)))
print(nvml.nvmlDeviceGetHandleByUUID(b"GPU-none", ctypes.byref(device)), nvml.nvmlDeviceGetUUID(ctypes.c_void_p(64), small, 4))
nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
memory = (ctypes.c_ulonglong * 5)()
print(nvml.nvmlDeviceGetUUID(device, small, 4), nvml.nvmlDeviceGetMemoryInfo_v2(device, memory))
nvml.nvmlShutdown()
print(nvml.nvmlDeviceGetUUID(device, small, 4))
`, New(t, A100(0))))
	// 1 not initialised, 2 invalid argument, 6 not found, 7 too small, 25 wrong version of a structure.
	if want := "1 1\n2 2\n6 2\n7 25\n1\n"; out != want {
		t.Errorf("results:\n%s\nwant\n%s", out, want)
	}
}

func TestProcessListSaysHowMuchRoomItNeeds(t *testing.T) {
	d := New(t, A100(0))
	for pid := range 3 {
		d.AddProcess(0, 100+pid, 1<<20, Compute)
	}
	out := mustOutput(t, pythonCommand(t, `
count, device, room = ctypes.c_uint(0), ctypes.c_void_p(), (ctypes.c_uint * (6 * 8))()
nvml.nvmlInit_v2()
nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
for asked in 0, 2, 8:
    count.value = asked
    print(nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), room), count.value)
print(room[0], room[6], room[12], hex(room[4]))
`, d))
	if want := "7 3\n7 3\n0 3\n100 101 102 0xffffffff\n"; out != want {
		t.Errorf("process lists:\n%s\nwant\n%s", out, want)
	}
}

func TestLinks(t *testing.T) {
	d := New(t, A100(0), A100(1), A100(2))
	d.SetLinks("X NV4/PIX SYS", "NV4/PIX X NV2", "SYS NV2 X")
	program := `
devices, level, state, kind, pci = [ctypes.c_void_p() for _ in range(3)], ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint(), ctypes.create_string_buffer(80)
nvml.nvmlInit_v2()
for i in range(3):
    nvml.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(devices[i]))
print(*[(nvml.nvmlDeviceGetTopologyCommonAncestor(devices[0], devices[j], ctypes.byref(level)), level.value)[1] for j in (1, 2)])
for link in 0, 3, 4, 5, 6, 36:
    result = nvml.nvmlDeviceGetNvLinkState(devices[1], link, ctypes.byref(state))
    if result:
        print(link, result)
        continue
    nvml.nvmlDeviceGetNvLinkRemotePciInfo_v2(devices[1], link, pci)
    nvml.nvmlDeviceGetNvLinkRemoteDeviceType(devices[1], link, ctypes.byref(kind))
    print(link, state.value, kind.value, pci.value.decode())
`
	direct := "10 50\n0 1 0 0000:10:00.0\n3 1 0 0000:10:00.0\n4 1 0 0000:12:00.0\n5 1 0 0000:12:00.0\n6 3\n36 2\n"
	if out := mustOutput(t, pythonCommand(t, program, d)); out != direct {
		t.Errorf("links from device to device:\n%s\nwant\n%s", out, direct)
	}
	d.WriteFile("nvswitch", "0000:c4:00.0")
	switched := "10 50\n0 1 2 0000:C4:00.0\n3 1 2 0000:C4:00.0\n4 3\n5 3\n6 3\n36 2\n"
	if out := mustOutput(t, pythonCommand(t, program, d)); out != switched {
		t.Errorf("links to a switch:\n%s\nwant\n%s", out, switched)
	}
}

func TestXIDsReachWhoWaits(t *testing.T) {
	d := New(t, A100(0), A100(1))
	d.XID(1, 13) // before any process listens: never reported
	cmd := pythonCommand(t, `
class Event(ctypes.Structure):
    _fields_ = [("device", ctypes.c_void_p), ("type", ctypes.c_ulonglong), ("data", ctypes.c_ulonglong), ("gi", ctypes.c_uint), ("ci", ctypes.c_uint)]
events, device, event, index = ctypes.c_void_p(), ctypes.c_void_p(), Event(), ctypes.c_uint()
nvml.nvmlInit_v2()
nvml.nvmlEventSetCreate(ctypes.byref(events))
for i in 0, 1:
    nvml.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(device))
    nvml.nvmlDeviceRegisterEvents(device, ctypes.c_ulonglong(8), events)
print(nvml.nvmlEventSetWait_v2(events, ctypes.byref(event), 30), flush=True)
for _ in 0, 1:
    result = nvml.nvmlEventSetWait_v2(events, ctypes.byref(event), 10000)
    nvml.nvmlDeviceGetIndex(ctypes.c_void_p(event.device), ctypes.byref(index))
    print(result, index.value, event.type, event.data, hex(event.gi), flush=True)
print(nvml.nvmlEventSetWait_v2(events, ctypes.byref(event), 0), nvml.nvmlEventSetFree(events))
`, d)
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(pipe)
	next := func() string { lines.Scan(); return lines.Text() }
	if got := next(); got != "10" {
		t.Errorf("nothing happened yet: %s, want a timeout (10)", got)
	}
	d.XID(1, 79)
	if got := next(); got != "0 1 8 79 0xffffffff" {
		t.Errorf("first error: %s", got)
	}
	d.XID(0, 48)
	if got := next(); got != "0 0 8 48 0xffffffff" {
		t.Errorf("second error: %s", got)
	}
	if got := next(); got != "10 0" {
		t.Errorf("after both: %s", got)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestFieldValuesFailOneByOne(t *testing.T) {
	out := mustOutput(t, pythonCommand(t, `
class Field(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint), ("scope", ctypes.c_uint), ("time", ctypes.c_longlong), ("latency", ctypes.c_longlong),
                ("type", ctypes.c_uint), ("result", ctypes.c_uint), ("value", ctypes.c_int), ("rest", ctypes.c_uint)]
device, fields = ctypes.c_void_p(), (Field * 3)(Field(230), Field(194), Field(1))
nvml.nvmlInit_v2()
nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
print(nvml.nvmlDeviceGetFieldValues(device, 3, fields), *[(f.result, f.type, f.value) for f in fields][:2], fields[2].result)
`, New(t, H100(0).With("recovery", "4"))))
	if want := "0 (0, 1, 4) (0, 5, -2) 3"; strings.TrimSpace(out) != want {
		t.Errorf("recovery action, slowdown limit, and a field that this device lacks: %s, want %s", out, want)
	}
}

// TestMonitorsReadings: what monitors and selectors such as nvisel ask for. A reading without a file is not supported.
func TestMonitorsReadings(t *testing.T) {
	files := []string{"fan", "31", "pstate", "2", "display_active", "0", "display_mode", "1", "pcie_generation", "4", "pcie_width", "16",
		"encoder", "7", "decoder", "9", "pcie_kbps", "100 200", "bar1", "1000 400"}
	device := A100(0)
	for i := 0; i < len(files); i += 2 {
		device = device.With(files[i], files[i+1])
	}
	program := `
device, n, period, bar1 = ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_uint(), (ctypes.c_ulonglong * 3)()
nvml.nvmlInit_v2()
nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
for name in "FanSpeed PerformanceState DisplayActive DisplayMode CurrPcieLinkGeneration CurrPcieLinkWidth".split():
    print(getattr(nvml, "nvmlDeviceGet" + name)(device, ctypes.byref(n)), n.value, end=" ")
for name in ("Encoder", "Decoder"):
    print(getattr(nvml, f"nvmlDeviceGet{name}Utilization")(device, ctypes.byref(n), ctypes.byref(period)), n.value, end=" ")
print(nvml.nvmlDeviceGetPcieThroughput(device, 1, ctypes.byref(n)), n.value, nvml.nvmlDeviceGetBAR1MemoryInfo(device, bar1), *bar1)
`
	if out, want := mustOutput(t, pythonCommand(t, program, New(t, device))), "0 31 0 2 0 0 0 1 0 4 0 16 0 7 0 9 0 200 0 1000 600 400\n"; out != want {
		t.Errorf("%s, want %s", out, want)
	}
	if out, want := mustOutput(t, pythonCommand(t, program, New(t, A100(0)))), "3 0 3 0 3 0 3 0 3 0 3 0 3 0 3 0 3 0 3 0 0 0\n"; out != want {
		t.Errorf("without files: %s, want %s", out, want)
	}
}
