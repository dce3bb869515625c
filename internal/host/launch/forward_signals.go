package launch

import (
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"

	"gpuard/internal/host/ownproc"
	"gpuard/internal/host/sys"

	"golang.org/x/sys/unix"
)

// signalForwarder is what this process does with signals while a child runs, or several.
type signalForwarder struct {
	// Called with each signal that ends programs, to whichever process it was sent.
	meant  func(syscall.Signal)
	send   func(os.Signal) // passes one on
	caught chan os.Signal
	// Closed when nothing is passed on any more.
	done    chan struct{}
	signals []os.Signal
	// nil where there could be none.
	witness *groupSignalCounter
}

// catchSignals begins to catch the signals that are passed on. What was ignored when this process started stays so, for
// the child to inherit (nohup, or a background job). Nothing is ever ignored here: the child would inherit that too.
func catchSignals(signals []unix.Signal, meant func(syscall.Signal), send func(os.Signal)) *signalForwarder {
	p := &signalForwarder{meant: meant, send: send, caught: make(chan os.Signal, 16), done: make(chan struct{})}
	for _, sig := range signals {
		if ownproc.ActionOf(sig).Handler == ownproc.SignalIgnored || signal.Ignored(sig) {
			continue
		}
		if isRuntimeSignal(sig) {
			// For a moment: the runtime takes a signal back only after it let go of it.
			signal.Ignore(sig)
		}
		p.signals = append(p.signals, sig)
	}

	signal.Notify(p.caught, p.signals...)
	p.witness, _ = newWitness(p.signals)

	return p
}

// forwardedSignals are the signals that a process which runs another one hands to it.
func forwardedSignals() []unix.Signal {
	return []unix.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2}
}

// isRuntimeSignal are the signals that Go's runtime must not handle, because it cannot restore their default: those of
// DefaultSignals, and those that stop.
func isRuntimeSignal(sig unix.Signal) bool {
	return slices.Contains(append(runtimeSignals(), unix.SIGTSTP, unix.SIGTTIN), sig)
}

// stopForwarding ends that: this process reacts to signals as it did before.
func (s *signalForwarder) stopForwarding() {
	if s.caught == nil {
		return
	}

	signal.Reset(s.signals...)
	signal.Stop(s.caught)

	for _, sig := range s.signals {
		if sig, ok := sig.(unix.Signal); ok && isRuntimeSignal(sig) {
			ownproc.SetAction(sig, ownproc.SignalAction{})
		}
	}

	close(s.caught)
	<-s.done
	s.caught = nil
	if s.witness != nil {
		s.witness.stop()
	}
}

// ownsProcess reports whether a process is the witness.
func (s *signalForwarder) ownsProcess(pid int) bool { return s.witness != nil && s.witness.pid == pid }

// forwardSignals hands signals on: each to the child once.
func (s *signalForwarder) forwardSignals() {
	if s.caught == nil {
		return
	}
	defer close(s.done)

	for sig := range s.caught {
		n, _ := sig.(syscall.Signal)
		switch n {
		case unix.SIGTTIN:
			// Of the terminal alone, and to the whole group.
			continue
		case unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGHUP:
			s.meant(n)
		}
		if !s.isGroupSignal(n) {
			s.send(sig)
		}
	}
}

// isGroupSignal reports whether the child got the signal too. Without a witness that is taken for granted of what keys
// send, as long as this process group is in front.
func (s *signalForwarder) isGroupSignal(sig unix.Signal) bool {
	if s.witness != nil {
		if group, known := s.witness.matchGroupSignal(sig); known {
			return group
		}
	}
	return (sig == unix.SIGINT || sig == unix.SIGQUIT || sig == unix.SIGTSTP) && isInForeground()
}

// isInForeground reports whether our process group is the foreground group of our terminal.
func isInForeground() bool {
	group, found := foregroundGroup()
	return found && group == unix.Getpgrp()
}

// followsStop reports whether this process stops too when the signal has stopped the child: for the shell of our
// terminal, which shows that, and continues both. Without a terminal the sender would continue only the child (kill
// -CONT, or a scheduler that resumes one process after the other), and this process would stay stopped for ever. So it
// is for SIGSTOP in the background, which was sent to the child alone: otherwise it would have stopped us too.
func followsStop(sig unix.Signal) bool {
	if sig == unix.SIGSTOP {
		return isInForeground()
	}
	_, found := foregroundGroup()
	return found
}

// foregroundGroup returns the foreground process group of our terminal, if there is one.
func foregroundGroup() (group int, found bool) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return 0, false
	}

	defer tty.Close()
	group, err = unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)

	return group, err == nil
}

// stopAs stops this whole process the way the signal does, and returns when it was continued. An orphaned process group
// is not stopped by a terminal's signal, but its child is not either.
func stopAs(sig unix.Signal) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := ownproc.ActionOf(sig)
	if sig != unix.SIGSTOP {
		ownproc.SetAction(sig, ownproc.SignalAction{})
	}

	// To this very thread, so that it is stopped before the call returns.
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), sig)
	if sig != unix.SIGSTOP {
		ownproc.SetAction(sig, before)
	}
}

// isStopped reports whether a process is stopped (proc_pid_stat(5), field 3).
func isStopped(pid int) bool {
	p, ok := sys.ReadProcess(pid)
	return ok && p.State == 'T'
}
