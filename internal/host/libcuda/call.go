package libcuda

import (
	"bytes"
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"
)

// libraryHandle is the handle of the opened library.
type libraryHandle uintptr

// symbolAddress returns the address of a library function, 0 if the library does not have it.
func (l libraryHandle) symbolAddress(name string) uintptr {
	found, err := purego.Dlsym(uintptr(l), name)
	if err != nil {
		return 0
	}
	return found
}

func (l libraryHandle) lacksFunction(name string) bool { return l.symbolAddress(name) == 0 }

// callDriver calls a function that returns CUresult. Pointers must be converted to uintptr in the call itself: the
// directive keeps the memory that they point to in place until the call returns.
//
//go:uintptrescapes
func (l libraryHandle) callDriver(name string, arguments ...uintptr) int {
	found := l.symbolAddress(name)
	if found == 0 {
		return functionNotFound
	}
	return int(int32(invokeFunction(found, arguments...)))
}

//go:uintptrescapes
func invokeFunction(address uintptr, arguments ...uintptr) uintptr {
	result, _, _ := purego.SyscallN(address, arguments...)
	return result
}

// readText calls a function of the form f(char *buffer, int length, CUdevice device); "" if it fails.
func (l libraryHandle) readText(name string, size int, device int32) string {
	buffer := make([]byte, size)
	if l.callDriver(name, uintptr(unsafe.Pointer(&buffer[0])), uintptr(size), uintptr(device)) != success {
		return ""
	}
	text, _, _ := bytes.Cut(buffer, []byte{0})

	return string(text)
}

// readUUID calls a function of the form f(CUuuid *uuid, CUdevice device).
func (l libraryHandle) readUUID(name string, device int32) (id [16]byte, ok bool) {
	code := l.callDriver(name, uintptr(unsafe.Pointer(&id)), uintptr(device))
	return id, code == success
}

// codeName returns the name of a code, such as "CUDA_ERROR_NO_DEVICE".
func (l libraryHandle) codeName(code int) string {
	var name uintptr
	if l.callDriver("cuGetErrorName", uintptr(code), uintptr(unsafe.Pointer(&name))) != success || name == 0 {
		return fmt.Sprintf("CUresult %d", code)
	}

	// The memory belongs to the library, so the garbage collector does not move it.
	start := *(*unsafe.Pointer)(unsafe.Pointer(&name))
	const limit = 256

	for n := range limit {
		if *(*byte)(unsafe.Add(start, n)) == 0 {
			return string(unsafe.Slice((*byte)(start), n))
		}
	}

	return fmt.Sprintf("CUresult %d", code)
}
