//go:build amd64 || arm64

// Package filelimit knows the limit of open files (RLIMIT_NOFILE) that this process was started with. The Go package
// syscall raises it when the program begins, and puts it back for what it executes; what is executed without it has to
// do the same.
//
//	soft, hard := filelimit.OriginalLimits()
package filelimit

// startLimits is read before syscall begins: of the packages whose imports have begun, the one whose path comes first
// is next, and this one has no imports and a path before "syscall". The test shows it.
var startLimits = readLimit()

func readLimit() (limit [2]uint64) {
	getLimit(&limit)
	return limit
}

// getLimit is prlimit(2) of this process; limit stays zero where it fails.
//
//go:noescape
func getLimit(limit *[2]uint64)

// OriginalLimits returns the limits before Go raised the soft one; 0, 0 where they could not be read.
func OriginalLimits() (soft, hard uint64) { return startLimits[0], startLimits[1] }
