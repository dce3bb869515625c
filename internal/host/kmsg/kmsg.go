// Package kmsg reads NVIDIA's driver errors (XIDs) from the end of the kernel's log. It reads a limited part, once, and
// judges nothing. If this user may not read the log, it costs one refused system call.
//
//	errors, err := kmsg.ReadErrors("/")
//	for _, e := range errors { // e.PCI has had XID e.XID.Code at e.XID.At
//
// It calls syslog(2) and does not read /dev/kmsg: the device returns one record per read, oldest first, which takes a
// tenth of a second for a log of 100,000 lines, and cannot be read from its end. The call returns the end in one piece.
// It has one weakness: the kernel prints a program's file name in some messages, and that may contain a line break, so
// that a part of it appears as a line of its own. The lines of one message have the same time stamp. So a line is
// ignored if the line before it is not of the driver and has the same stamp.
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
	"gpuard/internal/host/timens"
)

// Error is one XID in the log, or the end of others.
type Error struct {
	// "0000:05:00", lower case: domain, bus and device; "" for all devices.
	PCI string
	XID gpu.XID
	// No error: the device has recovered or the driver was loaded again, and earlier errors do not count.
	After bool
}

// logTailSize is how much of the log is read, in bytes: some 1,500 lines, in about a millisecond.
const logTailSize = 128 << 10

// maxPerCode is how many errors of one device and code are returned, the newest: a program that fails in a loop repeats
// them.
const maxPerCode = 4

// Actions of syslog(2) (torvalds/linux include/linux/syslog.h).
const (
	// SYSLOG_ACTION_READ_ALL: the last part of the log that fits; it stays in the log.
	readAll = 3
	// SYSLOG_ACTION_SIZE_BUFFER.
	sizeOfLog = 10
)

// ReadErrors returns the errors at the end of the log, oldest first, at most four of each device and code. For root "/"
// it reads the kernel's log; for another root the file dev/kmsg below it, with lines in the kernel's form ("<4>[
// 12.345678] NVRM: Xid (PCI:0000:05:00): 79, …"). The error says that the log cannot be read: on most machines only
// root may.
func ReadErrors(root string) ([]Error, error) {
	size, err := logTailSize, error(nil)
	if root == "/" {
		// Needs the same permission as reading, and costs next to nothing if refused.
		if hasSeccompFilter() {
			return nil, unix.EPERM
		}
		size, err = unix.Klogctl(sizeOfLog, nil)
	}

	if err != nil {
		return nil, err
	}

	buffer := make([]byte, min(size, logTailSize))
	var n int
	if root == "/" {
		n, err = unix.Klogctl(readAll, buffer)
	} else {
		n, err = readEnd(filepath.Join(root, "dev/kmsg"), buffer)
	}

	if err != nil {
		return nil, err
	}

	return Parse(buffer[:n], logClockStart()), nil
}

// hasSeccompFilter reports whether this process has a seccomp filter (seccomp(2)), which may end it at some system
// calls. With SystemCallFilter=@system-service, as in most hardened services of systemd, syslog(2) is one of these
// (systemd: src/shared/seccomp-util.c).
func hasSeccompFilter() bool {
	mode, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0)
	return err == nil && mode != 0
}

func readEnd(path string, buffer []byte) (int, error) {
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

// logClockStart returns the wall clock time at which the clock of the kernel's log started. Like CLOCK_MONOTONIC, that
// clock does not count during suspend (kernel/printk/printk.c, local_clock).
func logClockStart() time.Time {
	var ts unix.Timespec
	shift, err := timens.Offset("/proc", timens.Monotonic)
	if err != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
		return time.Time{}
	}

	// So that readings agree.
	return time.Now().Add(shift - time.Duration(ts.Nano())).Round(time.Millisecond)
}

