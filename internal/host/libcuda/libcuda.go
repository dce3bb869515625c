// Package libcuda asks NVIDIA's CUDA driver library, libcuda.so.1, which devices a process sees. The library reads the
// environment once, when it is initialised, so a child process with exactly that environment asks. The package decides
// nothing and knows no rules of the variables: its answer is the reference for such rules.
//
//	answer, err := libcuda.AskInChild(ctx, []string{"CUDA_VISIBLE_DEVICES=GPU-5c"}, 10*time.Second)
//	for number, device := range answer.Devices { // device.UUID
package libcuda

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"gpuard/internal/core/gpu"
)

// ShownDevice is one device as the driver reports it. Its index in the answer is the number that programs use.
type ShownDevice struct {
	// "GPU-…" or "MIG-…", as nvidia-smi -L prints them; "" if not known.
	UUID gpu.UUID `json:"uuid"`
	// "0000:17:00.0", lower case; "" if not known.
	PCI  string `json:"pci"`
	Name string `json:"name"`
}

// Answer is what a process with that environment sees.
type Answer struct {
	// The devices in the order of their ordinals; never nil.
	Devices []ShownDevice `json:"devices"`
	// What cuInit returned (CUresult); 0 is success.
	Code int `json:"code"`
	// The code's name, such as "CUDA_ERROR_NO_DEVICE".
	Word string `json:"word"`
	// Highest CUDA version of the driver, "12.4"; "" if not known.
	CUDA string `json:"cuda"`
	// The file that the loader found.
	Library string `json:"library"`
	// The UUID of a MIG device is that of its GPU: the library has no cuDeviceGetUuid_v2.
	Parents bool `json:"parents"`
}

// The CUresult values that this package distinguishes ("CUDA Driver API", module "Data types used by CUDA driver").
const (
	success        = 0
	notInitialized = 3
	stubLibrary    = 34
	noDevice       = 100
	invalidDevice  = 101
	systemNotReady = 802
	driverMismatch = 803
	// CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE; observed of libcuda 535 to 555: this where the kernel driver is
	// somewhat older, 803 where it is newer.
	newerThanDriver = 804
	unknownError    = 999
	// CUDA_ERROR_NOT_FOUND; call returns it for a function that the library lacks.
	functionNotFound = 500
)

// ListDevices loads the library in this process, initialises it, and lists the devices that it reports under the
// environment with which this process was started. If cuInit returns that there is no usable device (3, 100, 101), the
// list is empty and has the code, as in XuehaiPan/nvitop nvitop/api/device.py. Every other failure is a
// *gpu.Unavailable. It blocks as long as the driver does; AskInChild has a deadline.
func ListDevices() (Answer, error) {
	// The loader keeps its error text per thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	a := Answer{Devices: []ShownDevice{}}
	handle, err := purego.Dlopen(libraryName, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return a, cannotLoad(err)
	}

	l := libraryHandle(handle)
	a.Library = loadedLibrary()

	for _, name := range []string{"cuInit", "cuDeviceGetCount", "cuDeviceGet"} {
		if l.symbolAddress(name) == 0 {
			return a, missingFunction(name)
		}
	}

	var version int32
	if l.callDriver("cuDriverGetVersion", uintptr(unsafe.Pointer(&version))) == success && version > 0 {
		a.CUDA = fmt.Sprintf("%d.%d", version/1000, version%1000/10)
	}

	a.Code = l.callDriver("cuInit", 0)
	a.Word = l.codeName(a.Code)

	switch a.Code {
	case success:
		return l.listOrdinals(a)
	case noDevice, invalidDevice, notInitialized:
		return a, nil
	}

	return a, refusedError("cuInit", a)
}

// listOrdinals lists every ordinal.
func (l libraryHandle) listOrdinals(a Answer) (Answer, error) {
	var count int32
	if code := l.callDriver("cuDeviceGetCount", uintptr(unsafe.Pointer(&count))); code != success {
		return a, l.callError("cuDeviceGetCount", code)
	}

	a.Parents = l.symbolAddress("cuDeviceGetUuid_v2") == 0

	for i := range count {
		var device int32
		if code := l.callDriver("cuDeviceGet", uintptr(unsafe.Pointer(&device)), uintptr(i)); code != success {
			return a, l.callError(fmt.Sprintf("cuDeviceGet(%d)", i), code)
		}
		a.Devices = append(a.Devices, l.describeDevice(device))
	}

	return a, nil
}

// describeDevice reads what identifies a device. If a function fails, its field stays empty and the others still
// identify the device.
func (l libraryHandle) describeDevice(device int32) ShownDevice {
	d := ShownDevice{Name: l.readText("cuDeviceGetName", 256, device), PCI: kernelAddress(l.readText("cuDeviceGetPCIBusId", 64, device))}
	own, ok := l.readUUID("cuDeviceGetUuid_v2", device)
	whole, older := l.readUUID("cuDeviceGetUuid", device)
	if !ok {
		own, ok = whole, older
	}

	// The 16 bytes do not say whether they are of a GPU or a MIG device. The older function returns those of the GPU,
	// the newer one those of the MIG device. For a MIG device, the driver adds the profile to the name: "NVIDIA
	// A100-SXM4-80GB MIG 1g.10gb".
	kind := "GPU-"
	if older && own != whole || !l.lacksFunction("cuDeviceGetUuid_v2") && strings.Contains(d.Name, " MIG ") {
		kind = "MIG-"
	}

	if ok {
		d.UUID = gpu.UUID(kind + formatUUID(own))
	}

	return d
}

func formatUUID(id [16]byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// kernelAddress converts a PCI address to the kernel's form: lower case, with four digits of domain.
func kernelAddress(s string) string { return cmp.Or(gpu.KernelAddress(s), strings.ToLower(s)) }

const libraryName = "libcuda.so.1"

// loadedLibrary returns the path of the loaded file. It is in messages because it may be a toolkit's stub, or a
// container's compatibility library.
func loadedLibrary() string {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return libraryName
	}

	defer f.Close()

	for lines := bufio.NewScanner(f); lines.Scan(); {
		if _, path, ok := strings.Cut(lines.Text(), " /"); ok && strings.HasPrefix(filepath.Base(path), "libcuda.so") {
			return "/" + path
		}
	}

	return libraryName
}
