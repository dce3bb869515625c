// Package kmsg reads NVIDIA's driver errors (XIDs) from the end of the kernel's log. It reads a bounded piece, once, and
// judges nothing. Where this user may not read the log, that is one refused system call.
//
// Lines come from the syslog(2) call and not from /dev/kmsg: the device gives one record per read, oldest first, which takes
// a tenth of a second for a log of 100,000 lines, and cannot be read from its end. The call returns the end in one piece.
// It has one weakness: a program's file name, which the kernel prints in some messages, may hold a line break, and then a
// part of it stands there like a line of the kernel. Such lines of one message have one time stamp, so a line is not
// believed when the line before it, of somebody else, has the same stamp.
package kmsg

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
)

// Error is one XID in the log, or the end of others.
type Error struct {
	PCI   string // "0000:05:00", lower case: domain, bus and device; "" all devices
	XID   gpu.XID
	After bool // no error: the device needs no recovery any more, or the driver was loaded anew; what came before is over
}

// tail is how much of the log is read, in bytes: some 1,500 lines, in about a millisecond.
const tail = 128 << 10

// limit is how many errors of one device and code are told, the newest: a program that fails in a loop repeats itself.
const limit = 4

// Actions of syslog(2) (torvalds/linux include/linux/syslog.h).
const (
	readAll   = 3  // SYSLOG_ACTION_READ_ALL: the last part of the log that fits; nothing is taken out of it
	sizeOfLog = 10 // SYSLOG_ACTION_SIZE_BUFFER
)

// Read returns the errors at the end of the log of the machine whose files lie below root, oldest first, at most four of
// each device and code. For "/" it is the kernel's own log; elsewhere the file dev/kmsg below root, with the lines that the
// kernel would give ("<4>[   12.345678] NVRM: Xid (PCI:0000:05:00): 79, …"). The error is that the log cannot be read: most
// machines let only root do so.
func Read(root string) ([]Error, error) {
	size, err := tail, error(nil)
	if root == "/" { // asks for the same permission as reading, and costs next to nothing when it is refused
		if filtered() {
			return nil, unix.EPERM
		}
		size, err = unix.Klogctl(sizeOfLog, nil)
	}
	if err != nil {
		return nil, err
	}
	buffer := make([]byte, min(size, tail))
	var n int
	if root == "/" {
		n, err = unix.Klogctl(readAll, buffer)
	} else {
		n, err = lastOf(filepath.Join(root, "dev/kmsg"), buffer)
	}
	if err != nil {
		return nil, err
	}
	return Parse(buffer[:n], booted()), nil
}

// filtered reports whether some system calls end this process (seccomp(2)). syslog(2) is not among those that a service may make
// with SystemCallFilter=@system-service, which is what most of systemd's hardening has (systemd: src/shared/seccomp-util.c).
func filtered() bool {
	mode, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0)
	return err == nil && mode != 0
}

func lastOf(path string, buffer []byte) (int, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close() //nolint:errcheck // read only
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	n, err := file.ReadAt(buffer, max(0, info.Size()-int64(len(buffer))))
	if n > 0 {
		err = nil
	}
	return n, err
}

// booted is when the kernel's log clock began, on the wall clock of now. That clock stands still during suspend, like
// CLOCK_MONOTONIC (kernel/printk/printk.c, local_clock).
func booted() time.Time {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(ts.Nano())).Round(time.Millisecond) // so that readings agree
}

// Parse finds the errors in lines of the kernel's log whose clock began at start. Errors that are over are left out, and so
// is whatever is not exactly a line of the driver.
func Parse(text []byte, start time.Time) []Error {
	var found []Error
	var before stamped
	for line := range bytes.Lines(text) {
		l, ok := stamp(line)
		forged := !ok || l.stamp == before.stamp && !before.driver
		l.driver = ok && !forged && bytes.HasPrefix(l.text, []byte("NVRM: "))
		before = l
		switch {
		case !l.driver:
		case bytes.HasPrefix(l.text, []byte("NVRM: loading NVIDIA ")):
			found = []Error{{XID: gpu.XID{At: clockAt(start, l.since), Source: "kernel log"}, After: true}}
		default:
			if e, ok := xid(string(l.text), l.since, start); ok {
				found = append(found, e)
			}
		}
	}
	return few(found)
}

