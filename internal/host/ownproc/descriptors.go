package ownproc

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Descriptor is an open file of this process.
type Descriptor struct {
	FD int
	// A program that this one executes does not get it.
	CloseOnExec bool
}

// Path is its link in /proc, which leads to the file.
func (d Descriptor) Path() string { return fmt.Sprintf("/proc/self/fd/%d", d.FD) }

// OpenDescriptors lists the files that this process has open, in no order. The list's own file is not in it.
func OpenDescriptors() ([]Descriptor, error) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, err
	}

	open := make([]Descriptor, 0, len(entries))
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}

		// The descriptor of the listing is closed by now.
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0) //nolint:gosec // not negative
		if err != nil {
			continue
		}

		open = append(open, Descriptor{fd, flags&unix.FD_CLOEXEC != 0})
	}

	return open, nil
}
