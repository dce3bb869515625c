package proc

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// SocketOwner returns the user whose process has the other end of a TCP connection within this machine; ok is false
// where that is not known. local and remote are the addresses as this end sees them. The kernel records the user that
// opened a socket (field uid of proc_net_tcp.rst, Linux Documentation/networking).
func (f FS) SocketOwner(local, remote netip.AddrPort) (uid uint32, ok bool) {
	local, remote = unmapped(local), unmapped(remote)
	for _, table := range []string{"tcp", "tcp6"} {
		text, _ := os.ReadFile(filepath.Join(f.root, "self/net", table))
		for line := range strings.Lines(string(text)) {
			w := strings.Fields(line)
			if len(w) < 10 || w[3] != established || !hasPort(w[1], int(remote.Port())) || !hasPort(w[2], int(local.Port())) {
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

func unmapped(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

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
