package fakegpu

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/gate"
)

// listDevicesScript prints what a process sees that asks as any stranger would.
const listDevicesScript = `
import ctypes, sys
cuda = ctypes.CDLL(sys.argv[1])
code = cuda.cuInit(0)
if code:
    sys.exit(print(code))
count, version, device = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
name, uuid, old, pci = (ctypes.create_string_buffer(n) for n in (100, 16, 16, 32))
print(cuda.cuDeviceGetCount(ctypes.byref(count)), count.value, cuda.cuDriverGetVersion(ctypes.byref(version)), version.value)
for i in range(count.value + 1):
    print(cuda.cuDeviceGet(ctypes.byref(device), i), cuda.cuDeviceGetName(name, 100, i), cuda.cuDeviceGetUuid_v2(uuid, i),
          cuda.cuDeviceGetUuid(old, i), cuda.cuDeviceGetPCIBusId(pci, 32, i), name.value.decode(), uuid.raw.hex(), old.raw.hex(), pci.value.decode())
`

func runDeviceList(t *testing.T, d *Driver, env ...string) string {
	t.Helper()
	gate.Need(t, "python3")
	cmd := exec.Command("python3", "-c", listDevicesScript, filepath.Join(d.Dir, "lib", "libcuda.so.1"))
	cmd.Env = append([]string{"LC_ALL=C"}, env...)
	return mustOutput(t, cmd)
}

func TestCUDAAnswersFromTheTableAlone(t *testing.T) {
	t.Parallel()
	first, second := A100(0), A100(1).MIG("1g.10gb")
	d := New(t, first, second)
	whole := Seen{UUID: first["uuid"], PCI: first["pci"]}
	slice := Seen{UUID: second["mig/0/uuid"], PCI: second["pci"], Parent: second["uuid"]}
	odd := " 0,%#\xff\t"
	d.SetCUDATable(
		Answer{Devices: []Seen{slice, whole}},
		Answer{Visible: new("0"), Code: 100},
		Answer{Visible: new("0"), Order: new("PCI_BUS_ID"), Devices: []Seen{whole}},
		Answer{Visible: new(""), Order: new(""), Code: 3},
		Answer{Visible: &odd, Code: 101},
	)
	const (
		wholeLine = "0 0 0 0 0 NVIDIA A100-SXM4-80GB fa4e0000000040008000000000000000 fa4e0000000040008000000000000000 0000:10:00.0\n"
		sliceLine = "0 0 0 0 0 NVIDIA A100-SXM4-80GB MIG 1g.10gb fa4e0000000050008000000001000000 fa4e0000000040008000000000000001 0000:11:00.0\n"
	)
	for _, c := range []struct {
		env  []string
		want string
	}{
		{nil, "0 2 0 12040\n" + sliceLine + wholeLine + "101 101 101 101 101"},
		{[]string{"CUDA_VISIBLE_DEVICES=0"}, "100\n"},
		{[]string{"CUDA_VISIBLE_DEVICES=0", "CUDA_DEVICE_ORDER=PCI_BUS_ID"}, "0 1 0 12040\n" + wholeLine + "101 101 101 101 101"},
		{[]string{"CUDA_VISIBLE_DEVICES=", "CUDA_DEVICE_ORDER="}, "3\n"},
		{[]string{"CUDA_VISIBLE_DEVICES=" + odd}, "101\n"},
		{[]string{"CUDA_VISIBLE_DEVICES=1"}, "999\n"}, // no row
		{[]string{"CUDA_VISIBLE_DEVICES="}, "999\n"},  // a row for another order only
	} {
		if got := runDeviceList(t, d, c.env...); !strings.HasPrefix(got, c.want) {
			t.Errorf("%q:\n%s\nwant\n%s", c.env, got, c.want)
		}
	}
	d.RemoveFile("cuda_table")
	if got := runDeviceList(t, d); got != "999\n" {
		t.Errorf("without a table cuInit answers %s, want 999", got)
	}
	d.Fail("cuInit", AnyGPU, 803)
	if got := runDeviceList(t, d); got != "803\n" {
		t.Errorf("told to fail with 803 cuInit answers %s", got)
	}
}

func TestCUDAExportsOnlyTheDriverAPI(t *testing.T) {
	want := []string{"cuDeviceGet", "cuDeviceGetCount", "cuDeviceGetName", "cuDeviceGetPCIBusId", "cuDeviceGetUuid",
		"cuDeviceGetUuid_v2", "cuDriverGetVersion", "cuGetErrorName", "cuInit"}
	have := exportedSymbols(t, Build(t).CUDA)
	slices.Sort(have)
	if !slices.Equal(have, want) {
		t.Errorf("libcuda.so.1 exports %q, want %q", have, want)
	}
}

func TestCUDABeforeInit(t *testing.T) {
	t.Parallel()
	gate.Need(t, "python3")
	d := New(t, A100(0))
	program := `
import ctypes, sys
cuda = ctypes.CDLL(sys.argv[1])
n, word = ctypes.c_int(), ctypes.c_char_p()
print(cuda.cuDeviceGetCount(ctypes.byref(n)), cuda.cuDeviceGet(ctypes.byref(n), 0), cuda.cuInit(1), cuda.cuDriverGetVersion(ctypes.byref(n)), n.value)
print(cuda.cuGetErrorName(100, ctypes.byref(word)), word.value.decode(), cuda.cuGetErrorName(12345, ctypes.byref(word)), word.value)
`
	cmd := exec.Command("python3", "-c", program, filepath.Join(d.Dir, "lib", "libcuda.so.1"))
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	if got, want := mustOutput(t, cmd), "3 3 1 0 12040\n0 CUDA_ERROR_NO_DEVICE 1 None\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestEscapeIsReadBack(t *testing.T) {
	for _, value := range []string{"", "0,1", " ", "%", "#a", "=-", "GPU-9e8d35e3", "\x01\xff\n1–2", "%41"} {
		word := Escape(&value)
		back, err := Unescape(word)
		if err != nil || back == nil || *back != value || strings.ContainsAny(word, " \n#") {
			t.Errorf("%q is written as %q and read as %v, %v", value, word, back, err)
		}
	}
	if back, err := Unescape(Escape(nil)); back != nil || err != nil {
		t.Errorf("no variable is read as %v, %v", back, err)
	}
	for _, bad := range []string{"", "0", "=%", "=%4", "=%zz"} {
		if back, err := Unescape(bad); err == nil {
			t.Errorf("%q is read as %v", bad, back)
		}
	}
}
