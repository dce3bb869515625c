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

// openLibrary does the blocking part of Open.
func (l *Library) openLibrary() error {
	// The loader keeps its error text per thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := l.loadLibrary(); err != nil {
		return err
	}

	for _, name := range []string{initFunction, "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID"} {
		if l.symbolAddress(name) == 0 {
			return tooOldError(l.name, name)
		}
	}

	return l.initialiseLibrary()
}

const initFunction = "nvmlInit_v2"

// initialiseLibrary initialises the library, which finds the devices.
func (l *Library) initialiseLibrary() error {
	l.entries = l.kernelEntries()
	l.step.Store(new(initFunction))
	if s := l.callDriver(initFunction); s != success {
		version, _ := l.readSystemText("nvmlSystemGetNVMLVersion", versionSize)
		return refusedError(s, l.errorText(s), driverVersion(version), openControlNode())
	}

	return l.countDevices()
}

// driverVersion is the driver's version in that of the library: before it stands the number of CUDA, as in
// 12.535.261.03.
func driverVersion(version string) string {
	if cuda, driver, both := strings.Cut(version, "."); both && len(cuda) <= 2 {
		return driver
	}
	return version
}

// loadLibrary opens the shared library. With RTLD_NOW, a library that lacks a symbol is an error here; with RTLD_LAZY
// it would end the process during a later call.
func (l *Library) loadLibrary() error {
	var missing error
	for _, name := range []string{"libnvidia-ml.so.1", "libnvidia-ml.so"} {
		handle, err := l.dlopen(name)
		if err == nil {
			l.handle, l.name = handle, name
			return nil
		}

		// The loader's error begins with the missing file. Another name is a file that the library needs.
		if !strings.HasPrefix(err.Error(), name+": cannot open shared object file: No such file") {
			return unloadableError(err)
		}
		if missing == nil {
			missing = err
		}
	}
	return missingError(missing)
}

// dlopen runs the library's own code for its start, which can crash like any other.
func (l *Library) dlopen(name string) (uintptr, error) {
	if l.catcher != nil {
		defer l.catcher.LeaveCall(l.catcher.EnterCall("loading " + name))
	}
	return purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

// maxDevices is far more than a machine can have.
const maxDevices = 1024

// countDevices reads the versions and the number of devices, which do not change until the library is initialised
// again.
func (l *Library) countDevices() error {
	l.step.Store(new("nvmlDeviceGetCount_v2"))
	var count uint32
	if s := l.callDriver("nvmlDeviceGetCount_v2", uintptr(unsafe.Pointer(&count))); s != success {
		return refusedError(s, l.errorText(s), "", openControlNode())
	}

	l.step.Store(new("nvmlSystemGetDriverVersion"))
	l.driver, _ = l.readSystemText("nvmlSystemGetDriverVersion", versionSize)
	var cuda int32
	if l.callDriver("nvmlSystemGetCudaDriverVersion_v2", uintptr(unsafe.Pointer(&cuda))) == success && cuda > 0 {
		l.cuda = fmt.Sprintf("%d.%d", cuda/1000, cuda%1000/10)
	}

	if count == 0 {
		return noDeviceError(l.driver)
	}
	if count > maxDevices {
		return &gpu.Unavailable{Cause: gpu.DriverError, Text: fmt.Sprintf("cannot use the GPUs: the driver says that there are %d", count), Remedy: "install the driver again"}
	}

	l.count = int(count)
	l.busy = make([]atomic.Bool, count)
	l.known = make([]gpu.Device, count)
	l.counted = true

	return nil
}

// kernelEntries lists the entries of the kernel driver's folder; none if there is no such folder.
func (l *Library) kernelEntries() []string {
	dir, err := os.Open(l.kernel)
	if err != nil {
		return nil
	}

	defer dir.Close() //nolint:errcheck // read only
	names, _ := dir.Readdirnames(-1)
	slices.Sort(names)

	return names
}

// recountDevices initialises the library again if the kernel driver has other devices than at the last count, or if
// asked is set: the library counts devices only once (docs.nvidia.com/deploy/nvml-api, nvmlDeviceDiscoverGpus, for
// processes that run long). The caller has the token of turn, and puts it back only if owner is true. Otherwise the
// driver hangs, and the goroutine in it keeps the token until it answers. recountDevices does nothing while a call of an
// earlier reading runs or a listener waits: they use the library that it would shut down.
func (l *Library) recountDevices(ctx context.Context, asked bool, limit time.Duration) (owner bool, err error) {
	if l.counted && !asked && slices.Equal(l.entries, l.kernelEntries()) {
		return true, nil
	}
	done := make(chan error, 1)
	go func() {
		l.shut.Lock()
		defer l.shut.Unlock()
		if l.isHanging() || l.listening.Load() > 0 {
			done <- nil
			return
		}

		if l.counted {
			l.step.Store(new("nvmlShutdown"))
			l.callDriver("nvmlShutdown")
			l.counted = false
		}

		done <- l.initialiseLibrary()
	}()

	select {
	case err = <-done:
		return true, err
	case <-ctx.Done():
		go func() {
			<-done //nolint:errcheck // the caller has returned without the answer
			l.turn <- struct{}{}
		}()
		return false, noAnswerError(ctx, *l.step.Load(), limit)
	}
}

// openControlNode opens the driver's control node, whose error explains codes that do not say what is wrong. It is
// called only after a failure.
func openControlNode() error {
	file, err := os.OpenFile("/dev/nvidiactl", os.O_RDWR, 0)
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	if err != nil {
		return err
	}

	return file.Close()
}
