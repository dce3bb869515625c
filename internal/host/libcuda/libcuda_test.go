package libcuda

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	"gpuard/internal/gate"
	"gpuard/test/fakegpu"
)

// TestMain makes this test binary the program that Ask starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == ProbeFlag {
		if chatter := os.Getenv("CHATTER"); chatter != "" {
			fmt.Print(chatter)
		}
		switch os.Getenv("END") {
		case "silent":
			unix.Exit(0)
		case "badly":
			fmt.Fprintln(os.Stderr, "\nsomething broke\nand more")
			unix.Exit(7)
		}
		if err := ServeProbe(os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			unix.Exit(1)
		}
		// At os.Exit the race detector pauses for a second, unless GORACE says otherwise, which a child like this is not given.
		unix.Exit(0)
	}
	os.Exit(m.Run())
}

func ask(t *testing.T, d *fakegpu.Driver, env ...string) (Answer, error) {
	t.Helper()
	return AskInChild(t.Context(), append(d.Env(), env...), 20*time.Second)
}

// machine has two devices and a table of answers for them.
func machine(t *testing.T) (*fakegpu.Driver, []fakegpu.Seen) {
	t.Helper()
	first, second := fakegpu.A100(0).With("pci", "00000001:AF:00.0"), fakegpu.H100(1).MIG("1g.10gb")
	d := fakegpu.New(t, first, second)
	seen := []fakegpu.Seen{
		{UUID: first["uuid"], PCI: first["pci"]},
		{UUID: second["mig/0/uuid"], PCI: second["pci"], Parent: second["uuid"]},
	}
	d.SetCUDATable(fakegpu.Answer{Devices: seen})
	return d, seen
}

