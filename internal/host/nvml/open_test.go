package nvml

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/gate"
	"gpuard/test/fakegpu"
)

func TestReasonsForNoGPUAreToldApart(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		prepare func(t *testing.T, d *fakegpu.Driver)
		cause   gpu.Cause
		text    []string // the text contains all of these
	}{
		{"no library", func(t *testing.T, d *fakegpu.Driver) { d.RemoveFile("lib/libnvidia-ml.so.1") },
			gpu.LibraryMissing, []string{"cannot find", "libnvidia-ml.so.1", "No such file"}},
		{"a text file instead of the library", func(t *testing.T, d *fakegpu.Driver) {
			replace(t, d.Library(), []byte(strings.Repeat("this is no library\n", 100)))
		}, gpu.LibraryUnloadable, []string{"cannot load", "libnvidia-ml.so.1", "ELF"}},
		{"half a library", func(t *testing.T, d *fakegpu.Driver) {
			code, err := os.ReadFile(d.Library())
			if err != nil {
				t.Fatal(err)
			}
			replace(t, d.Library(), code[:100])
		}, gpu.LibraryUnloadable, []string{"cannot load", "libnvidia-ml.so.1"}},
		{"driver not loaded", func(t *testing.T, d *fakegpu.Driver) { d.FailInit(int(driverNotLoaded)) },
			gpu.DriverNotLoaded, []string{"kernel driver is not loaded", "Driver Not Loaded"}},
		{"versions differ", func(t *testing.T, d *fakegpu.Driver) { d.FailInit(int(versionMismatch)) },
			gpu.VersionMismatch, []string{"different versions", "Driver/library version mismatch"}},
		{"no permission", func(t *testing.T, d *fakegpu.Driver) { d.FailInit(int(noPermission)) },
			gpu.NoPermission, []string{"no permission", "Insufficient Permissions"}},
		{"no permission for any device", func(t *testing.T, d *fakegpu.Driver) {
			d.Fail("nvmlDeviceGetHandleByIndex_v2", fakegpu.AnyGPU, int(noPermission))
		}, gpu.NoPermission, []string{"any of the 2 GPUs", "no permission"}},
		{"all lost", func(t *testing.T, d *fakegpu.Driver) { d.LoseGPU(0); d.LoseGPU(1) },
			gpu.DriverError, []string{"any of the 2 GPUs", "GPU is lost"}},
		{"the driver cannot count", func(t *testing.T, d *fakegpu.Driver) {
			d.Fail("nvmlDeviceGetCount_v2", fakegpu.AnyGPU, int(gpuNotFound))
		}, gpu.NoDevice, []string{"reports no device"}},
		{"init hangs", func(t *testing.T, d *fakegpu.Driver) { d.Hang("nvmlInit_v2", fakegpu.AnyGPU) },
			gpu.NoAnswer, []string{"no answer within 1.5s", "nvmlInit_v2"}},
		{"the count hangs", func(t *testing.T, d *fakegpu.Driver) { d.Hang("nvmlDeviceGetCount_v2", fakegpu.AnyGPU) },
			gpu.NoAnswer, []string{"no answer within 1.5s", "nvmlDeviceGetCount_v2"}},
		{"every device hangs", func(t *testing.T, d *fakegpu.Driver) { d.Hang("nvmlDeviceGetHandleByIndex_v2", fakegpu.AnyGPU) },
			gpu.NoAnswer, []string{"no answer within 1.5s", "reading the devices"}},
	}
	for _, symbol := range []string{"nvmlInit_v2", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID"} {
		tests = append(tests, struct {
			name    string
			prepare func(t *testing.T, d *fakegpu.Driver)
			cause   gpu.Cause
			text    []string
		}{"no " + symbol, func(t *testing.T, d *fakegpu.Driver) { d.HideSymbols(symbol) },
			gpu.LibraryUnloadable, []string{"it has no " + symbol}})
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.cause == gpu.LibraryMissing {
				gate.Need(t, "no nvidia libraries")
			}
			d := fakegpu.New(t, fakegpu.A100(0), fakegpu.A100(1))
			test.prepare(t, d)
			checkUnavailable(t, child(t, d.Env(), gpu.Everything, patience), test.cause, test.text)
		})
	}
}

