package readiness_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gpuard/internal/host/readiness"
	"gpuard/test/executable"
)

// soon is a deadline for programs that never answer; patience is the deadline for all others.
const (
	soon     = 300 * time.Millisecond
	patience = 20 * time.Second
)

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// check checks the beginning of an error's text; "" means ready.
func check(t *testing.T, what string, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: %v, want ready", what, err)
	case want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)):
		t.Errorf("%s: %v, want %q", what, err, want)
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	executable.Write(t, filepath.Join(folder, "mine"), []byte("#!/bin/sh\n[ \"$A\" = 1 ]\n"))
	path := "PATH=" + folder + ":" + os.Getenv("PATH")
	for _, c := range []struct {
		name string
		argv []string
		env  []string
		want string
	}{
		{"ends with 0", []string{"true"}, nil, ""},
		{"in its folder", []string{"sh", "-c", "test -x mine"}, nil, ""},
		{"found on its own PATH, with its variables", []string{"mine"}, []string{path, "A=1"}, ""},
		{"other variables", []string{"mine"}, []string{path, "A=2"}, "mine: exit status 1"},
		{"says why not", []string{"sh", "-c", "echo first; echo the model is loading >&2; exit 3"}, nil, "sh: exit status 3: the model is loading"},
		{"says much", []string{"sh", "-c", "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; exit 1"}, nil, "sh: exit status 1: line 1999"},
		{"a signal", []string{"sh", "-c", "kill -9 $$"}, nil, "sh: signal: killed"},
		{"is not there", []string{"no-such-program"}, []string{path}, "exec: \"no-such-program\""},
		{"is nothing", nil, nil, "cannot ask whether it is ready: the command is empty"},
	} {
		env := c.env
		if env == nil {
			env = os.Environ()
		}
		check(t, c.name, readiness.CheckCommand(within(t, patience), c.argv, folder, env), c.want)
	}
}

// A command that does not end is killed with its children.
func TestCommandTimeout(t *testing.T) {
	t.Parallel()
	pids := filepath.Join(t.TempDir(), "pids")
	if err := syscall.Mkfifo(pids, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- readiness.CheckCommand(ctx, []string{"sh", "-c", "sleep 1000 & echo $! > \"$1\"; wait", "sh", pids}, "", os.Environ())
	}()
	text, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	select {
	case err := <-ended:
		check(t, "stuck", err, "sh did not answer in time")
	case <-time.After(patience):
		t.Fatal("the command was not killed")
	}
	var child int
	if _, err := fmt.Sscan(string(text), &child); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("what the command started lives: %s", stat)
		}
	}
}

// A command that has ended is ready, even if a child of it has the output open.
func TestCommandLeaves(t *testing.T) {
	t.Parallel()
	pid := filepath.Join(t.TempDir(), "pid")
	check(t, "left", readiness.CheckCommand(within(t, patience), []string{"sh", "-c", "sleep 1000 & echo $! > \"$1\"", "sh", pid}, "", os.Environ()), "")
	text, err := os.ReadFile(pid)
	if err != nil {
		t.Fatal(err)
	}
	var child int
	if _, err := fmt.Sscan(string(text), &child); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
}

// server accepts connections and answers each with the result of answer for the first line of the request; "" is no
// answer.
func server(t *testing.T, network, address string, answer func(request string) string) string {
	t.Helper()
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Skipf("cannot listen at %s: %v", address, err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				request, _ := bufio.NewReader(conn).ReadString('\n')
				if text := answer(request); text != "" {
					_, _ = conn.Write([]byte(text))
				} else {
					<-t.Context().Done()
				}
				_ = conn.Close()
			}()
		}
	}()
	return listener.Addr().String()
}

// nobody returns an address where no program listens, and that no other program gets: a socket is bound to it.
func nobody(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
}

func TestTCP(t *testing.T) {
	t.Parallel()
	four := server(t, "tcp4", "127.0.0.1:0", func(string) string { return "" })
	check(t, "host:port", readiness.CheckTCP(within(t, patience), four), "")
	_, port, _ := net.SplitHostPort(four)
	check(t, "port", readiness.CheckTCP(within(t, patience), port), "")
	free := nobody(t)
	check(t, "nobody", readiness.CheckTCP(within(t, patience), free), "no program listens at "+free)
	check(t, "no port", readiness.CheckTCP(within(t, patience), "127.0.0.1:port"), "cannot connect: ")
}

// A port without a host is also found at the IPv6 loopback address.
func TestTCPv6(t *testing.T) {
	t.Parallel()
	_, port, _ := net.SplitHostPort(server(t, "tcp6", "[::1]:0", func(string) string { return "" }))
	check(t, "port", readiness.CheckTCP(within(t, patience), port), "")
}

func TestHTTP(t *testing.T) {
	t.Parallel()
	address := server(t, "tcp4", "127.0.0.1:0", func(request string) string {
		path := strings.Fields(request + " . .")[1]
		switch path {
		case "/silent":
			return ""
		case "/closes":
			return " "
		case "/garbage":
			return "SSH-2.0-OpenSSH_9.9\r\n"
		case "/a?b=c%20d":
			return "HTTP/1.1 200 OK\r\n\r\nhello"
		case "/long":
			return "HTTP/1.0 204 " + strings.Repeat("x", 1000) + "\r\n\r\n"
		}
		return "HTTP/1.1 " + strings.TrimPrefix(path, "/") + " Words of it\r\n\r\n"
	})
	base := "http://" + address
	for path, want := range map[string]string{
		"/200": "", "/204": "", "/302": "", "/399": "", "/long": "", "/a?b=c%20d": "",
		"/100": base + "/100 answers with status 100", "/404": base + "/404 answers with status 404", "/503": base + "/503 answers with status 503",
		"/garbage": base + "/garbage does not speak HTTP", "/closes": base + "/closes does not speak HTTP",
	} {
		check(t, path, readiness.CheckHTTP(within(t, patience), base+path), want)
	}
	check(t, "silent", readiness.CheckHTTP(within(t, soon), base+"/silent"), base+"/silent did not answer in time")
	free := nobody(t)
	check(t, "nobody", readiness.CheckHTTP(within(t, patience), "http://"+free+"/"), "no program listens at "+free)
	for _, bad := range []string{"", "127.0.0.1:1/", "https://127.0.0.1/", "http://", "http://[::1", "ftp://x/"} {
		check(t, bad, readiness.CheckHTTP(within(t, patience), bad), "cannot ask ")
	}
}
