// Package port keeps a TCP port of this machine for a program that will listen on it later. It does not listen.
//
//	kept, err := port.KeepFreePort()
//	port.SetInherit(kept.FD, true) // the command keeps it too
package port

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// KeptPort is a port that the kernel does not assign to a program that asks for any free port, as long as a process has
// a descriptor of its socket open.
type KeptPort struct {
	Number int
	// The descriptor of the socket; closed on exec, see SetInherit.
	FD int
}

// KeepFreePort takes a port that is free on all addresses. Its socket is bound, has SO_REUSEADDR, and never listens. So
// the port is kept and can still be used: bind(2) to port 0 and connect(2) skip a bound port (inet_csk_find_open_port
// and __inet_hash_connect in Linux's net/ipv4), while a program that sets SO_REUSEADDR may bind this port and listen,
// as long as no other program listens. Libraries that listen on a given port do that: PyTorch's store
// (torch/csrc/distributed/c10d/socket.cpp, and libuv's uv__tcp_bind), gRPC, MPI's launchers.
//
// It binds all addresses of both families, because a store that listens on [::] needs the port on each of them.
func KeepFreePort() (*KeptPort, error) {
	number, fd, err := bindPort(unix.AF_INET6, &unix.SockaddrInet6{})
	if err != nil {
		// No IPv6 here.
		number, fd, err = bindPort(unix.AF_INET, &unix.SockaddrInet4{})
	}
	if err != nil {
		return nil, fmt.Errorf("cannot find a free port for the processes to meet: %w; the range is in /proc/sys/net/ipv4/ip_local_port_range, and who uses it: ss -tan", err)
	}

	return &KeptPort{number, fd}, nil
}

// SetInherit sets whether the programs that this process starts or executes inherit the socket, and so keep the port
// too.
func SetInherit(fd int, yes bool) {
	flags := unix.FD_CLOEXEC
	if yes {
		flags = 0
	}
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFD, flags) //nolint:gosec // a descriptor
}

func bindPort(family int, every unix.Sockaddr) (number, fd int, err error) {
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, -1, os.NewSyscallError("socket", err)
	}

	number, err = bindSocket(fd, family, every)
	if err != nil {
		_ = unix.Close(fd)
		return 0, -1, err
	}

	return number, fd, nil
}

func bindSocket(fd, family int, every unix.Sockaddr) (int, error) {
	if family == unix.AF_INET6 {
		// The default may be IPv6 only (net.ipv6.bindv6only).
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
