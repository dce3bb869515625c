// Package port keeps a TCP port of this machine for a program that will listen on it later. It does not listen.
package port

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Kept is a port that the kernel gives to nobody who asks for any free one, as long as a descriptor of its socket is open
// somewhere.
type Kept struct {
	Number int
	FD     int // of the socket; it does not survive exec unless Inherit says so
}

// Keep takes a free port of all addresses. Its socket is bound, has SO_REUSEADDR, and never listens. That is how it keeps the
// port and still gives it away: bind(2) to port 0 and connect(2) pass a bound port over (inet_csk_find_open_port and
// __inet_hash_connect in Linux's net/ipv4), while a program that sets SO_REUSEADDR may bind the very number, and listen, as
// long as nobody else listens. Libraries that listen on a number they were told do so: PyTorch's store
// (torch/csrc/distributed/c10d/socket.cpp, and libuv's uv__tcp_bind), gRPC, MPI's launchers.
//
// All addresses, of both families, are meant: a store that listens on [::] needs the number on each of them.
func Keep() (*Kept, error) {
	number, fd, err := keep(unix.AF_INET6, &unix.SockaddrInet6{})
	if err != nil { // no IPv6 here
		number, fd, err = keep(unix.AF_INET, &unix.SockaddrInet4{})
	}
	if err != nil {
		return nil, fmt.Errorf("cannot find a free port for the processes to meet: %w; the range is in /proc/sys/net/ipv4/ip_local_port_range, and who uses it: ss -tan", err)
	}
	return &Kept{number, fd}, nil
}

// Inherit lets what this process starts, or becomes, keep the port too, or not any more.
func Inherit(fd int, yes bool) {
	flags := unix.FD_CLOEXEC
	if yes {
		flags = 0
	}
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFD, flags) //nolint:gosec // a descriptor
}

func keep(family int, every unix.Sockaddr) (number, fd int, err error) {
	if fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return 0, -1, os.NewSyscallError("socket", err)
	}
	if number, err = bind(fd, family, every); err != nil {
		_ = unix.Close(fd)
		return 0, -1, err
	}
	return number, fd, nil
}

func bind(fd, family int, every unix.Sockaddr) (int, error) {
	if family == unix.AF_INET6 { // some machines say otherwise by default
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0); err != nil {
			return 0, os.NewSyscallError("setsockopt", err)
		}
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return 0, os.NewSyscallError("setsockopt", err)
	}
	if err := unix.Bind(fd, every); err != nil {
		return 0, os.NewSyscallError("bind", err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return 0, os.NewSyscallError("getsockname", err)
	}
	switch name := name.(type) {
	case *unix.SockaddrInet6:
		return name.Port, nil
	case *unix.SockaddrInet4:
		return name.Port, nil
	}
	return 0, errors.New("the kernel names no port")
}
