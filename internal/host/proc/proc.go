// Package proc reads processes, their owners, environments and cgroups from procfs. It decides nothing and sends no
// signal. Text that a process can choose (name, arguments, cgroup) is cleaned of control characters before it is
// returned.
//
//	fs := proc.New("/proc")
//	s, err := fs.Stat(pid)
//	alive := fs.Alive(pid, s.Start) // false once another process has the PID
//	holder := fs.Describe(pid)      // user and command, for a message
package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/prose"
	"gpuard/internal/host/sys"
	"gpuard/internal/host/timens"
)

// FS is one procfs. It has no open files, and no state but the names of users, which its copies share.
type FS struct {
	root  string
	names *userNames
	// Parsed here and not by libc, so that the program needs no cgo.
	passwd string
	group  string // likewise
	// timens.Offset of CLOCK_BOOTTIME.
	shift func() (time.Duration, error)
}

// New reads procfs at root: "/proc", or a folder of the same shape in tests.
func New(root string) FS {
	shift := sync.OnceValues(func() (time.Duration, error) { return timens.Offset(root, timens.Boottime) })
	return FS{root: root, names: &userNames{}, passwd: "/etc/passwd", group: "/etc/group", shift: shift}
}

// Stat is the part of /proc/PID/stat that gpuard uses (proc_pid_stat(5)).
type Stat struct {
	// Name of the thread group leader, cleaned.
	Comm string
	// One letter; "Z" is a zombie, "X" is dead.
	State string
	PPID  int
	Group int // process group
	// Clock ticks since boot, whatever the time namespace; PID and Start together identify one process of this boot.
	Start uint64
	// Used by all its threads so far, in user and kernel mode.
	CPU time.Duration
	// It is on its way out: it runs no code of its own any more.
	Exits bool
	// Starting: an execve(2) is under way, and the process has no arguments and no environment yet. False where the
	// caller may not know.
	Starting bool
}

// StateGone is the State of a process that does not exist.
const StateGone = "gone"

// ticksPerSecond is USER_HZ, which the kernel fixes at 100 for every architecture Go supports
// (include/asm-generic/param.h).
const ticksPerSecond = 100

// slowReadDeadline is the deadline of reads that may wait for another process: cmdline and environ take that process's
// memory lock, and a process that is stuck in a driver can hold it for ever.
const slowReadDeadline = 300 * time.Millisecond

// Stat reads one process. The error is os.ErrNotExist if there is no such process, or if procfs hides it (hidepid=).
func (f FS) Stat(pid int) (Stat, error) {
	b, err := f.readFile(4096, strconv.Itoa(pid), "stat")
	if err != nil {
		return Stat{}, fmt.Errorf("cannot read process %d: %w", pid, err)
	}

	s, ok := parseStat(string(b))
	if !ok {
		return Stat{}, fmt.Errorf("cannot read process %d: %s has an unknown form", pid, filepath.Join(f.root, strconv.Itoa(pid), "stat"))
	}

	shift, err := f.clockOffset()
	if err != nil {
		return Stat{}, fmt.Errorf("cannot read process %d: %w", pid, err)
	}

	s.Start = timens.Unshift(s.Start, shift)

	return s, nil
}

// CheckClock is an error where times cannot be compared with those of other processes, in some time namespaces.
func (f FS) CheckClock() error {
	_, err := f.clockOffset()
	return err
}

func (f FS) clockOffset() (time.Duration, error) {
	if f.shift == nil {
		// Of no procfs.
		return 0, nil
	}
	return f.shift()
}

func parseStat(line string) (Stat, bool) {
	p, ok := sys.ParseProcess(line)
	return Stat{Comm: prose.Clean(p.Name), State: string(p.State), PPID: p.Parent, Group: p.Group, Start: p.Start, CPU: ticksToDuration(p.CPU), Exits: p.Exits, Starting: p.Starting}, ok
}

// IsAlive reports whether the process exists, started at start (0 accepts any), and has not ended: a zombie is not
// alive. A process that procfs hides counts as alive: it exists, and more cannot be known.
func (f FS) IsAlive(pid int, start uint64) bool {
	s, err := f.Stat(pid)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist) || f.isHidden(pid)
	}
	return (start == 0 || s.Start == start) && s.State != "Z" && s.State != "X"
}

// IsEnding reports whether the process has ended or is on its way out. One that procfs hides may be.
func (f FS) IsEnding(pid int, start uint64) bool {
	s, err := f.Stat(pid)
	return err != nil || s.Exits || start != 0 && s.Start != start || s.State == "Z" || s.State == "X"
}

