// Package timens is what a time namespace adds to the clocks (time_namespaces(7)): the same process has another start
// time there, and the same boot another age. What gpuard writes down is compared by processes of all namespaces, so it
// is always the machine's own. The package reads procfs and changes nothing.
//
//	shift, err := timens.Offset("/proc", timens.Boottime)
//	machine := shown - shift
package timens

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Clock is one that a time namespace can shift.
type Clock string

// The clocks, as timens_offsets names them.
const (
	Monotonic Clock = "monotonic"
	Boottime  Clock = "boottime"
)

// Unshift is a number of ticks without the offset.
func Unshift(shown uint64, shift time.Duration) uint64 {
	return uint64(max(0, int64(shown)-int64(shift/Tick))) //nolint:gosec // less than an age of a machine
}

// Tick is the unit in which /proc/PID/stat has the start of a process (USER_HZ, include/asm-generic/param.h).
const Tick = time.Second / 100

// firstTimeNamespace is the machine's own namespace: PROC_TIME_INIT_INO in torvalds/linux include/linux/proc_ns.h.
const firstTimeNamespace = "time:[4026531834]"

// Offset is what a clock shows here more than outside of all time namespaces. The error says that it cannot be known:
// then no time of this process may be compared with that of another one. A kernel before Linux 5.6 has none of these
// namespaces.
func Offset(proc string, clock Clock) (time.Duration, error) {
	own, err := os.Readlink(filepath.Join(proc, "self/ns/time"))
	if errors.Is(err, os.ErrNotExist) || err == nil && own == firstTimeNamespace {
		return 0, nil
	}

	children, cerr := os.Readlink(filepath.Join(proc, "self/ns/time_for_children"))

	// The offsets of the children's namespace.
	text, terr := os.ReadFile(filepath.Join(proc, "self/timens_offsets"))
	switch err := errors.Join(err, cerr, terr); {
	case err != nil:
		return 0, fmt.Errorf("cannot tell the time of this time namespace: %w", err)
	case own != children:
		return 0, errors.New("cannot tell the time of this time namespace, which is not that of new processes: start gpuard in one (unshare --time --fork)")
	}

	return parseOffsets(string(text), clock)
}

func parseOffsets(text string, clock Clock) (time.Duration, error) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != string(clock) {
			continue
		}

		seconds, err := strconv.ParseInt(f[1], 10, 64)
		rest, nerr := strconv.ParseInt(f[2], 10, 64)
		const most = int64(1<<62) / int64(time.Second)
		if errors.Join(err, nerr) != nil || seconds > most || seconds < -most {
			break
		}

		shift := time.Duration(seconds)*time.Second + time.Duration(rest)
		if shift%Tick != 0 {
			// The start of a process is cut to ticks after the shift: it could be one of two.
			return 0, fmt.Errorf("cannot compare times of this time namespace, which is shifted by a part of %s", Tick)
		}

		return shift, nil
	}
	return 0, fmt.Errorf("cannot tell the time of this time namespace by its offsets %q", text)
}
