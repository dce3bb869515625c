package limits

import (
	"fmt"
	"gpuard/internal/host/program"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// resourceNames are the names of proc_pid_limits(5).
func resourceNames() map[string]int {
	return map[string]int{"Max cpu time": unix.RLIMIT_CPU, "Max file size": unix.RLIMIT_FSIZE, "Max data size": unix.RLIMIT_DATA, "Max stack size": unix.RLIMIT_STACK,
		"Max core file size": unix.RLIMIT_CORE, "Max resident set": unix.RLIMIT_RSS, "Max processes": unix.RLIMIT_NPROC, "Max open files": unix.RLIMIT_NOFILE,
		"Max locked memory": unix.RLIMIT_MEMLOCK, "Max address space": unix.RLIMIT_AS, "Max file locks": unix.RLIMIT_LOCKS, "Max pending signals": unix.RLIMIT_SIGPENDING,
		"Max msgqueue size": unix.RLIMIT_MSGQUEUE, "Max nice priority": unix.RLIMIT_NICE, "Max realtime priority": unix.RLIMIT_RTPRIO, "Max realtime timeout": unix.RLIMIT_RTTIME}
}

// CallerLimits are the limits that this process was started with as one word for SetLimits, "" if they cannot be read:
// setrlimit(2). Go raises the number of open files at its start, so the soft limit of that is the parent's, where the
// hard one is too.
func CallerLimits() string {
	own, err := os.ReadFile("/proc/self/limits")
	if err != nil {
		return ""
	}

	parent, _ := os.ReadFile(fmt.Sprintf("/proc/%d/limits", os.Getppid()))
	words, files := strings.Split(formatLimits(string(own)), ","), fmt.Sprintf("%d:", unix.RLIMIT_NOFILE)
	for _, theirs := range strings.Split(formatLimits(string(parent)), ",") {
		for i, mine := range words {
			if strings.HasPrefix(theirs, files) && strings.HasPrefix(mine, files) && hardLimit(theirs) == hardLimit(mine) {
				words[i] = theirs
			}
		}
	}

	return strings.Join(words, ",")
}

func hardLimit(one string) string { return one[strings.LastIndexByte(one, ':')+1:] }

// ChildLimits are the limits that the children of this process get.
func ChildLimits() string {
	text, _ := exec.Command("cat", "/proc/self/limits").Output()
	return formatLimits(string(text))
}

func formatLimits(text string) string {
	known := resourceNames()
	var words []string
	for line := range strings.Lines(text) {
		if len(line) < 68 {
			continue
		}
		if number, ok := known[strings.TrimSpace(line[:26])]; ok {
			if f := strings.Fields(line[26:]); len(f) > 1 {
				words = append(words, fmt.Sprintf("%d:%s:%s", number, f[0], f[1]))
			}
		}
	}

	return strings.Join(words, ",")
}

// SetLimits sets the limits of this process, which cannot raise what the kernel does not let it raise.
func SetLimits(text string) error {
	for one := range strings.SplitSeq(text, ",") {
		f := strings.Split(one, ":")
		if len(f) != 3 {
			return fmt.Errorf("cannot set the limit %q", one)
		}

		number, err := strconv.Atoi(f[0])
		if err != nil {
			return fmt.Errorf("cannot set the limit %q: %w", one, err)
		}

		var now unix.Rlimit
		err = unix.Getrlimit(number, &now)
		if err != nil {
			return fmt.Errorf("cannot set the limit %q: %w", one, err)
		}

		want := unix.Rlimit{Cur: parseLimit(f[1]), Max: parseLimit(f[2])}
		if unix.Setrlimit(number, &want) == nil {
			continue
		}

		want = unix.Rlimit{Cur: min(want.Cur, now.Max), Max: min(want.Max, now.Max)}
		_ = unix.Setrlimit(number, &want)
	}
	return nil
}

func parseLimit(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return unix.RLIM_INFINITY
	}
	return n
}

// ExecFlag is the first argument of a process that becomes a program with other limits than those of its parent (Exec).
const ExecFlag = "__limits"

// ExecCommand is the command line of such a process for a program.
func ExecCommand(text, path string, argv []string) (string, []string) {
	return "/proc/self/exe", append([]string{"gpuard", ExecFlag, text, path}, argv...)
}

// Exec becomes the program args[1] with the words args[2:] and the limits args[0].
func Exec(args []string) error {
	if len(args) < 3 {
		return fmt.Errorf("cannot start a program: none is named")
	}
	if err := SetLimits(args[0]); err != nil {
		return err
	}

	err := program.StartOrShell(args[1], args[2:], func(path string, argv []string) error { return unix.Exec(path, argv, os.Environ()) })

	return fmt.Errorf("cannot run %s: %w", args[1], err)
}
