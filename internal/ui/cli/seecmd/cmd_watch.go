package seecmd

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/app/leases"
	"gpuard/internal/app/services"
	"gpuard/internal/core/status"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/console"
)

// watchStatus redraws in place on a terminal and appends elsewhere, until q or Ctrl-C. The driver is opened once.
func watchStatus(ctx context.Context, p *cli.Program, every time.Duration, only []string) error {
	k, leave := startKeyboard(p.Term(p.Out).TTY, p.Host.Crashed), "Ctrl-C leaves"
	if k != nil {
		defer k.restoreTerminal()
		leave = "q leaves"
	}

	return console.Repeat(ctx, every, k.leaveSignal(), func() error {
		s, err := readStatus(ctx, p, only)
		if err != nil {
			return err
		}
		fmt.Fprint(p.Out, frameText(s, p.Term(p.Out), leave))

		return nil
	})
}

// readStatus reads the machine, or only the named devices of it, and marks the lease of this shell.
func readStatus(ctx context.Context, p *cli.Program, only []string) (status.Report, error) {
	s, err := leases.Status(ctx, p.Host, only...)
	if lease, set := p.Host.Env.Lookup("GPUARD_LEASE"); set {
		s.MarkCallerLease(lease)
	}
	s.AddUnhealthy(services.UnhealthyReasons(p.Host))

	return s, err
}

// keyboard reads keys as they are pressed. It restores the terminal however the program ends.
type keyboard struct {
	before *unix.Termios
	// Closed when the user pressed a key to leave.
	gone chan struct{}
}

// startKeyboard returns nil without a terminal, and in the background, where changing the terminal would stop the
// program. again: this process has begun again after a crash.
func startKeyboard(screen, again bool) *keyboard {
	k := &keyboard{gone: make(chan struct{})}
	if !screen || !console.InForeground(os.Stdin) {
		return nil
	}

	var err error
	k.before, err = unix.IoctlGetTermios(int(os.Stdin.Fd()), unix.TCGETS)
	if err != nil {
		return nil
	}

	if again {
		k.repairSavedMode()
	}

	k.singleKeys()
	go k.readKeys()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGCONT)

	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}

	go k.handleSignals(signals)

	return k
}

func (k *keyboard) leaveSignal() <-chan struct{} {
	if k == nil {
		return nil
	}
	return k.gone
}

func (k *keyboard) restoreTerminal() {
	_ = unix.IoctlSetTermios(int(os.Stdin.Fd()), unix.TCSETS, k.before)
}

// singleKeys turns off line mode and echo. Ctrl-\ becomes a key too, because its signal would end the program without
// restoring the terminal.
func (k *keyboard) singleKeys() {
	mode := *k.before
	mode.Lflag &^= unix.ICANON | unix.ECHO
	mode.Cc[unix.VMIN], mode.Cc[unix.VTIME], mode.Cc[unix.VQUIT] = 1, 0, 0
	_ = unix.IoctlSetTermios(int(os.Stdin.Fd()), unix.TCSETS, &mode)
}

// repairSavedMode makes the mode to restore the usual one, where it is that of single keys: a crash has left it behind.
func (k *keyboard) repairSavedMode() {
	const ctrlBackslash = 0x1c
	if k.before.Lflag&(unix.ICANON|unix.ECHO) == 0 && k.before.Cc[unix.VQUIT] == 0 {
		k.before.Lflag |= unix.ICANON | unix.ECHO
		k.before.Cc[unix.VQUIT] = ctrlBackslash
	}
}

// handleSignals restores the terminal before a signal ends the program. After Ctrl-Z and fg it sets single keys again.
func (k *keyboard) handleSignals(signals <-chan os.Signal) {
	for s := range signals {
		number, _ := s.(syscall.Signal)
		if number == syscall.SIGCONT {
			if console.InForeground(os.Stdin) {
				k.singleKeys()
			}
			continue
		}

		k.restoreTerminal()
		signal.Reset(number)
		_ = syscall.Kill(syscall.Getpid(), number)
	}
}

func (k *keyboard) readKeys() {
	defer close(k.gone)

	// Ctrl-D, Ctrl-\.
	const endOfInput, quit = 4, 0x1c
	key := make([]byte, 1)
	for {
		n, err := os.Stdin.Read(key)
		if err != nil || n == 1 && (key[0] == 'q' || key[0] == 'Q' || key[0] == endOfInput || key[0] == quit) {
			return
		}
	}
}
