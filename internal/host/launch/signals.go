package launch

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"strconv"

	"gpuard/internal/host/ownproc"

	"golang.org/x/sys/unix"
)

// DefaultSignals gives this process the kernel's own reaction to signals for which the Go runtime has another one, so
// that gpuard on its way to the command dies as the command would: Ctrl-\ would print goroutines and end with code 2,
// and an alarm set by the caller would be lost (Go's sigtable_linux_generic.go). Nothing in this process may notify
// them. One is caught instead: a write beyond the limit on the size of files (ulimit -f) is to fail, and not to end the
// program. An exec gives a caught signal its default again, so the command is not concerned; an ignored one it would
// inherit.
func DefaultSignals() {
	var size unix.Rlimit
	limited := unix.Getrlimit(unix.RLIMIT_FSIZE, &size) == nil && size.Cur != unix.RLIM_INFINITY
	for _, sig := range runtimeSignals() {
		if sig != unix.SIGXFSZ || !limited {
			ownproc.SetAction(sig, ownproc.SignalAction{})
		}
	}

	if limited {
		// The write's own error tells the rest (setrlimit(2), EFBIG).
		signal.Notify(make(chan os.Signal, 1), unix.SIGXFSZ)
	}

	inheritIgnored()
}

// runtimeSignals are the signals that DefaultSignals takes from the Go runtime.
func runtimeSignals() []unix.Signal {
	return []unix.Signal{
		unix.SIGQUIT, unix.SIGABRT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGVTALRM,
		unix.SIGXCPU, unix.SIGXFSZ, unix.SIGIO, unix.SIGPWR,
	}
}

// defaultEndSignals leaves the signals that end a process to the kernel, from shortly before exec on. Go's handler
// would run in one of the threads, which exec ends: a signal that is being handled just then would be lost, and the
// command would run on as if none had been sent.
func defaultEndSignals() {
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP} {
		if !signal.Ignored(sig) {
			ownproc.SetAction(sig, ownproc.SignalAction{})
		}
	}
}

// inheritIgnored keeps SIGQUIT ignored for a background job of a shell without job control. The Go runtime leaves an
// inherited SIG_IGN alone for SIGHUP and SIGINT only, and forgets the others; POSIX shells ignore SIGINT and SIGQUIT
// together for such a job (XCU 2.11, "Signals and Error Handling"). A shell that ignores SIGINT and not SIGQUIT itself
// was told so by a trap, and passes on just that. For the process that systemd executes for a service, it ignores
// SIGPIPE unless the unit says otherwise (systemd.exec(5), IgnoreSIGPIPE=, SYSTEMD_EXEC_PID).
func inheritIgnored() {
	if os.Getenv("SYSTEMD_EXEC_PID") == strconv.Itoa(os.Getpid()) {
		signal.Ignore(unix.SIGPIPE)
	}

	if !signal.Ignored(unix.SIGINT) {
		return
	}

	above := ignoredSignals(os.Getppid())
	const quit, interrupt = uint64(1) << (unix.SIGQUIT - 1), uint64(1) << (unix.SIGINT - 1)
	if above&(interrupt|quit) != interrupt {
		signal.Ignore(unix.SIGQUIT)
	}
}

// ignoredSignals returns the set of signals that a process ignores, 0 if that is not known (proc_pid_status(5),
// SigIgn).
func ignoredSignals(pid int) (set uint64) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}

	_, rest, _ := bytes.Cut(status, []byte("\nSigIgn:\t"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	_, _ = fmt.Sscanf(string(line), "%x", &set)

	return set
}