// stamped is one line: who wrote it is in text, when in stamp.
type stamped struct {
	stamp  string
	since  time.Duration // since the start of the log's clock
	text   []byte
	driver bool
}

// stamp takes "<4>[   12.345678] " or "<4>[   12.345678][ T123] " off a line. A level above 7 is a line that a program
// wrote; a line without a time cannot be told from a part of another one.
func stamp(line []byte) (stamped, bool) {
	line = bytes.TrimRight(line, "\r\n")
	if len(line) < 5 || line[0] != '<' || line[1] < '0' || line[1] > '7' || line[2] != '>' || line[3] != '[' {
		return stamped{}, false
	}
	clock, rest, ok := bytes.Cut(line[4:], []byte("]"))
	seconds, micros, dotted := strings.Cut(strings.TrimSpace(string(clock)), ".")
	s, err1 := strconv.ParseUint(seconds, 10, 32)
	us, err2 := strconv.ParseUint(micros, 10, 32)
	if !ok || !dotted || len(micros) != 6 || err1 != nil || err2 != nil {
		return stamped{}, false
	}
	if bytes.HasPrefix(rest, []byte("[")) { // the task or processor, where the kernel is built to say it
		_, rest, _ = bytes.Cut(rest, []byte("]"))
	}
	text, spaced := bytes.CutPrefix(rest, []byte(" "))
	return stamped{stamp: string(clock), since: time.Duration(s)*time.Second + time.Duration(us)*time.Microsecond, text: text}, spaced
}

// xid reads "NVRM: Xid (PCI:0000:05:00): 79, pid=1234, name=python, …" (the form is shown in
// docs.nvidia.com/deploy/xid-errors). The process may be '<unknown>', and behind the address of a device with slices may stand
// which of them it was, " GPU-I:02 GPU-CI:00" (NVIDIA/open-gpu-kernel-modules src/nvidia/src/kernel/gpu/rc/kernel_rc.c): the
// error counts for the device.
func xid(text string, since time.Duration, start time.Time) (Error, bool) {
	rest, ok := strings.CutPrefix(text, "NVRM: Xid (PCI:")
	place, rest, closed := strings.Cut(rest, "): ")
	address, _, _ := strings.Cut(place, " GPU-I:")
	number, detail, _ := strings.Cut(rest, ",")
	code, err := strconv.ParseUint(strings.TrimSpace(number), 10, 20)
	if !ok || !closed || err != nil || !addressed(address) {
		return Error{}, false
	}
	e := Error{PCI: strings.ToLower(address), XID: gpu.XID{Code: int(code), Source: "kernel log"}}
	e.XID.At = clockAt(start, since)
	if _, after, ok := strings.Cut(detail, "pid="); ok {
		digits, _, _ := strings.Cut(strings.Trim(after, "'"), ",")
		if pid, err := strconv.ParseUint(strings.Trim(digits, "' "), 10, 22); err == nil {
			e.XID.PID = int(pid)
		}
	}
	e.After = code == 154 && strings.Contains(detail, "recovery action changed from 0x") && strings.HasSuffix(strings.TrimSpace(detail), "to 0x0 (None)")
	return e, true
}

// clockAt is the wall clock of a line; zero where it is not known when the log's clock began.
func clockAt(start time.Time, since time.Duration) time.Time {
	if start.IsZero() {
		return start
	}
	return start.Add(since)
}

// addressed reports whether s is "0000:05:00", with four to eight digits of domain.
func addressed(s string) bool {
	parts := strings.Split(s, ":")
	if len(parts) != 3 || len(parts[0]) < 4 || len(parts[0]) > 8 || len(parts[1]) != 2 || len(parts[2]) != 2 {
		return false
	}
	for _, p := range parts {
		if _, err := strconv.ParseUint(p, 16, 32); err != nil {
			return false
		}
	}
	return true
}

// few keeps the newest errors of each device and code, and what came after a recovery.
func few(found []Error) []Error {
	type kind struct {
		pci  string
		code int
	}
	over, count := map[string]bool{}, map[kind]int{}
	var out []Error
	for i := len(found) - 1; i >= 0; i-- {
		e := found[i]
		k := kind{e.PCI, e.XID.Code}
		if count[k]++; over[e.PCI] && !e.After || count[k] > limit {
			continue
		}
		out = append(out, e)
		over[e.PCI] = over[e.PCI] || e.After
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}
