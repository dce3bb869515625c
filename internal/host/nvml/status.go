package nvml

import "fmt"

// status is nvmlReturn_t.
type status uint32

// The codes that this package distinguishes.
const (
	success          status = 0
	uninitialized    status = 1
	invalidArgument  status = 2
	notSupported     status = 3
	noPermission     status = 4
	notFound         status = 6
	insufficientSize status = 7
	driverNotLoaded  status = 9
	timedOut         status = 10
	libraryNotFound  status = 12
	functionNotFound status = 13
	gpuIsLost        status = 15
	resetRequired    status = 16
	operatingSystem  status = 17
	versionMismatch  status = 18
	noData           status = 21
	argumentVersion  status = 25
	deprecated       status = 26
	gpuNotFound      status = 28
	unknown          status = 999
)

// absent reports whether the code means that this driver or device does not have the reading.
// An older driver returns "invalid argument" for a field or sensor that it does not know.
func (s status) absent() bool {
	switch s {
	case invalidArgument, notSupported, notFound, functionNotFound, noData, argumentVersion, deprecated:
		return true
	}
	return false
}

// fatal reports whether the device will answer no more calls, and returns the text for its Problem.
func (s status) fatal() (string, bool) {
	switch s {
	case gpuIsLost:
		return "GPU is lost", true
	case resetRequired:
		return "GPU needs a reset", true
	}
	return "", false
}

// errorText returns the driver's text for a code, or the number if it has none.
func (l *Library) errorText(s status) string {
	if address := l.address("nvmlErrorString"); address != 0 {
		if text := cString(l.invoke("nvmlErrorString", address, uintptr(s))); text != "" {
			return text
		}
	}
	return fmt.Sprintf("error %d", s)
}
