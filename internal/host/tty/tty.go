// Package tty writes a line on the terminals of a user, as write(1) and wall(1) do: only where the user takes messages
// (mesg(1)), and never waiting for a terminal. It must not read from one, nor become its process.
//
//	n := tty.DevRoot("/").Tell(uid, "GPU 3 is unhealthy", tty.OwnTerminal())
package tty

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/prose"
	"gpuard/internal/host/sys"
)

// DevRoot is the folder above dev: "/" outside tests.
type DevRoot string

// TellUser writes a line on each terminal that belongs to a user and takes messages, but not on the device except (0:
// none), and returns on how many.
func (d DevRoot) TellUser(uid uint32, line string, except uint64) (told int) {
	for _, path := range d.listTerminals() {
		if writeLine(path, uid, line, func(device uint64) bool { return device != except }) {
			told++
		}
	}
	return told
}

// TellProcess writes a line for the user of a process: on the terminal of the process if that belongs to the user, else
// on all of the user's.
func (d DevRoot) TellProcess(pid int, start uint64, uid uint32, line string) (told int) {
	if p, ok := sys.ReadProcess(pid); ok && p.Start == start && p.Terminal != 0 {
		for _, path := range d.listTerminals() {
			if writeLine(path, uid, line, func(device uint64) bool { return device == p.Terminal }) {
				return 1
			}
		}
	}
	return d.TellUser(uid, line, 0)
}

// OwnTerminal is the terminal of this process's standard error; 0: it is none.
func OwnTerminal() uint64 {
	var st unix.Stat_t
	if unix.Fstat(int(os.Stderr.Fd()), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return 0
	}
	return st.Rdev
}

// listTerminals are pseudo terminals and those of the console. Serial lines are left out: their opening may wait.
func (d DevRoot) listTerminals() (paths []string) {
	for _, pattern := range []string{"dev/pts/[0-9]*", "dev/tty[0-9]*"} {
		found, _ := filepath.Glob(filepath.Join(string(d), pattern))
		paths = append(paths, found...)
	}
	return paths
}

// writeLine writes a line on a terminal if it is one of the user, takes messages, and wanted says so.
func writeLine(path string, uid uint32, line string, wanted func(device uint64) bool) bool {
	takes := func(st unix.Stat_t) bool {
		major := unix.Major(st.Rdev)

		// admin-guide/devices.txt of the kernel.
		return st.Mode&unix.S_IFMT == unix.S_IFCHR && (major == 4 || major >= 136 && major <= 143) &&
			st.Uid == uid && st.Mode&unix.S_IWGRP != 0 && wanted(st.Rdev)
	}

	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil || !takes(st) {
		return false
	}

	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}

	defer unix.Close(fd) //nolint:errcheck // nothing is kept back

	// It may be another user's by now. With tostop, writing from the background would stop this process (termios(3)).
	mode, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if unix.Fstat(fd, &st) != nil || !takes(st) || err != nil || mode.Lflag&unix.TOSTOP != 0 {
		return false
	}

	n, err := unix.Write(fd, []byte("\r\n"+strings.TrimSpace(prose.Clean(line))+"\r\n"))

	return err == nil && n > 0
}
