package sys

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"gpuard/internal/host/timens"
)

// Process is what /proc/PID/stat says, as far as it is needed (proc_pid_stat(5)).
type Process struct {
	PID int
	// The name that the process chose.
	Name string
	// 'Z' is a zombie, 'X' is dead, 'T' is stopped.
	State                  byte
	Parent, Group, Session int
	// Clock ticks used by all its threads, in user and kernel mode.
	CPU uint64
	// Clock ticks since boot, whatever the time namespace; together with the PID it names one process for ever.
	Start uint64
	// The exit status of a dead one, for its owner and root.
	Exit unix.WaitStatus
	// Device number of its controlling terminal; 0: none.
	Terminal uint64
	// PF_EXITING of include/linux/sched.h: it runs no code of its own any more.
	Exits bool
	// PF_FORKNOEXEC: it still runs the program of its parent.
	Forked bool
	// An exec(2) is under way: it has no arguments and no environment yet; false where the caller may not know.
	Starting bool
}

// IsDead reports whether the process has ended; its parent has not waited for it yet.
func (p Process) IsDead() bool { return p.State == 'Z' || p.State == 'X' }

// ReadProcess reads one process. It fails where there is none that the caller can see.
func ReadProcess(pid int) (Process, bool) {
	shift, err := timens.Offset("/proc", timens.Boottime)
	if err != nil {
		// Its start would be that of another process.
		return Process{}, false
	}
	return readProcess(pid, shift)
}

func readProcess(pid int, shift time.Duration) (Process, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Process{}, false
	}

	p, ok := ParseProcess(string(stat))
	p.PID, p.Start = pid, timens.Unshift(p.Start, shift)

	return p, ok
}

// Bits of field 9 of /proc/PID/stat (include/linux/sched.h).
const (
	flagExiting      = 0x4      // PF_EXITING
	flagForked       = 0x40     // PF_FORKNOEXEC
	flagKernelThread = 0x200000 // PF_KTHREAD
)

// ReadProcesses reads all that the caller can see.
func ReadProcesses() map[int]Process {
	all := map[int]Process{}
	shift, err := timens.Offset("/proc", timens.Boottime)
	if err != nil {
		return all
	}

	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}

		p, isThere := readProcess(pid, shift)
		if isThere {
			all[pid] = p
		}
	}

	return all
}

// ParseProcess reads all but the PID; Start is as this time namespace shows it. It cuts at the last parenthesis: the
// name in field 2 may itself hold spaces and parentheses.
func ParseProcess(stat string) (p Process, ok bool) {
	open, end := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return p, false
	}

	// rest[0] is field 3.
	rest := strings.Fields(stat[end+1:])
	if len(rest) < 20 || len(rest[0]) != 1 || rest[0][0] > unicode.MaxASCII {
		return p, false
	}

	ok = true
	number := func(field int) uint64 {
		n, err := strconv.ParseInt(rest[field-3], 10, 64)
		ok = ok && err == nil && n >= 0
		return uint64(n) //nolint:gosec // not negative where ok
	}

	p = Process{Name: stat[open+1 : end], State: rest[0][0], Parent: int(number(4)), Group: int(number(5)), Session: int(number(6)), CPU: number(14) + number(15), Start: number(22)} //nolint:gosec // PIDs are small
	if tty, err := strconv.ParseInt(rest[7-3], 10, 64); err == nil {
		p.Terminal = uint64(uint32(tty)) //nolint:gosec // the kernel prints 32 bits with a sign
	}

	p.Exits, p.Forked = number(9)&flagExiting != 0, number(9)&flagForked != 0
	if len(rest) > 49 {
		// env_start, which the kernel sets last, when it has put arguments and environment into the new memory
		// (fs/binfmt_elf.c) start_code, where the caller may not know the addresses (fs/proc/array.c).
		const unknown = 1
		p.Starting = number(50) == 0 && number(26) != unknown && number(9)&flagKernelThread == 0 && !p.IsDead() && !p.Exits
		p.Exit = unix.WaitStatus(number(52)) //nolint:gosec // the bits of wait(2); since Linux 3.5
	}

	return p, ok
}

// SendSignals sends signals to a process, if sure says that it is the one that is meant. It is asked once the number
// cannot become that of another process.
func SendSignals(pid int, sure func() bool, signals ...unix.Signal) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}

	defer unix.Close(fd) //nolint:errcheck // it was for these signals alone
	if !isProcess(fd, pid) || !sure() {
		return errors.New("it is another one by now")
	}

	for i, sig := range signals {
		err := unix.PidfdSendSignal(fd, sig, nil, 0)
		if i > 0 && errors.Is(err, unix.ESRCH) {
			// It has ended of the one before.
			break
		}
		if err != nil {
			return err
		}
	}

	return nil
}

// isProcess reports whether a pidfd is of the process that procfs has under this number. It is another one where procfs
// is that of another PID namespace, and none where it has ended and was collected (pidfd_open(2)).
func isProcess(pidfd, pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", pidfd))
	if err != nil {
		return false
	}

	for line := range strings.Lines(string(text)) {
		if number, found := strings.CutPrefix(line, "Pid:"); found {
			return strings.TrimSpace(number) == strconv.Itoa(pid)
		}
	}

	return false
}

// AwaitExit returns when the process of a pidfd has ended; it need not be a child.
func AwaitExit(pidfd int) {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, -1) //nolint:gosec // a descriptor
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// InheritFDs are descriptors that were named on the command line. Programs that are started do not get them.
func InheritFDs(numbers ...string) (fds []int, ok bool) {
	for _, number := range numbers {
		fd, err := strconv.Atoi(number)
		if err != nil || fd < 3 {
			return nil, false
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
			return nil, false
		}
		fds = append(fds, fd)
	}
	return fds, true
}