// Parse finds the errors in lines of the kernel's log. start is the time at which the log's clock started. It skips
// errors before a recovery, and lines that are not exactly in the driver's form.
func Parse(text []byte, start time.Time) []Error {
	var found []Error
	var before logLine
	for line := range bytes.Lines(text) {
		l, ok := parseStamp(line)
		forged := !ok || l.stamp == before.stamp && !before.driver
		l.driver = ok && !forged && bytes.HasPrefix(l.text, []byte("NVRM: "))
		before = l

		switch {
		case !l.driver:
		case bytes.HasPrefix(l.text, []byte("NVRM: loading NVIDIA ")):
			found = []Error{{XID: gpu.XID{At: clockAt(start, l.since), Source: "kernel log"}, After: true}}
		default:
			if e, ok := parseXID(string(l.text), l.since, start); ok {
				found = append(found, e)
			}
		}
	}

	return keepNewest(found)
}

// logLine is one line of the log.
type logLine struct {
	stamp string
	// since the start of the log's clock.
	since  time.Duration
	text   []byte
	driver bool
}

// parseStamp cuts "<4>[   12.345678] " or "<4>[   12.345678][ T123] " off a line. A line with a level above 7 was written by
// a program. A line without a time may be a part of another one.
func parseStamp(line []byte) (logLine, bool) {
	line = bytes.TrimRight(line, "\r\n")
	if len(line) < 5 || line[0] != '<' || line[1] < '0' || line[1] > '7' || line[2] != '>' || line[3] != '[' {
		return logLine{}, false
	}

	clock, rest, ok := bytes.Cut(line[4:], []byte("]"))
	seconds, micros, dotted := strings.Cut(strings.TrimSpace(string(clock)), ".")
	s, err1 := strconv.ParseUint(seconds, 10, 32)
	us, err2 := strconv.ParseUint(micros, 10, 32)
	if !ok || !dotted || len(micros) != 6 || err1 != nil || err2 != nil {
		return logLine{}, false
	}

	if bytes.HasPrefix(rest, []byte("[")) {
		// The task or processor, depending on the kernel's configuration.
		_, rest, _ = bytes.Cut(rest, []byte("]"))
	}

	text, spaced := bytes.CutPrefix(rest, []byte(" "))

	return logLine{stamp: string(clock), since: time.Duration(s)*time.Second + time.Duration(us)*time.Microsecond, text: text}, spaced
}

// parseXID reads "NVRM: Xid (PCI:0000:05:00): 79, pid=1234, name=python, …" (docs.nvidia.com/deploy/xid-errors). The
// process may be '<unknown>'. The address of a MIG device may be followed by its instances, " GPU-I:02 GPU-CI:00"
// (NVIDIA/open-gpu-kernel-modules src/nvidia/src/kernel/gpu/rc/kernel_rc.c); the error counts for the whole device.
func parseXID(text string, since time.Duration, start time.Time) (Error, bool) {
	rest, ok := strings.CutPrefix(text, "NVRM: Xid (PCI:")
	place, rest, closed := strings.Cut(rest, "): ")
	address, _, _ := strings.Cut(place, " GPU-I:")
	number, detail, _ := strings.Cut(rest, ",")
	code, err := strconv.ParseUint(strings.TrimSpace(number), 10, 20)
	if !ok || !closed || err != nil || !isAddress(address) {
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

// clockAt returns the wall clock time of a line; zero if start is not known.
func clockAt(start time.Time, since time.Duration) time.Time {
	if start.IsZero() {
		return start
	}
	return start.Add(since)
}

// isAddress reports whether s is "0000:05:00", with four to eight digits of domain.
func isAddress(s string) bool {
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

// keepNewest keeps the newest errors of each device and code after its last recovery.
func keepNewest(found []Error) []Error {
	type kind struct {
		pci  string
		code int
	}

	over, count := map[string]bool{}, map[kind]int{}
	var out []Error
	for i := len(found) - 1; i >= 0; i-- {
		e := found[i]
		k := kind{e.PCI, e.XID.Code}
		count[k]++
		if over[e.PCI] && !e.After || count[k] > maxPerCode {
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
