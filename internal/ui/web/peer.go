package web

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"

	"gpuard/internal/app/machine"
)

// Limits of what one peer may hold, so that it cannot close the page to the others. A peer is a user of this machine,
// else an address.
const (
	maxPagesOfPeer = 100  // of maxPages
	maxConnsOfPeer = 1000 // of maxConnections
	// Of all, see bounded.free.
	uncheckedConns = 200
)

// peerKey is the key of a connection in the context of its requests.
type peerKey struct{}

// withConnection keeps the connection for peerOf.
func withConnection(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, c)
}

// peerOf names who asks.
func peerOf(host *machine.Host, r *http.Request) string {
	if c, ok := r.Context().Value(peerKey{}).(net.Conn); ok {
		return peerOfConnection(host, c)
	}

	// Of a server that does not keep its connections.
	return "the address " + r.RemoteAddr
}

// peerOfConnection names the user of this machine at the other end, else its address. Of IPv6 the network counts: who
// has one address has all of it.
func peerOfConnection(host *machine.Host, c net.Conn) string {
	for {
		switch inner := c.(type) {
		case *tls.Conn:
			c = inner.NetConn()
			continue
		case *limitedConn:
			c = inner.Conn
			continue
		case *net.UnixConn:
			return peerOfSocket(inner)
		}
		break
	}

	local, lerr := netip.ParseAddrPort(c.LocalAddr().String())
	remote, rerr := netip.ParseAddrPort(c.RemoteAddr().String())
	if lerr != nil || rerr != nil {
		return "the address " + c.RemoteAddr().String()
	}

	from := remote.Addr().Unmap()
	if from.IsLoopback() || from == local.Addr().Unmap() {
		if uid, ok := host.Proc.SocketOwner(local, remote); ok {
			return fmt.Sprint("uid ", uid)
		}
	}

	if from.Is6() {
		network, _ := from.WithZone("").Prefix(64)
		return "the network " + network.String()
	}

	return "the address " + from.String()
}

// peerOfSocket is the process that connected to a socket of the file system (unix(7), SO_PEERCRED).
func peerOfSocket(c *net.UnixConn) string {
	name := "an unknown process"
	raw, err := c.SyscallConn()
	if err != nil {
		return name
	}

	_ = raw.Control(func(fd uintptr) {
		if cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			name = fmt.Sprint("uid ", cred.Uid)
		}
	})

	return name
}
