package nvml

import "fmt"

// returnCode is nvmlReturn_t.
type returnCode uint32

// The codes that this package distinguishes.
const (
	success          returnCode = 0
	uninitialized    returnCode = 1
	invalidArgument  returnCode = 2
	notSupported     returnCode = 3
	noPermission     returnCode = 4
	notFound         returnCode = 6
	insufficientSize returnCode = 7
	driverNotLoaded  returnCode = 9
	timedOut         returnCode = 10
	libraryNotFound  returnCode = 12
	functionNotFound returnCode = 13
	gpuIsLost        returnCode = 15
	resetRequired    returnCode = 16
	operatingSystem  returnCode = 17
	versionMismatch  returnCode = 18
	noData           returnCode = 21
	argumentVersion  returnCode = 25
	deprecated       returnCode = 26
	gpuNotFound      returnCode = 28
	unknown          returnCode = 999
)

// isAbsent reports whether the code means that this driver or device does not have the reading.
// An older driver returns "invalid argument" for a field or sensor that it does not know.
func (r returnCode) isAbsent() bool {
	switch r {
	case invalidArgument, notSupported, notFound, functionNotFound, noData, argumentVersion, deprecated:
		return true
	}
	return false
}

// fatalProblem reports whether the device will answer no more calls, and returns the text for its Problem.
func (r returnCode) fatalProblem() (string, bool) {
	switch r {
	case gpuIsLost:
		return "GPU is lost", true
	case resetRequired:
		return "GPU needs a reset", true
	}
	return "", false
}

// errorText returns the driver's text for a code, or the number if it has none.
func (l *Library) errorText(s returnCode) string {
	if address := l.symbolAddress("nvmlErrorString"); address != 0 {
		if text := cString(l.invokeCaught("nvmlErrorString", address, uintptr(s))); text != "" {
			return text
		}
	}
	return fmt.Sprintf("error %d", s)
}
