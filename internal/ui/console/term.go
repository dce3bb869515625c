// Package console is text for a terminal: its width and colours, lines and tables that fit, and how times and commands
// are written. It knows no command and no flag.
//
//	page := console.Page{Term: console.DescribeTerminal(os.Stdout, env)}
//	page.Line(console.Bold.Of("GPU 0"), console.Normal.Of("  free"))
package console

import (
	"context"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/visible"
	"gpuard/internal/ui/translate"
)

// Term describes what the output can show. Width or Height 0 means no limit.
type Term struct {
	TTY   bool
	Width int // columns
	// Lines, of a screen that is redrawn.
	Height int
	// A terminal, and NO_COLOR is not set.
	Color bool
	// The locale's character set.
	UTF8 bool

	// The language, for the caller of DescribeTerminal to set.
	Language translate.Language
}

// Translate says a sentence, or a word of a table, in the language of the terminal.
func (t Term) Translate(text string) string { return t.Language.Translate(text) }

// DescribeTerminal describes the output file. NO_COLOR (no-color.org) counts if it is not empty. COLUMNS and LINES
// count if the kernel does not know the size, as for a file or a pipe, which are 80 columns wide without COLUMNS.
func DescribeTerminal(file *os.File, env visible.Env) Term {
	t := Term{UTF8: translate.IsUTF8(env)}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	t.TTY = err == nil
	if !t.TTY {
		t.Width = NumberIn(env, "COLUMNS", UsualWidth)
		return t
	}

	t.Width, t.Height = int(size.Col), int(size.Row)
	if t.Width == 0 {
		t.Width, t.Height = NumberIn(env, "COLUMNS", UsualWidth), NumberIn(env, "LINES", 24)
	}

	silent, _ := env.Lookup("NO_COLOR")
	kind, _ := env.Lookup("TERM")
	t.Color = silent == "" && kind != "dumb" && kind != ""

	return t
}

// NumberIn is a positive number in a variable, or else the other value.
func NumberIn(env visible.Env, name string, otherwise int) int {
	value, _ := env.Lookup(name)
	if n, err := strconv.Atoi(value); err == nil && n > 0 && n < 10000 {
		return n
	}
	return otherwise
}

// InForeground reports whether our process group is in the foreground of the terminal.
func InForeground(file *os.File) bool {
	group, err := unix.IoctlGetInt(int(file.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// Repeat shows something again and again, until it fails, the context ends or leave is closed.
func Repeat(ctx context.Context, every time.Duration, leave <-chan struct{}, show func() error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()

	for {
		if err := show(); err != nil {
			return err
		}

		select {
		case <-ctx.Done():
			return nil
		case <-leave:
			return nil
		case <-tick.C:
		}
	}
}