func TestEveryOrdinalIsListed(t *testing.T) {
	d, _ := machine(t)
	got, err := ask(t, d)
	want := Answer{
		Devices: []ShownDevice{
			{UUID: "GPU-fa4e0000-0000-4000-8000-000000000000", PCI: "0001:af:00.0", Name: "NVIDIA A100-SXM4-80GB"},
			{UUID: "MIG-fa4e0000-0000-5000-8000-000001000000", PCI: "0000:11:00.0", Name: "NVIDIA H100 80GB HBM3 MIG 1g.10gb"},
		},
		Word: "CUDA_SUCCESS", CUDA: "12.4", Library: filepath.Join(d.Dir, "lib", "libcuda.so.1"),
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
}

func TestLibrariesBeforeTheNewerUUID(t *testing.T) {
	d, _ := machine(t)
	d.HideSymbols("cuDeviceGetUuid_v2")
	got, err := ask(t, d)
	if err != nil || len(got.Devices) != 2 || !got.Parents {
		t.Fatalf("got %+v, %v", got, err)
	}
	if got.Devices[0].UUID != "GPU-fa4e0000-0000-4000-8000-000000000000" || got.Devices[1].UUID != "GPU-fa4e0000-0000-4000-8000-000000000001" {
		t.Errorf("devices %+v, want the GPU's UUID for both", got.Devices)
	}
}

func TestADeviceKeepsWhatCanBeRead(t *testing.T) {
	d, _ := machine(t)
	for _, f := range []string{"cuDeviceGetUuid", "cuDeviceGetUuid_v2", "cuDeviceGetName"} {
		d.Fail(f, 1, 999)
	}
	got, err := ask(t, d)
	if err != nil || len(got.Devices) != 2 || got.Devices[1] != (ShownDevice{PCI: "0000:11:00.0"}) || got.Devices[0].UUID == "" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestCodesThatMeanNoDevice(t *testing.T) {
	for code, word := range map[int]string{100: "CUDA_ERROR_NO_DEVICE", 101: "CUDA_ERROR_INVALID_DEVICE", 3: "CUDA_ERROR_NOT_INITIALIZED"} {
		d := fakegpu.New(t, fakegpu.A100(0))
		d.SetCUDATable(fakegpu.Answer{Visible: new("-1"), Code: code})
		got, err := ask(t, d, "CUDA_VISIBLE_DEVICES=-1")
		if err != nil || got.Devices == nil || len(got.Devices) != 0 || got.Code != code || got.Word != word || got.CUDA != "12.4" {
			t.Errorf("code %d: %+v, %v", code, got, err)
		}
	}
}

func TestReasonsForNoAnswerAreToldApart(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(d *fakegpu.Driver) (env string)
		cause   gpu.Cause
		text    []string
		remedy  string
	}{
		{"no library", func(d *fakegpu.Driver) string { d.RemoveFile("lib/libcuda.so.1"); return "" },
			gpu.LibraryMissing, []string{"cannot find", "libcuda.so.1", "No such file"}, "NVIDIA_DRIVER_CAPABILITIES"},
		{"rubbish", func(d *fakegpu.Driver) string {
			d.WriteFile("lib/libcuda.so.1", strings.Repeat("no library\n", 100))
			return ""
		},
			gpu.LibraryUnloadable, []string{"cannot load", "libcuda.so.1"}, "ldconfig"},
		{"another library of that name", func(d *fakegpu.Driver) string { d.HideSymbols("cuDeviceGetCount"); return "" },
			gpu.LibraryUnloadable, []string{"it has no cuDeviceGetCount"}, "ldconfig"},
		{"stub", func(d *fakegpu.Driver) string { d.Fail("cuInit", fakegpu.AnyGPU, 34); return "" },
			gpu.LibraryUnloadable, []string{"34 (CUDA_ERROR_STUB_LIBRARY)"}, "lib/libcuda.so.1: take that folder out of LD_LIBRARY_PATH"},
		{"fabric manager", func(d *fakegpu.Driver) string { d.Fail("cuInit", fakegpu.AnyGPU, 802); return "" },
			gpu.DriverError, []string{"802 (CUDA_ERROR_SYSTEM_NOT_READY)"}, "fabricmanager"},
		{"versions differ", func(d *fakegpu.Driver) string { d.Fail("cuInit", fakegpu.AnyGPU, 803); return "" },
			gpu.VersionMismatch, []string{"803"}, "reboot"},
		{"library newer", func(d *fakegpu.Driver) string { d.Fail("cuInit", fakegpu.AnyGPU, 804); return "" },
			gpu.VersionMismatch, []string{"804"}, "lib/libcuda.so.1 is newer than the loaded kernel driver: after an update reboot"},
		{"compatibility package", func(d *fakegpu.Driver) string {
			d.Fail("cuInit", fakegpu.AnyGPU, 804)
			compat := filepath.Join(t.TempDir(), "compat")
			if err := os.CopyFS(compat, os.DirFS(filepath.Join(d.Dir, "lib"))); err != nil {
				t.Fatal(err)
			}
			return "LD_LIBRARY_PATH=" + compat
		}, gpu.VersionMismatch, []string{"804"}, "on data center cards only: take that folder out of LD_LIBRARY_PATH (in"},
		{"unknown code", func(d *fakegpu.Driver) string { d.Fail("cuInit", fakegpu.AnyGPU, 4711); return "" },
			gpu.DriverError, []string{"4711 (CUresult 4711)"}, "dmesg"},
		{"the count fails", func(d *fakegpu.Driver) string { d.Fail("cuDeviceGetCount", fakegpu.AnyGPU, 999); return "" },
			gpu.DriverError, []string{"cuDeviceGetCount answers 999 (CUDA_ERROR_UNKNOWN)"}, "dmesg"},
		{"a device fails", func(d *fakegpu.Driver) string { d.Fail("cuDeviceGet", 1, 101); return "" },
			gpu.DriverError, []string{"cuDeviceGet(1) answers 101"}, "dmesg"},
		{"the child ends badly", func(*fakegpu.Driver) string { return "END=badly" },
			gpu.DriverError, []string{"exit status 7", "something broke"}, "LD_PRELOAD"},
		{"the child says nothing", func(*fakegpu.Driver) string { return "END=silent" },
			gpu.DriverError, []string{"without an answer", "exit status 0"}, "LD_PRELOAD"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.cause == gpu.LibraryMissing {
				gate.Need(t, "no nvidia libraries")
			}
			d, _ := machine(t)
			_, err := ask(t, d, c.prepare(d))
			var why *gpu.Unavailable
			if !errors.As(err, &why) || why.Cause != c.cause || !strings.HasPrefix(why.Text, "cannot ") || !strings.Contains(why.Remedy, c.remedy) {
				t.Fatalf("got %+v (%v), want cause %s and remedy …%s…", why, err, c.cause, c.remedy)
			}
			for _, part := range c.text {
				if !strings.Contains(why.Text, part) {
					t.Errorf("the text %q does not say %q", why.Text, part)
				}
			}
		})
	}
}

