// Package program runs other programs: to their end, to read what they print, or as execvp(3) does. It does not know what
// they are for.
//
//	out, errs, err := program.Output(ctx, time.Second, 1<<20, env, nil, "nvcc", "--version")
package program

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// maxLinger is how long the output of a program that has ended is read while a process that it left behind has it open.
const maxLinger = time.Second

// Output runs a program without a shell, and returns what it printed: at most most bytes of output, and errors
// without blanks at their ends. It reads input, unless that is nil. The error is context.DeadlineExceeded if it did not
// end within patience. What a process that it leaves behind prints later is left out.
func Output(ctx context.Context, patience time.Duration, most int, env []string, input []byte, argv ...string) (out []byte, errs string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env, cmd.WaitDelay = env, maxLinger
	if input != nil {
		cmd.Stdin = bytes.NewReader(input)
	}

	printed, said := &Bounded{Most: most}, &Bounded{Most: 64 << 10}
	err = runInto(cmd, printed, said)
	if ctx.Err() != nil {
		return nil, "", ctx.Err()
	}

	return printed.Text.Bytes(), strings.TrimSpace(said.Text.String()), err
}

// runInto runs a program to its end and gives what it printed to printed and said. Whatever it wrote before its end is
// read, also on a machine that then stands still for a while.
func runInto(cmd *exec.Cmd, printed, said *Bounded) error {
	out, err := readPipe(&cmd.Stdout, printed)
	if err != nil {
		return err
	}

	defer out.close()
	errs, err := readPipe(&cmd.Stderr, said)
	if err != nil {
		return err
	}

	defer errs.close()
	err = cmd.Start()
	if err != nil {
		return err
	}

	_, _ = out.write.Close(), errs.write.Close()
	go out.copyOutput()
	go errs.copyOutput()
	err = cmd.Wait()

	end := time.Now().Add(maxLinger)
	out.readRest(end)
	errs.readRest(end)
	if err == nil && (printed.Full || said.Full) {
		err = errTooMuch
	}

	return err
}

// outputPipe is a pipe from a program.
type outputPipe struct {
	read, write *os.File
	to          *Bounded
	// Closed when nobody reads from it any more.
	over chan struct{}
}

// readPipe makes the pipe for one of a program's outputs.
func readPipe(output *io.Writer, to *Bounded) (*outputPipe, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	*output = write

	return &outputPipe{read, write, to, make(chan struct{})}, nil
}

// copyOutput reads what the program writes, until nobody has the pipe open any more.
func (o *outputPipe) copyOutput() {
	defer close(o.over)
	if _, err := io.Copy(o.to, o.read); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		// It printed too much, and is to hear of that.
		_ = o.read.Close()
	}
}

// readRest reads what the program has written before its end, which is all in the pipe by now.
func (o *outputPipe) readRest(end time.Time) {
	select {
	case <-o.over:
		return
	case <-time.After(time.Until(end)):
	}

	_ = o.read.SetReadDeadline(time.Now())
	<-o.over
	conn, err := o.read.SyscallConn()
	if err != nil {
		return
	}

	_ = conn.Control(func(fd uintptr) {
		// As much as a pipe has.
		part := make([]byte, 64<<10)
		n, err := unix.Read(int(fd), part)
		if err == nil || errors.Is(err, unix.EAGAIN) {
			_, _ = o.to.Write(part[:max(n, 0)])
		}
	})
}

func (o *outputPipe) close() { _, _ = o.read.Close(), o.write.Close() }
