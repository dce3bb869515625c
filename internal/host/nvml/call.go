package nvml

import (
	"bytes"
	"unsafe"

	"github.com/ebitengine/purego"
)

// symbolAddress returns the address of a library function, 0 if the library does not have it. It looks a function up
// when it is first called, so that a short reading does not pay for all of them.
func (l *Library) symbolAddress(name string) uintptr {
	l.mu.RLock()
	address, known := l.addresses[name]
	l.mu.RUnlock()
	if known {
		return address
	}

	address, err := purego.Dlsym(l.handle, name)
	if err != nil {
		address = 0
	}

	l.mu.Lock()
	l.addresses[name] = address
	l.mu.Unlock()

	return address
}

// callDriver calls a function that returns nvmlReturn_t. For a function that the library lacks it returns
// functionNotFound, as the library does for a function that the driver lacks. Pointers must be converted to uintptr in
// the call itself: the directive keeps the memory that they point to in place until the call returns.
//
//go:uintptrescapes
func (l *Library) callDriver(name string, arguments ...uintptr) returnCode {
	address := l.symbolAddress(name)
	if address == 0 {
		return functionNotFound
	}
	return returnCode(uint32(l.invokeCaught(name, address, arguments...)))
}

//go:uintptrescapes
func (l *Library) invokeCaught(name string, address uintptr, arguments ...uintptr) uintptr {
	if l.catcher == nil {
		result, _, _ := purego.SyscallN(address, arguments...)
		return result
	}

	slot := l.catcher.EnterCall(name)
	result, _, _ := purego.SyscallN(address, arguments...)
	l.catcher.LeaveCall(slot)

	return result
}

// readText calls a function of the form f(device, char *buffer, unsigned int length).
func (l *Library) readText(name string, handle uintptr, size int) (string, returnCode) {
	buffer := make([]byte, size)
	s := l.callDriver(name, handle, uintptr(unsafe.Pointer(&buffer[0])), uintptr(size))
	return cutAtZero(buffer), s
}

// readSystemText calls a function of the form f(char *buffer, unsigned int length).
func (l *Library) readSystemText(name string, size int) (string, returnCode) {
	buffer := make([]byte, size)
	s := l.callDriver(name, uintptr(unsafe.Pointer(&buffer[0])), uintptr(size))
	return cutAtZero(buffer), s
}

func cutAtZero(buffer []byte) string {
	text, _, _ := bytes.Cut(buffer, []byte{0})
	return string(text)
}

// cString copies a C string of the library. The memory belongs to the library, so the garbage collector does not move
// it.
func cString(address uintptr) string {
	if address == 0 {
		return ""
	}

	start := *(*unsafe.Pointer)(unsafe.Pointer(&address))
	const limit = 256

	for n := range limit {
		if *(*byte)(unsafe.Add(start, n)) == 0 {
			return string(unsafe.Slice((*byte)(start), n))
		}
	}

	return ""
}
