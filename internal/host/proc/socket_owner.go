package proc

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// SocketOwner returns the user whose process has the other end of a TCP connection within this machine; ok is false
// where that is not known. local and remote are the addresses as this end sees them. The kernel records the user that
// opened a socket.
func (f FS) SocketOwner(local, remote netip.AddrPort) (uid uint32, ok bool) {
	local, remote = unmapAddress(local), unmapAddress(remote)
	if f.root == "" {
		return 0, false
	}

	uid, err := querySocketOwner(remote, local)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return uid, err == nil
	}

	return f.scanSocketOwner(local, remote)
}

// querySocketOwner asks for one socket by its two addresses (sock_diag(7)): that does not take longer the more sockets
// there are, as the list in /proc does. The error is ENOENT where there is none.
func querySocketOwner(local, remote netip.AddrPort) (uint32, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, err
	}

	defer unix.Close(fd) //nolint:errcheck // nothing was written
	limit := unix.Timeval{Sec: 1}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return 0, err
	}
	if err := unix.Sendto(fd, ownerRequest(local, remote), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}

	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return 0, err
	}

	return parseOwnerReply(answer[:n])
}

// Parts of the messages of sock_diag(7): struct nlmsghdr, struct inet_diag_req_v2 and struct inet_diag_msg
// (include/uapi/linux/netlink.h and inet_diag.h).
const (
	// SOCK_DIAG_BY_FAMILY.
	byFamily    = 20
	headerSize  = 16
	requestSize = 56
	uidAt       = headerSize + 64
	tcpOpen     = 1 // TCP_ESTABLISHED
)

// ownerRequest is the request for the socket with these addresses.
func ownerRequest(local, remote netip.AddrPort) []byte {
	family := byte(unix.AF_INET)
	if local.Addr().Is6() {
		family = unix.AF_INET6
	}

	order := binary.NativeEndian
	b := make([]byte, 0, headerSize+requestSize)
	b = order.AppendUint32(b, headerSize+requestSize)
	b = order.AppendUint16(b, byFamily)
	b = order.AppendUint16(b, unix.NLM_F_REQUEST)

	// Sequence and port.
	b = append(b, make([]byte, 8)...)
	b = append(b, family, unix.IPPROTO_TCP, 0, 0)
	b = order.AppendUint32(b, 1<<tcpOpen)
	b = binary.BigEndian.AppendUint16(b, local.Port())
	b = binary.BigEndian.AppendUint16(b, remote.Port())
	for _, address := range []netip.Addr{local.Addr(), remote.Addr()} {
		raw := address.AsSlice()
		b = append(append(b, raw...), make([]byte, 16-len(raw))...)
	}

	// Any interface.
	b = append(b, make([]byte, 4)...)

	// INET_DIAG_NOCOOKIE.
	return append(b, bytes.Repeat([]byte{0xff}, 8)...)
}

// parseOwnerReply reads the answer.
func parseOwnerReply(answer []byte) (uint32, error) {
	order := binary.NativeEndian
	switch {
	case len(answer) >= headerSize+4 && order.Uint16(answer[4:]) == unix.NLMSG_ERROR:
		return 0, unix.Errno(-int32(order.Uint32(answer[headerSize:]))) //nolint:gosec // a negative errno
	case len(answer) < uidAt+4 || order.Uint16(answer[4:]) != byFamily:
		return 0, unix.EBADMSG
	case answer[headerSize+1] != tcpOpen:
		// It is closed, and has no owner.
		return 0, unix.ENOENT
	}
	return order.Uint32(answer[uidAt:]), nil
}

// scanSocketOwner looks through all sockets (field uid of proc_net_tcp.rst, Linux Documentation/networking).
func (f FS) scanSocketOwner(local, remote netip.AddrPort) (uid uint32, ok bool) {
	for _, table := range []string{"tcp", "tcp6"} {
		text, _ := os.ReadFile(filepath.Join(f.root, "self/net", table))
		for line := range strings.Lines(string(text)) {
			w := strings.Fields(line)
			if len(w) < 10 || w[3] != tcpEstablished || !hasPort(w[1], int(remote.Port())) || !hasPort(w[2], int(local.Port())) {
				continue
			}
			if socketAddress(w[1]) != remote.Addr() || socketAddress(w[2]) != local.Addr() {
				continue
			}

			n, err := strconv.ParseUint(w[7], 10, 32)

			return uint32(n), err == nil
		}
	}
	return 0, false
}

func unmapAddress(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// socketAddress reads the address in "0100007F:735B", whose words of 32 bits are in the machine's own order. It is the
// zero value where the text has another form.
func socketAddress(text string) netip.Addr {
	words, _, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(words)
	if err != nil {
		return netip.Addr{}
	}

	for i := 0; i+4 <= len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}

	address, _ := netip.AddrFromSlice(raw)

	return address.Unmap()
}
