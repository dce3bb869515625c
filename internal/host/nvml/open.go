package nvml

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"

	"gpuard/internal/core/gpu"
)

// start does the blocking part of Open.
func (l *Library) start() error {
	runtime.LockOSThread() // the loader keeps its error text per thread
	defer runtime.UnlockOSThread()
	if err := l.load(); err != nil {
		return err
	}
	for _, name := range []string{initialise, "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID"} {
		if l.address(name) == 0 {
			return lacks(l.name, name)
		}
	}
	return l.initialise()
}

const initialise = "nvmlInit_v2"

// initialise initialises the library, which finds the devices.
func (l *Library) initialise() error {
	l.entries = l.devices()
	l.step.Store(new(initialise))
	if s := l.call(initialise); s != success {
		version, _ := l.systemText("nvmlSystemGetNVMLVersion", versionSize)
		return refused(s, l.errorText(s), driverVersion(version), control())
	}
	return l.survey()
}

// driverVersion is the driver's version in that of the library: before it stands the number of CUDA, as in 12.535.261.03.
func driverVersion(version string) string {
	if cuda, driver, both := strings.Cut(version, "."); both && len(cuda) <= 2 {
		return driver
	}
	return version
}

// load opens the shared library. With RTLD_NOW, a library that lacks a symbol is an error here; with RTLD_LAZY it would
// end the process during a later call.
func (l *Library) load() error {
	var missing error
	for _, name := range []string{"libnvidia-ml.so.1", "libnvidia-ml.so"} {
		handle, err := l.dlopen(name)
		if err == nil {
			l.handle, l.name = handle, name
			return nil
		}
		// The loader's error begins with the missing file. Another name is a file that the library needs.
		if !strings.HasPrefix(err.Error(), name+": cannot open shared object file: No such file") {
			return unloadable(err)
		}
		if missing == nil {
			missing = err
		}
	}
	return libraryMissing(missing)
}

// dlopen runs the library's own code for its start, which can crash like any other.
func (l *Library) dlopen(name string) (uintptr, error) {
	if l.catcher != nil {
		defer l.catcher.Leave(l.catcher.Enter("loading " + name))
	}
	return purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

// mostDevices is far more than a machine can have.
const mostDevices = 1024

// survey reads the versions and the number of devices, which do not change until the library is initialised again.
func (l *Library) survey() error {
	l.step.Store(new("nvmlDeviceGetCount_v2"))
	var count uint32
	if s := l.call("nvmlDeviceGetCount_v2", uintptr(unsafe.Pointer(&count))); s != success {
		return refused(s, l.errorText(s), "", control())
	}
	l.step.Store(new("nvmlSystemGetDriverVersion"))
	l.driver, _ = l.systemText("nvmlSystemGetDriverVersion", versionSize)
	var cuda int32
	if l.call("nvmlSystemGetCudaDriverVersion_v2", uintptr(unsafe.Pointer(&cuda))) == success && cuda > 0 {
		l.cuda = fmt.Sprintf("%d.%d", cuda/1000, cuda%1000/10)
	}
	if count == 0 {
		return noDevice(l.driver)
	}
	if count > mostDevices {
		return &gpu.Unavailable{Cause: gpu.DriverError, Text: fmt.Sprintf("cannot use the GPUs: the driver says that there are %d", count), Remedy: "install the driver again"}
	}
	l.count = int(count)
	l.busy = make([]atomic.Bool, count)
	l.known = make([]gpu.Device, count)
	l.counted = true
	return nil
}

// devices lists the entries of the kernel driver's folder; none if there is no such folder.
func (l *Library) devices() []string {
	dir, err := os.Open(l.kernel)
	if err != nil {
		return nil
	}
	defer dir.Close() //nolint:errcheck // read only
	names, _ := dir.Readdirnames(-1)
	slices.Sort(names)
	return names
}

// recount initialises the library again if the kernel driver has other devices than at the last count, or if asked is
// set: the library counts devices only once (docs.nvidia.com/deploy/nvml-api, nvmlDeviceDiscoverGpus, for processes
// that run long). The caller has the token of turn, and puts it back only if owner is true. Otherwise the driver hangs,
// and the goroutine in it keeps the token until it answers. recount does nothing while a call of an earlier reading
// runs or a listener waits: they use the library that it would shut down.
func (l *Library) recount(ctx context.Context, asked bool, limit time.Duration) (owner bool, err error) {
	if l.counted && !asked && slices.Equal(l.entries, l.devices()) {
		return true, nil
	}
	done := make(chan error, 1)
	go func() {
		l.shut.Lock()
		defer l.shut.Unlock()
		if l.hangs() || l.listening.Load() > 0 {
			done <- nil
			return
		}
		if l.counted {
			l.step.Store(new("nvmlShutdown"))
			l.call("nvmlShutdown")
			l.counted = false
		}
		done <- l.initialise()
	}()
	select {
	case err = <-done:
		return true, err
	case <-ctx.Done():
		go func() {
			<-done //nolint:errcheck // the caller has returned without the answer
			l.turn <- struct{}{}
		}()
		return false, late(ctx, *l.step.Load(), limit)
	}
}

// control opens the driver's control node, whose error explains codes that do not say what is wrong. It is called only
// after a failure.
func control() error {
	file, err := os.OpenFile("/dev/nvidiactl", os.O_RDWR, 0)
	if err == nil {
		return file.Close()
	}
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