// IsGroupAlive reports whether any process of a process group is alive.
func (f FS) IsGroupAlive(group int) bool {
	pids, err := f.listPIDs()
	return err != nil || slices.ContainsFunc(pids, func(pid int) bool {
		s, err := f.Stat(pid)
		return err == nil && s.Group == group && s.State != "Z" && s.State != "X"
	})
}

// isHidden reports whether a process that procfs does not show exists. With hidepid= its folder is missing, but signal
// 0 to it fails with EPERM, while signal 0 to a missing process fails with ESRCH (kill(2)).
func (f FS) isHidden(pid int) bool {
	if f.root != "/proc" || pid <= 0 {
		return false
	}
	return errors.Is(unix.Kill(pid, 0), unix.EPERM)
}

// MissingReason says why there is nothing to be done about a process: it is not there, it has ended, or procfs hides
// it; "" where it lives.
func (f FS) MissingReason(pid int) string {
	s, err := f.Stat(pid)
	switch {
	case err == nil && (s.State == "Z" || s.State == "X"):
		return fmt.Sprintf("it has ended, and its parent, process %d, has not collected it", s.PPID)
	case err == nil:
		return ""
	case f.isHidden(pid):
		return "it belongs to another user, whose processes procfs hides here (hidepid)"
	case !errors.Is(err, os.ErrNotExist):
		return err.Error()
	}
	if initial, err := f.InitialPIDNamespace(); err == nil && !initial {
		return "there is no such process in this PID namespace; outside of it the numbers are others"
	}

	return "there is no such process"
}

// ProcessAge is the time since the process started, including time in suspend.
func (f FS) ProcessAge(pid int) (time.Duration, error) {
	s, err := f.Stat(pid)
	if err != nil {
		return 0, err
	}

	up, err := f.Uptime()
	if err != nil {
		return 0, err
	}

	return max(0, up-ticksToDuration(s.Start)), nil
}

// ticksToDuration converts clock ticks to a duration.
func ticksToDuration(n uint64) time.Duration {
	const longest = uint64(1<<62-1) / uint64(time.Second/ticksPerSecond)
	return time.Duration(min(n, longest)) * (time.Second / ticksPerSecond)
}

// IsNested reports whether a process is in a PID namespace below this one, as in a container. It is true if that cannot
// be read.
func (f FS) IsNested(pid int) bool {
	b, err := f.readFile(16<<10, strconv.Itoa(pid), "status")
	if err != nil {
		return true
	}

	for line := range strings.Lines(string(b)) {
		// proc_pid_status(5): one number for each namespace it is in.
		if rest, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return len(strings.Fields(rest)) != 1
		}
	}

	return true
}

// Uptime is CLOCK_BOOTTIME of the machine, whatever the time namespace, to a hundredth of a second.
func (f FS) Uptime() (time.Duration, error) {
	b, err := f.readFile(128, "uptime")
	if err != nil {
		return 0, fmt.Errorf("cannot read the machine's uptime: %w", err)
	}

	first, _, _ := strings.Cut(string(b), " ")
	up, err := time.ParseDuration(first + "s")
	if err != nil {
		return 0, fmt.Errorf("cannot read the machine's uptime: %q is not a number of seconds", prose.Clean(first))
	}

	shift, err := f.clockOffset()

	return up - shift, err
}

// MainMemory is the memory of the machine, and what of it is available (proc_meminfo(5)).
func (f FS) MainMemory() (total, available gpu.Bytes, err error) {
	text, err := f.readFile(8192, "meminfo")
	if err != nil {
		return 0, 0, fmt.Errorf("cannot read how much memory the machine has: %w", err)
	}

	// The second since Linux 3.14.
	missing := map[string]*gpu.Bytes{"MemTotal": &total, "MemAvailable": &available}
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(line, ":")
		into := missing[name]
		if into == nil {
			continue
		}

		delete(missing, name)
		kilobytes, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 40)
		if err != nil {
			return 0, 0, fmt.Errorf("cannot read how much memory the machine has: %q in %s", prose.Clean(strings.TrimSpace(line)), filepath.Join(f.root, "meminfo"))
		}

		*into = gpu.Bytes(kilobytes) * gpu.KiB
	}

	if len(missing) > 0 || total == 0 || available > total {
		return 0, 0, fmt.Errorf("cannot read how much memory the machine has: %s does not say", filepath.Join(f.root, "meminfo"))
	}

	return total, available, nil
}

// ResidentMemory is the memory of the machine that a process has in use, with what it shares with others
// (proc_pid_statm(5)); 0 where that is not known.
func (f FS) ResidentMemory(pid int) gpu.Bytes {
	text, err := f.readFile(256, strconv.Itoa(pid), "statm")
	if err != nil {
		return 0
	}

	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}

	pages, err := strconv.ParseUint(fields[1], 10, 40)
	if err != nil {
		return 0
	}

	return gpu.Bytes(pages) * gpu.Bytes(os.Getpagesize()) //nolint:gosec // a page is small
}

