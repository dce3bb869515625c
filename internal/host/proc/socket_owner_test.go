package proc

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"testing"
)

// TestSocketOwner: the other end of a connection within this machine, by both families; one that was closed has no
// owner.
func TestSocketOwner(t *testing.T) {
	for _, c := range []struct{ listens, dials string }{{"127.0.0.1:0", "127.0.0.1"}, {"[::1]:0", "::1"}, {":0", "127.0.0.1"}} {
		listener, err := net.Listen("tcp", c.listens)
		if err != nil && c.dials == "::1" {
			continue // no IPv6 here
		}
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		_, port, _ := net.SplitHostPort(listener.Addr().String())
		client, err := net.Dial("tcp", net.JoinHostPort(c.dials, port))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		server, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()

		local, remote := netip.MustParseAddrPort(server.LocalAddr().String()), netip.MustParseAddrPort(server.RemoteAddr().String())
		uid, ok := New("/proc").SocketOwner(local, remote)
		if !ok || int(uid) != os.Geteuid() {
			t.Errorf("%s: uid %d, %v", server.RemoteAddr(), uid, ok)
		}
		if uid, ok := New("/proc").scanSocketOwner(unmapAddress(local), unmapAddress(remote)); !ok || int(uid) != os.Geteuid() {
			t.Errorf("%s: in the list uid %d, %v", server.RemoteAddr(), uid, ok)
		}
		if _, err := querySocketOwner(unmapAddress(remote), unmapAddress(local)); err != nil {
			t.Logf("the kernel cannot be asked for one socket: %v", err)
		}
		other := netip.AddrPortFrom(remote.Addr(), local.Port())
		if _, ok := New("/proc").SocketOwner(local, other); ok {
			t.Errorf("%s: an owner of no connection", other)
		}
		_ = client.Close()
		if _, ok := New("/proc").SocketOwner(local, remote); ok {
			t.Errorf("%s: an owner of a connection that was closed", remote)
		}
	}
	for text, want := range map[string]string{"0100007F:1F90": "127.0.0.1", "0000000000000000FFFF00000100007F:1F90": "127.0.0.1", "00000000000000000000000001000000:1F90": "::1"} {
		if got := socketAddress(text); got.String() != want && binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"", "x", "01", ":1"} {
		if got := socketAddress(text); got.IsValid() {
			t.Errorf("%q: %s", text, got)
		}
	}
}

// TestDiagnosed: answers of another form are errors.
func TestDiagnosed(t *testing.T) {
	for _, answer := range [][]byte{nil, make([]byte, 19), make([]byte, 200), {20, 0, 0, 0, 2, 0, 0, 0}} {
		if uid, err := parseOwnerReply(answer); err == nil {
			t.Errorf("%v: uid %d", answer, uid)
		}
	}
}
