package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
	"unsafe"

	"gpuard/internal/core/status"
)

// watchEvery is a compromise: drivers serialise queries, and nobody reads faster.
const watchEvery = 2 * time.Second

// watch redraws in place on a terminal and appends elsewhere, until q or Ctrl-C. The driver is opened once.
func (p *Program) watch(ctx context.Context) error {
	k, leave := listen(p.term(p.Out).TTY), "Ctrl-C leaves"
	if k != nil {
		defer k.restore()
		leave = "q leaves"
	}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		s, err := p.look(ctx)
		if err != nil {
			return err
		}
		fmt.Fprint(p.Out, Frame(s, p.term(p.Out), leave))
		select {
		case <-ctx.Done():
			return nil
		case <-k.left():
			return nil
		case <-tick.C:
		}
	}
}

// look is the machine as it is now, with the lease that this shell is in marked.
func (p *Program) look(ctx context.Context) (status.Report, error) {
	s, err := p.App.Status(ctx)
	if lease, set := p.App.Env.Lookup("GPUARD_LEASE"); set {
		s.Inside(lease)
	}
	return s, err
}

// keyboard reads keys as they are pressed and gives the terminal back as it was, whatever ends the program.
type keyboard struct {
	before syscall.Termios
	gone   chan struct{} // closed when somebody wants to leave
}

// listen is nil without a terminal, or in the background, where changing it would stop the program.
func listen(screen bool) *keyboard {
	k := &keyboard{gone: make(chan struct{})}
	if !screen || !foreground() || terminal(syscall.TCGETS, unsafe.Pointer(&k.before)) != 0 {
		return nil
	}
	k.single()
	go k.read()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGCONT)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	go k.obey(signals)
	return k
}

func (k *keyboard) left() <-chan struct{} {
	if k == nil {
		return nil
	}
	return k.gone
}

func (k *keyboard) restore() { _ = terminal(syscall.TCSETS, unsafe.Pointer(&k.before)) }

// single asks for every key at once and unseen. Ctrl-\ becomes a key too: its signal would leave the terminal like this.
func (k *keyboard) single() {
	mode := k.before
	mode.Lflag &^= syscall.ICANON | syscall.ECHO
	mode.Cc[syscall.VMIN], mode.Cc[syscall.VTIME], mode.Cc[syscall.VQUIT] = 1, 0, 0
	_ = terminal(syscall.TCSETS, unsafe.Pointer(&mode))
}

// obey restores the terminal before a signal ends the program as it would have without this, and asks for single keys
// again after Ctrl-Z and fg.
func (k *keyboard) obey(signals <-chan os.Signal) {
	for s := range signals {
		number, _ := s.(syscall.Signal)
		if number == syscall.SIGCONT {
			if foreground() {
				k.single()
			}
			continue
		}
		k.restore()
		signal.Reset(number)
		_ = syscall.Kill(syscall.Getpid(), number)
	}
}

func (k *keyboard) read() {
	defer close(k.gone)
	const endOfInput, quit = 4, 0x1c // Ctrl-D, Ctrl-\
	key := make([]byte, 1)
	for {
		n, err := os.Stdin.Read(key)
		if err != nil || n == 1 && (key[0] == 'q' || key[0] == 'Q' || key[0] == endOfInput || key[0] == quit) {
			return
		}
	}
}

// foreground: this process group may change the terminal without being stopped.
func foreground() bool {
	var group int32
	return terminal(syscall.TIOCGPGRP, unsafe.Pointer(&group)) == 0 && int(group) == syscall.Getpgrp()
}

// terminal is ioctl_tty(2) on standard input.
func terminal(request uintptr, into unsafe.Pointer) syscall.Errno {
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, os.Stdin.Fd(), request, uintptr(into)) //nolint:gosec // the kernel reads or fills it
	return errno
}