// Processors are how many the machine has, and the time that all together have worked since boot (proc_stat(5)); 0
// where that is not known.
func (f FS) Processors() (count int, worked time.Duration) {
	text, err := f.readFile(1<<20, "stat")
	if err != nil {
		return 0, 0
	}

	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) < 5 || !strings.HasPrefix(fields[0], "cpu"):
		case fields[0] != "cpu":
			count++
		default:
			// User, nice, system; idle and waiting for a disk are no work.
			for _, i := range []int{1, 2, 3, 6, 7} {
				if i < len(fields) {
					n, _ := strconv.ParseUint(fields[i], 10, 63)
					worked += ticksToDuration(n)
				}
			}
		}
	}

	return count, worked
}

// BootID is the id of this boot of the machine (random(4), boot_id).
func (f FS) BootID() (string, error) {
	b, err := f.readFile(128, "sys", "kernel", "random", "boot_id")
	if err != nil {
		return "", fmt.Errorf("cannot read the boot id: %w", err)
	}

	id := strings.TrimSpace(string(b))
	if len(id) != 36 || strings.Trim(id, "0123456789abcdef-") != "" {
		return "", fmt.Errorf("cannot read the boot id: %q in %s is none", prose.Clean(id), filepath.Join(f.root, "sys/kernel/random/boot_id"))
	}

	return id, nil
}

// HostName is the name of the machine, in the UTS namespace of the reader (proc_sys_kernel(5)); "" if it cannot be
// read.
func (f FS) HostName() string {
	b, _ := f.readFile(256, "sys", "kernel", "hostname")
	return strings.TrimSuffix(string(b), "\n")
}

// PIDNamespace is the inode number of this process's PID namespace, in which its process ids are valid; 0 if it cannot
// be read.
func (f FS) PIDNamespace() uint64 {
	var st unix.Stat_t
	if unix.Stat(filepath.Join(f.root, "self", "ns", "pid"), &st) != nil {
		return 0
	}
	return st.Ino
}

// InitialPIDNamespace reports whether this process is in the first PID namespace of the machine, and in no container.
// The inode number of that namespace is PROC_PID_INIT_INO in torvalds/linux include/linux/proc_ns.h.
func (f FS) InitialPIDNamespace() (bool, error) {
	link, err := os.Readlink(filepath.Join(f.root, "self", "ns", "pid"))
	if err != nil {
		return false, fmt.Errorf("cannot read the PID namespace: %w", err)
	}
	return link == "pid:[4026531836]", nil
}

// Environ is the environment with which the process was started. Only the owner of the process and root may read it.
func (f FS) Environ(pid int) ([]string, error) {
	pairs, err := f.readAfterExec(pid, "environ")
	if err != nil {
		return nil, fmt.Errorf("cannot read the environment of process %d: %w", pid, err)
	}
	return pairs, nil
}

// Arguments are those with which the process was started, its name first; nil where it has none or they cannot be read.
func (f FS) Arguments(pid int) []string {
	words, _ := f.readAfterExec(pid, "cmdline")
	return words
}

// readAfterExec reads a list that execve(2) gives to a process. During that call, which takes longer on a busy machine,
// a process has neither arguments nor environment; readAfterExec waits for its end, but not for long.
func (f FS) readAfterExec(pid int, file string) ([]string, error) {
	hasBegun := false
	for pause := time.Millisecond; ; {
		b, err := f.readSlow(8<<20, strconv.Itoa(pid), file)
		if err != nil {
			return nil, err
		}
		if text := strings.TrimRight(string(b), "\x00"); text != "" {
			return strings.Split(text, "\x00"), nil
		}

		s, err := f.Stat(pid)
		switch {
		case err != nil, hasBegun, pause > 2*slowReadDeadline:
			return nil, nil //nolint:nilerr // it has ended meanwhile, as one that has ended before
		case s.Starting:
			time.Sleep(pause)
			pause *= 2
		default:
			// The call may have ended after the list was read.
			hasBegun = true
		}
	}
}

// readFile returns at most limit bytes of a file of procfs.
func (f FS) readFile(limit int64, parts ...string) ([]byte, error) {
	b, err := sys.ReadSome(filepath.Join(append([]string{f.root}, parts...)...), limit)
	if errors.Is(err, unix.ESRCH) {
		// It ended between open and read.
		return nil, os.ErrNotExist
	}
	return b, err
}

// readSlow is read with a deadline.
func (f FS) readSlow(limit int64, parts ...string) ([]byte, error) {
	return withDeadline(func() ([]byte, error) { return f.readFile(limit, parts...) })
}