func TestNoDevice(t *testing.T) {
	d := fakegpu.New(t)
	checkUnavailable(t, child(t, d.Env(), gpu.Identity, patience), gpu.NoDevice, []string{"reports no device", "550.54.15"})
}

func checkUnavailable(t *testing.T, r reading, cause gpu.Cause, text []string) {
	t.Helper()
	if r.Unavailable == nil {
		t.Fatalf("the error is %q, not a *gpu.Unavailable; the machine has %d devices", r.Error, len(r.Machine.Devices))
	}
	if r.Unavailable.Cause != cause {
		t.Errorf("the cause is %s, want %s: %s", r.Unavailable.Cause, cause, r.Error)
	}
	for _, part := range text {
		if !strings.Contains(r.Unavailable.Text, part) {
			t.Errorf("the text %q does not say %q", r.Unavailable.Text, part)
		}
	}
	if !strings.HasPrefix(r.Unavailable.Text, "cannot ") || r.Unavailable.Remedy == "" {
		t.Errorf("the text is %q and the remedy %q", r.Unavailable.Text, r.Unavailable.Remedy)
	}
	if r.Elapsed > 2*patience {
		t.Errorf("the answer took %v", r.Elapsed)
	}
}

// replace replaces the file name by another one, as an installation does.
func replace(t *testing.T, name string, content []byte) {
	t.Helper()
	other := filepath.Join(filepath.Dir(name), "other")
	if err := os.WriteFile(other, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other, name); err != nil {
		t.Fatal(err)
	}
}

func TestUnclearCodesAreExplainedByTheControlNode(t *testing.T) {
	tests := []struct {
		code  returnCode
		node  error
		cause gpu.Cause
	}{
		{unknown, syscall.EPERM, gpu.NoPermission}, // a container that lost the right to open the node
		{unknown, syscall.EACCES, gpu.NoPermission},
		{operatingSystem, syscall.EPERM, gpu.NoPermission},
		{unknown, fs.ErrNotExist, gpu.DriverNotLoaded},
		{unknown, syscall.ENXIO, gpu.DriverNotLoaded}, // a node without a driver behind it
		{unknown, nil, gpu.DriverError},
		{unknown, syscall.EIO, gpu.DriverError},
		{driverNotLoaded, nil, gpu.DriverNotLoaded},
		{libraryNotFound, fs.ErrNotExist, gpu.LibraryUnloadable},
		{versionMismatch, syscall.EPERM, gpu.VersionMismatch},
		{gpuNotFound, nil, gpu.NoDevice},
	}
	for _, test := range tests {
		got := refusedError(test.code, "its words", "580.95", test.node)
		if got.Cause != test.cause {
			t.Errorf("code %d with the node saying %v: %s, want %s", test.code, test.node, got.Cause, test.cause)
		}
		if !strings.Contains(got.Text, "its words") || got.Remedy == "" {
			t.Errorf("code %d: text %q, remedy %q", test.code, got.Text, got.Remedy)
		}
		if named := strings.Contains(got.Text, "580.95"); named != (test.cause == gpu.VersionMismatch) {
			t.Errorf("code %d: library version named: %v in %q", test.code, named, got.Text)
		}
	}
}

func TestACallerWhoGaveUpIsNotToldThatTheDriverHangs(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := noAnswerError(ctx, "nvmlInit_v2", time.Second)
	var unavailable *gpu.Unavailable
	if !errors.Is(err, context.Canceled) || errors.As(err, &unavailable) {
		t.Errorf("got %v", err)
	}
}
