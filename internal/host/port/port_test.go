package port

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/gate"
)

// keepOne keeps a port until the end of a test.
func keepOne(t *testing.T) *KeptPort {
	t.Helper()
	k, err := KeepFreePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(k.FD) })
	return k
}

// TestKeep: two kept ports differ, a connection to one is refused, and a command inherits the descriptor only if asked
// for.
func TestKeep(t *testing.T) {
	a, b := keepOne(t), keepOne(t)
	if a.Number == b.Number || a.Number < 1024 {
		t.Errorf("ports %d and %d", a.Number, b.Number)
	}
	if c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", a.Number), 10*time.Second); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("somebody answers: %v, %v", c, err)
	}
	for _, inherited := range []bool{false, true, false} {
		if inherited {
			SetInherit(a.FD, true)
		}
		flags, err := unix.FcntlInt(uintptr(a.FD), unix.F_GETFD, 0)
		if err != nil || (flags&unix.FD_CLOEXEC == 0) != inherited {
			t.Errorf("flags %d, %v; inherited shall be %t", flags, err, inherited)
		}
		SetInherit(a.FD, false)
	}
}

// listen listens as PyTorch's store does, or with reuse false as other programs may.
func listen(address string, reuse bool) (net.Listener, error) {
	c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		if control := raw.Control(func(fd uintptr) {
			on := 0
			if reuse {
				on = 1
			}
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, on)
		}); control != nil {
			return control
		}
		return err
	}}
	return c.Listen(context.Background(), "tcp", address)
}

// TestListen: a program with SO_REUSEADDR may listen on the port, on one address or all, again after an end, and only
// one at a time. A program without it gets an error.
func TestListen(t *testing.T) {
	k := keepOne(t)
	for _, address := range []string{"[::]", "127.0.0.1", "0.0.0.0", "[::1]", "localhost", "[::]"} {
		at := fmt.Sprintf("%s:%d", address, k.Number)
		if l, err := listen(at, false); err == nil {
			_ = l.Close()
			t.Errorf("%s was given to a program that does not share", at)
		}
		l, err := listen(at, true)
		if errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAFNOSUPPORT) {
			continue // no IPv6 here
		}
		if err != nil {
			t.Errorf("%s: %v", at, err)
			continue
		}
		if second, err := listen(at, true); err == nil {
			_ = second.Close()
			t.Errorf("%s: two listen", at)
		}
		served(t, l)
		_ = l.Close()
	}
}

// served makes one connection, which leaves TIME_WAIT on the port.
func served(t *testing.T, l net.Listener) {
	t.Helper()
	c, err := net.DialTimeout("tcp", l.Addr().String(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = other.Close()
	_ = c.Close()
}

// TestAttack: a program that asks for any port never gets a kept one, with any options, also while another program
// listens on it.
func TestAttack(t *testing.T) {
	kept := map[int]bool{}
	for range 8 {
		kept[keepOne(t).Number] = true
	}
	busy := keepOne(t)
	l, err := listen(fmt.Sprintf("127.0.0.1:%d", busy.Number), true)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // a test's
	kept[busy.Number] = true
	attack(t, 10000, kept, "127.0.0.1:0", l)
}

// attack binds and connects from any free port that many times.
func attack(t *testing.T, times int, kept map[int]bool, address string, target net.Listener) {
	t.Helper()
	for i := range times {
		b, err := listen(address, i%2 == 0)
		if err != nil {
			t.Fatal(err)
		}
		if n := b.Addr().(*net.TCPAddr).Port; kept[n] {
			t.Fatalf("try %d: bind got port %d", i, n)
		}
		_ = b.Close()
		c, err := net.DialTimeout("tcp", target.Addr().String(), 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if n := c.LocalAddr().(*net.TCPAddr).Port; kept[n] {
			t.Fatalf("try %d: connect got port %d", i, n)
		}
		if tcp, ok := c.(*net.TCPConn); ok { // no TIME_WAIT: it would use up the range of ports
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
		if other, err := target.Accept(); err == nil {
			_ = other.Close()
		}
	}
}

// crowded is the range of ports in TestCrowded, which runs itself again in a new network namespace.
const crowded = "40000 40007"

// TestCrowded: in a network namespace with eight ports, one of them kept, other programs get the other seven, and then
// an error.
func TestCrowded(t *testing.T) {
	if os.Getenv("PORT_CROWDED") == "" {
		gate.Need(t, "netns")
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("unshare", "--net", self, "-test.run=^TestCrowded$", "-test.v")
		cmd.Env = append(os.Environ(), "PORT_CROWDED=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestCrowded") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	loopbackUp(t)
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte(crowded), 0o600); err != nil {
		t.Fatal(err)
	}
	k := keepOne(t)
	var bound []net.Listener
	for range 7 {
		l, err := listen("127.0.0.1:0", true)
		if err != nil {
			t.Fatal(err)
		}
		if l.Addr().(*net.TCPAddr).Port == k.Number {
			t.Fatal("bind got the kept port")
		}
		bound = append(bound, l)
	}
	for _, reuse := range []bool{true, false} {
		if l, err := listen("127.0.0.1:0", reuse); err == nil {
			t.Errorf("an eighth program got port %s of seven", l.Addr())
		}
	}
	if c, err := net.Dial("tcp", bound[0].Addr().String()); err == nil {
		t.Errorf("connect got port %s", c.LocalAddr())
	}
	if _, err := KeepFreePort(); err == nil || !strings.Contains(err.Error(), "free port") {
		t.Errorf("a second port is kept where none is free: %v", err)
	}
	l, err := listen(fmt.Sprintf("[::]:%d", k.Number), true)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		l, err = listen(fmt.Sprintf("0.0.0.0:%d", k.Number), true)
	}
	if err != nil {
		t.Fatalf("the one that it is kept for: %v", err)
	}
	_ = l.Close()
}

// loopbackUp switches the loopback interface of a new network namespace on.
func loopbackUp(t *testing.T) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd) //nolint:errcheck // a test's
	lo, err := unix.NewIfreq("lo")
	if err == nil {
		lo.SetUint16(unix.IFF_UP)
		err = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
	}
	if err != nil {
		t.Fatal(err)
	}
}
