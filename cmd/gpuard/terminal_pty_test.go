package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminalTimeout bounds every wait of these tests; on an idle machine none of them takes a second.
const terminalTimeout = 45 * time.Second

// terminal is a pseudo terminal with a session on it, from the side of keyboard and screen.
type terminal struct {
	t      testing.TB
	master *os.File
	cmd    *exec.Cmd
	mu     sync.Mutex
	screen bytes.Buffer // what was shown and not consumed yet
	news   chan struct{}
}

// startOnTerminal starts cmd as the leader of a new session with a new pseudo terminal as its controlling terminal (pty(7):
// the other end is numbered, and locked until it is opened for use).
func startOnTerminal(t testing.TB, cmd *exec.Cmd) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	var number uint32
	controlFile(t, master, func(fd int) error {
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		number, err = unix.IoctlGetUint32(fd, unix.TIOCGPTN)
		return err
	})
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close() //nolint:errcheck // the session has its own
	controlFile(t, slave, disableEcho)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	s := &terminal{t: t, master: master, cmd: cmd, news: make(chan struct{}, 1)}
	s.setSize(24, 80)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go s.readScreen()
	t.Cleanup(s.hangUp)
	return s
}

// controlFile calls the kernel about an open file without taking it from the Go poller: a close must end a read.
func controlFile(t testing.TB, f *os.File, call func(fd int) error) {
	t.Helper()
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = call(int(fd)) }); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
}

// disableEcho switches the echo off: what is typed would mix with what is shown. Control keys keep their signals.
func disableEcho(fd int) error {
	mode, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	mode.Lflag &^= unix.ECHO
	mode.Oflag &^= unix.ONLCR
	return unix.IoctlSetTermios(fd, unix.TCSETS, mode)
}

func (s *terminal) readScreen() {
	part := make([]byte, 4096)
	for {
		n, err := s.master.Read(part)
		s.mu.Lock()
		s.screen.Write(part[:n])
		s.mu.Unlock()
		select {
		case s.news <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// hangUp takes the terminal away: the kernel sends SIGHUP to the session.
func (s *terminal) hangUp() {
	_ = s.master.Close()
	_ = s.cmd.Wait()
}

func (s *terminal) setSize(rows, columns uint16) {
	s.t.Helper()
	controlFile(s.t, s.master, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	})
}

func (s *terminal) typeKeys(keys string) {
	if _, err := s.master.WriteString(keys); err != nil {
		s.t.Fatalf("cannot type %q: %v", keys, err)
	}
}

// waitForScreen waits until every pattern has been shown, in any order, and consumes the screen up to the last of them.
func (s *terminal) waitForScreen(patterns ...string) string {
	s.t.Helper()
	deadline := time.After(terminalTimeout)
	for {
		s.mu.Lock()
		end := 0
		for _, p := range patterns {
			at := regexp.MustCompile(p).FindIndex(s.screen.Bytes())
			if at == nil {
				end = -1
				break
			}
			end = max(end, at[1])
		}
		if end >= 0 {
			text := string(s.screen.Next(end))
			s.mu.Unlock()
			return text
		}
		shown := s.screen.String()
		s.mu.Unlock()
		select {
		case <-s.news:
		case <-deadline:
			s.t.Fatalf("%q was not shown; on the screen: %q", patterns, shown)
		}
	}
}

// shellPrompt is what the shells of these tests show when they wait for a line.
const shellPrompt = "ready> "

// typeLine types one line and returns what was shown until the next prompt.
func (s *terminal) typeLine(text string) string {
	s.t.Helper()
	s.typeKeys(text + "\n")
	return strings.TrimSuffix(s.waitForScreen(shellPrompt+"$"), shellPrompt)
}

// waitForForeground waits until another process group than not has the terminal and returns it.
func (s *terminal) waitForForeground(not int) int {
	s.t.Helper()
	for end := time.Now().Add(terminalTimeout); ; time.Sleep(5 * time.Millisecond) {
		var group int
		controlFile(s.t, s.master, func(fd int) (err error) {
			group, err = unix.IoctlGetInt(fd, unix.TIOCGPGRP)
			return err
		})
		if group != not && group > 0 {
			return group
		}
		if time.Now().After(end) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.t.Fatalf("no job came to the foreground; on the screen: %q", s.screen.String())
		}
	}
}
