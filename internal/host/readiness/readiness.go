// Package readiness checks once whether a program is ready: by a command, a CheckTCP connection or an CheckHTTP
// request. The caller decides when to check again, and for how long.
//
//	err := ready.CheckHTTP(ctx, "http://127.0.0.1:8000/health") // nil: it is ready
package readiness

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"gpuard/internal/core/prose"
	"gpuard/internal/host/program"
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

// CheckCommand runs a command in folder with the environment env, and returns nil if it ends with 0. It kills the
// command and its process group when ctx ends. The error has the last line of its output.
func CheckCommand(ctx context.Context, argv []string, folder string, env []string) error {
	if len(argv) == 0 {
		return errors.New("cannot ask whether it is ready: the command is empty")
	}

	said := &outputTail{}
	cmd := exec.CommandContext(ctx, findProgram(argv[0], env), argv[1:]...) //nolint:gosec // the user's own command
	cmd.Args[0] = argv[0]
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = folder, env, said, said
	err := program.RunGroup(ctx, cmd, time.Second)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s did not answer in time", argv[0])
	case errors.As(err, &exit):
		return fmt.Errorf("%s: %w%s", argv[0], err, prose.LastLineAfter(said.String()))
	}

	return err
}

// findProgram searches a program on the PATH in env, not on that of this process. If it is not found, the start of the
// command fails.
func findProgram(name string, env []string) string {
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

// CheckTCP returns nil if a program accepts a connection at "host:port", or at a port of this machine.
func CheckTCP(ctx context.Context, address string) error {
	conn, err := dialAddress(ctx, address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// CheckHTTP returns nil if the answer to a GET of an http address has a status from 200 to 399. It does not follow a
// redirection, because that is an answer of the program too. There is no https: a certificate says nothing about
// readiness, and CheckTCP suffices for such a program.
func CheckHTTP(ctx context.Context, address string) error {
	at, err := url.Parse(address)
	if err != nil || at.Scheme != "http" || at.Hostname() == "" {
		return fmt.Errorf("cannot ask %q: write an address such as http://127.0.0.1:8000/health", address)
	}

	conn, err := dialAddress(ctx, net.JoinHostPort(at.Hostname(), cmp.Or(at.Port(), "80")))
	if err != nil {
		return err
	}

	defer conn.Close() //nolint:errcheck // all data was sent
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: gpuard\r\nAccept: */*\r\nConnection: close\r\n\r\n", at.RequestURI(), at.Host)
	if err != nil {
		return fmt.Errorf("cannot ask %s: %w", address, err)
	}

	// RFC 9112, section 4: CheckHTTP-version SP status-code SP [ reason-phrase ].
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

// dialAddress tries a port without a host at both loopback addresses, because the program may listen at only one of
// them.
func dialAddress(ctx context.Context, address string) (net.Conn, error) {
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
			first = shortenNetError(ctx, a, err)
		}
	}

	return nil, first
}

// shortenNetError shortens an error of the network, which names the protocol and both addresses.
func shortenNetError(ctx context.Context, address string, err error) error {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no program listens at %s", address)
	case ctx.Err() != nil:
		return fmt.Errorf("%s did not answer in time", address)
	}
	return fmt.Errorf("cannot connect: %w", err)
}

// outputTail keeps the end of the output.
type outputTail struct{ bytes.Buffer }

func (e *outputTail) Write(b []byte) (int, error) {
	const most = 4 << 10
	if e.Len()+len(b) > most {
		kept := append(bytes.Clone(e.Bytes()), b...)
		e.Reset()
		e.Buffer.Write(kept[len(kept)-most/2:])

		return len(b), nil
	}
	return e.Buffer.Write(b)
}