func TestHangingDriver(t *testing.T) {
	for _, function := range []string{"cuInit", "cuDeviceGetName"} {
		d, _ := machine(t)
		d.Hang(function, fakegpu.AnyGPU)
		begin := time.Now()
		_, err := AskInChild(t.Context(), d.Env(), 300*time.Millisecond)
		var why *gpu.Unavailable
		if !errors.As(err, &why) || why.Cause != gpu.NoAnswer || !strings.Contains(why.Text, "no answer within 300ms") {
			t.Errorf("%s hangs: %v", function, err)
		}
		if took := time.Since(begin); took > 20*time.Second {
			t.Errorf("%s hangs: the answer took %v", function, took)
		}
	}
	d, _ := machine(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := AskInChild(ctx, d.Env(), time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who gave up is told %v", err)
	}
}

// getenv(3) returns the first of two values, so the environment must be passed on unchanged.
func TestTheEnvironmentIsPassedOnExactly(t *testing.T) {
	d, seen := machine(t)
	odd := " 0 ,\xff%\n1"
	d.SetCUDATable(
		fakegpu.Answer{Visible: new("0"), Devices: seen[:1]},
		fakegpu.Answer{Visible: new("1"), Devices: seen[1:]},
		fakegpu.Answer{Visible: new(""), Order: new(""), Devices: seen},
		fakegpu.Answer{Visible: &odd, Code: 101},
	)
	for _, c := range []struct {
		env  []string
		want int
		code int
	}{
		{[]string{"CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=none"}, 1, 0},
		{[]string{"CUDA_VISIBLE_DEVICES=", "CUDA_DEVICE_ORDER="}, 2, 0},
		{[]string{"CUDA_VISIBLE_DEVICES=" + odd}, 0, 101},
	} {
		if got, err := ask(t, d, c.env...); err != nil || len(got.Devices) != c.want || got.Code != c.code {
			t.Errorf("%q: %+v, %v", c.env, got, err)
		}
	}
	t.Setenv("CUDA_VISIBLE_DEVICES", "0") // the parent's must not reach the child
	if _, err := AskInChild(t.Context(), append(d.Env(), "CUDA_VISIBLE_DEVICES=1"), 20*time.Second); err != nil {
		t.Error(err)
	}
}

func TestOthersMayPrint(t *testing.T) {
	d, _ := machine(t)
	for _, chatter := range []string{"no newline at the end", "{\"schema\":\"x\"}\n", strings.Repeat("a line\n", 1000)} {
		if got, err := ask(t, d, "CHATTER="+chatter); err != nil || len(got.Devices) != 2 {
			t.Errorf("behind %.40q: %+v, %v", chatter, got, err)
		}
	}
}

func TestAddress(t *testing.T) {
	for in, want := range map[string]string{
		"0000:17:00.0": "0000:17:00.0", "00000000:AF:00.0": "0000:af:00.0", "00010000:01:00.0": "10000:01:00.0", "": "", "odd": "odd",
	} {
		if got := kernelAddress(in); got != want {
			t.Errorf("address(%q) = %q, want %q", in, got, want)
		}
	}
}
