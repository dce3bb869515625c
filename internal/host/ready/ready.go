// Package ready asks a program, once, whether it can be used: by a command, a TCP connection or an HTTP request. When to ask
// again, and for how long, is for whoever asks.
package ready

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Command is ready when the command ends with 0. It runs in the folder and with the variables given, and is killed, with its
// process group, at the end of ctx. The error says what it wrote last.
func Command(ctx context.Context, argv []string, folder string, env []string) error {
	if len(argv) == 0 {
		return errors.New("cannot ask whether it is ready: the command is empty")
	}
	said := &ending{}
	cmd := exec.CommandContext(ctx, find(argv[0], env), argv[1:]...) //nolint:gosec // the user's own command
	cmd.Args[0] = argv[0]
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = folder, env, said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // it ended with 0, and left something behind that has its output open
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s did not answer in time", argv[0])
	case errors.As(err, &exit):
		return fmt.Errorf("%s: %w%s", argv[0], err, said.line())
	}
	return err
}

// find looks a program up on the PATH that it will have, and not on ours. A name that is not found is left to fail by itself.
func find(name string, env []string) string {
	if strings.Contains(name, "/") {
		return name
	}
	for _, pair := range slices.Backward(env) {
		folders, ok := strings.CutPrefix(pair, "PATH=")
		if !ok {
			continue
		}
		for _, folder := range filepath.SplitList(folders) {
			path := filepath.Join(folder, name)
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 && filepath.IsAbs(path) {
				return path
			}
		}
		break
	}
	return name
}

// TCP is ready when somebody accepts a connection at "host:port", or at a port of this machine.
func TCP(ctx context.Context, address string) error {
	conn, err := dial(ctx, address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// HTTP is ready when the answer to a GET of an http address has a status of 200 to 399: a redirection is an answer of the
// program, and is not followed. There is no https: a certificate says nothing of readiness, and TCP does for such a program.
func HTTP(ctx context.Context, address string) error {
	at, err := url.Parse(address)
	if err != nil || at.Scheme != "http" || at.Hostname() == "" {
		return fmt.Errorf("cannot ask %q: write an address such as http://127.0.0.1:8000/health", address)
	}
	port := at.Port()
	if port == "" {
		port = "80"
	}
	conn, err := dial(ctx, net.JoinHostPort(at.Hostname(), port))
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing is sent any more
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: gpuard\r\nAccept: */*\r\nConnection: close\r\n\r\n", at.RequestURI(), at.Host)
	if err != nil {
		return fmt.Errorf("cannot ask %s: %w", address, err)
	}
	// RFC 9112, section 4: HTTP-version SP status-code SP [ reason-phrase ].
	line, err := bufio.NewReader(io.LimitReader(conn, 4<<10)).ReadString('\n')
	version, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	code, _, _ := strings.Cut(rest, " ")
	status, number := strconv.Atoi(code)
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("%s did not answer in time", address)
	case err != nil && line == "":
		return fmt.Errorf("%s closed the connection without an answer", address)
	case !strings.HasPrefix(version, "HTTP/") || number != nil:
		return fmt.Errorf("%s does not speak HTTP", address)
	case status < 200 || status > 399:
		return fmt.Errorf("%s answers with status %d", address, status)
	}
	return nil
}

// dial asks a port alone by both addresses of this machine: which of them a program listens at is its own affair.
func dial(ctx context.Context, address string) (net.Conn, error) {
	addresses := []string{address}
	if !strings.Contains(address, ":") {
		addresses = []string{net.JoinHostPort("127.0.0.1", address), net.JoinHostPort("::1", address)}
	}
	var first error
	for _, a := range addresses {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", a)
		if err == nil {
			return conn, nil
		}
		if first == nil {
			first = refusal(ctx, a, err)
		}
	}
	return nil, first
}

// refusal says in a few words what the network did: the whole error names the protocol, and both ends.
func refusal(ctx context.Context, address string, err error) error {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nobody listens at %s", address)
	case ctx.Err() != nil:
		return fmt.Errorf("%s did not answer in time", address)
	}
	return fmt.Errorf("cannot connect: %w", err)
}

// ending keeps the end of what is written.
type ending struct{ bytes.Buffer }

func (e *ending) Write(b []byte) (int, error) {
	const most = 4 << 10
	if e.Len()+len(b) > most {
		kept := append(bytes.Clone(e.Bytes()), b...)
		e.Reset()
		e.Buffer.Write(kept[len(kept)-most/2:])
		return len(b), nil
	}
	return e.Buffer.Write(b)
}

// line is the last line with words in it.
func (e *ending) line() string {
	lines := strings.Split(strings.TrimSpace(e.String()), "\n")
	if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
		return ": " + last
	}
	return ""
}
