package proc_test

import (
	"net"
	"net/netip"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/internal/gate"
	"gpuard/internal/host/proc"
)

// TestSocketOwnerOfAnother: the user is the one who opened the socket. The kernel takes the thread's file system uid.
func TestSocketOwnerOfAnother(t *testing.T) {
	gate.Need(t, "root")
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	const alice = 4001
	to := &unix.SockaddrInet4{Port: listener.Addr().(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}}
	runtime.LockOSThread()
	before, err := unix.SetfsuidRetUid(alice)
	if err != nil {
		t.Fatal(err)
	}
	client, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Connect(client, to)
	}
	_, back := unix.SetfsuidRetUid(before)
	if runtime.UnlockOSThread(); err != nil || back != nil {
		t.Fatal(err, back)
	}
	defer unix.Close(client)
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	local, remote := netip.MustParseAddrPort(server.LocalAddr().String()), netip.MustParseAddrPort(server.RemoteAddr().String())
	if uid, ok := proc.New("/proc").SocketOwner(local, remote); !ok || uid != alice {
		t.Errorf("uid %d, %v", uid, ok)
	}
}
