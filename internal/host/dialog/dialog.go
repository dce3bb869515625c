// Package dialog asks a user for a line of text, on the terminal of the session or in a window. It does not use
// standard input and output, which may lead elsewhere.
package dialog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrCancelled means that the user gave no answer: Ctrl-C, Ctrl-D, or a closed window.
var ErrCancelled = errors.New("cancelled")

// Terminal is the session's own, whatever standard input and output are.
type Terminal struct {
	file   *os.File
	before unix.Termios
}

// The keys that end a line as Enter does; what they mean is found at its end.
const ctrlC, ctrlBackslash = 0x03, 0x1c

// OpenTerminal fails where the session has none. alive reports whether a process group has a process that has not
// ended.
func OpenTerminal(alive func(group int) bool) (*Terminal, error) {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}

	t := &Terminal{file: f}
	mode, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		_ = f.Close()
		return nil, err
	}

	t.before = *mode
	t.takeForeground(alive)
	err = t.EnableLineMode()
	if err != nil {
		_ = f.Close()
		return nil, err
	}

	return t, nil
}

// takeForeground makes this process group the terminal's foreground group if the present one has ended. A shell may
// start a program in a group of its own, but not as a job: fish gives the terminal to the first command of PROGRAM |
// source, and does not take it back for the programs that it reads from there. Such a program would be stopped for ever
// when it asks.
func (t *Terminal) takeForeground(alive func(group int) bool) {
	fd, mine := int(t.file.Fd()), unix.Getpgrp()
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	if shells, _ := unix.Getpgid(os.Getppid()); err != nil || group == mine || shells != mine || alive(group) {
		return
	}

	// SIGTTOU is blocked for this thread only.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var stop, before unix.Sigset_t
	stop.Val[0] = 1 << (unix.SIGTTOU - 1)
	if unix.PthreadSigmask(unix.SIG_BLOCK, &stop, &before) == nil {
		// Where that fails, EnableLineMode says so.
		_ = unix.IoctlSetPointerInt(fd, unix.TIOCSPGRP, mine)
		_ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
	}
}

// EnableLineMode makes the terminal ready for a line. Ctrl-C is a key that ends it, for this reader alone: as a signal
// it would also reach a shell that evaluates the answer, in the middle of what it does. In the background this stops
// the process, as reading would.
func (t *Terminal) EnableLineMode() error {
	mode := t.before
	mode.Lflag |= unix.ICANON | unix.ECHO | unix.ECHOE | unix.ECHOK
	mode.Lflag &^= unix.ISIG
	mode.Iflag |= unix.ICRNL
	mode.Cc[unix.VEOL], mode.Cc[unix.VEOL2] = ctrlC, ctrlBackslash

	return unix.IoctlSetTermios(int(t.file.Fd()), unix.TCSETSW, &mode)
}

// RestoreMode gives the terminal back as it was.
func (t *Terminal) RestoreMode() { _ = unix.IoctlSetTermios(int(t.file.Fd()), unix.TCSETSW, &t.before) }

// Close does that, and ends a Read.
func (t *Terminal) Close() {
	t.RestoreMode()
	_ = t.file.Close()
}

// Width is the number of columns, 0 when unknown.
func (t *Terminal) Width() int {
	size, err := unix.IoctlGetWinsize(int(t.file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// WriteText writes text.
func (t *Terminal) WriteText(text string) error {
	_, err := io.WriteString(t.file, strings.ReplaceAll(text, "\n", "\r\n"))
	return err
}

// ReadLine returns one line, or ErrCancelled.
func (t *Terminal) ReadLine() (string, error) {
	// The kernel's own limit.
	line := make([]byte, 4096)
	n, err := t.file.Read(line)
	line = line[:n]
	switch {
	case errors.Is(err, io.EOF), bytes.ContainsAny(line, string([]byte{ctrlC, ctrlBackslash})):
		_ = t.WriteText("\n")
		return "", ErrCancelled
	case err != nil:
		return "", err
	case !bytes.HasSuffix(line, []byte("\n")):
		// Ctrl-D after text.
		_ = t.WriteText("\n")
	}

	return strings.TrimSpace(string(line)), nil
}

// Window is a list to choose from, shown by a program of the desktop.
type Window struct {
	Title, Text string
	Columns     []string
	// The first cell of each is what is answered.
	Rows [][]string
	// More than one can be chosen.
	Several bool
}

// AskChoice asks, and returns the first cells of what was chosen, separated by blanks.
func (w Window) AskChoice(ctx context.Context) (string, error) {
	out, err := runDialog(ctx, w.zenityCommand(), w.kdialogCommand())

	// Some answer a double click twice.
	chosen := slices.Compact(strings.Fields(string(out)))
	if err == nil && len(chosen) == 0 {
		err = ErrCancelled
	}

	return strings.Join(chosen, " "), err
}

// runDialog runs the first of these commands that is installed until it is answered, or until this process ends. It
// returns ErrCancelled where the window was closed.
func runDialog(ctx context.Context, commands ...[]string) ([]byte, error) {
	var names []string
	for _, words := range commands {
		path, err := exec.LookPath(words[0])
		if err != nil {
			names = append(names, words[0])
			continue
		}

		// The kernel sends Pdeathsig when the thread ends that started the program (PR_SET_PDEATHSIG(2const)).
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cmd := exec.CommandContext(ctx, path, words[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGTERM}
		cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			return nil, ErrCancelled
		}

		return out, err
	}
	return nil, fmt.Errorf("none of these is installed: %s: %w", strings.Join(names, ", "), exec.ErrNotFound)
}

// zenityCommand: https://help.gnome.org/users/zenity/stable/list.html
func (w Window) zenityCommand() []string {
	args := []string{"zenity", "--list", "--title=" + w.Title, "--text=" + w.Text, "--print-column=1", "--separator= ", "--width=640", "--height=320"}
	if w.Several {
		args = append(args, "--multiple")
	}

	for _, c := range w.Columns {
		args = append(args, "--column="+c)
	}

	for _, row := range w.Rows {
		args = append(args, row...)
	}

	return args
}

// kdialogCommand: https://develop.kde.org/docs/administration/kdialog/
func (w Window) kdialogCommand() []string {
	args := []string{"kdialog", "--title", w.Title, "--separate-output"}
	kind := "--menu"
	if w.Several {
		kind = "--checklist"
	}

	args = append(args, kind, w.Text)
	for _, row := range w.Rows {
		text := strings.TrimSpace(strings.Join(row[1:], "  "))
		args = append(args, row[0], text)
		if w.Several {
			args = append(args, "off")
		}
	}

	return args
}

// ShowAlert shows a text until the user closes it, or as a notification if no dialog program is installed.
func ShowAlert(ctx context.Context, title, text string) error {
	_, err := runDialog(ctx,
		[]string{"zenity", "--error", "--no-markup", "--width=640", "--title=" + title, "--text=" + text}, // https://help.gnome.org/users/zenity/stable/error.html
		[]string{"kdialog", "--title", title, "--error", text},
		[]string{"xmessage", "-center", title + ": " + text},
		[]string{"notify-send", "--urgency=critical", "--", title, text})
	if errors.Is(err, ErrCancelled) {
		// It was read and closed.
		err = nil
	}
	return err
}
