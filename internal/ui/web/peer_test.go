package web

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gpuard/internal/host/proc"
)

// TestPagesOfOnePeer: whoever has as many pages open as one peer may is refused one more, with the reason, and keeps
// nobody else out. The peer is the user at the other end, by a port of this machine and by a socket of the file system.
func TestPagesOfOnePeer(t *testing.T) {
	s := newEmptySite(t)
	s.Observer.Host.Proc = proc.New("/proc")
	me := fmt.Sprint("uid ", os.Geteuid())
	var pages []*openPage
	for i := range maxPagesOfPeer {
		page, err := s.live.addPage(pageView{language: "en"}, me)
		if err != nil {
			t.Fatalf("page %d: %v", i, err)
		}
		pages = append(pages, page)
	}
	for range 3 {
		if _, err := s.live.addPage(pageView{language: "en"}, "uid 4001"); err != nil {
			t.Errorf("another one is kept out: %v", err)
		}
	}

	socket := filepath.Join(t.TempDir(), "socket")
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": socket} {
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		server := newServer(s.Handler())
		go func() { _ = server.Serve(l) }()
		defer server.Close()
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial(network, l.Addr().String()) }}}
		open := func() (code int, text string) {
			answer, err := client.Get("http://127.0.0.1/events")
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return answer.StatusCode, ""
			}
			var why errorAnswer
			data, _ := io.ReadAll(answer.Body)
			if err := json.Unmarshal(data, &why); err != nil {
				t.Errorf("%s: %v", data, err)
			}
			return answer.StatusCode, why.Error
		}
		if code, text := open(); code != http.StatusServiceUnavailable || !strings.Contains(text, "cannot keep more than 100 pages of one peer current") || !strings.Contains(text, me+" has so many open") {
			t.Errorf("%s: one more page: %d, %s", network, code, text)
		}
		s.live.removePage(pages[0])
		if code, text := open(); code != http.StatusOK {
			t.Errorf("%s: after one was closed: %d, %s", network, code, text)
		}
		waitUntil(t, "its page has left", func() bool {
			page, err := s.live.addPage(pageView{language: "en"}, me)
			if err == nil {
				pages[0] = page
			}
			return err == nil
		})
	}
}

// TestConnectionsOfOnePeer: a peer with as many connections as it may have is closed the next one, and another peer is
// not.
func TestConnectionsOfOnePeer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var who atomic.Value
	who.Store("uid 1")
	server := newServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") }))
	one := &limitedListener{Listener: l, places: make(chan struct{}, 10), each: 3, free: 1, peer: func(net.Conn) string { return who.Load().(string) }}
	go func() { _ = server.Serve(one) }()
	defer server.Close()
	answered := func() (net.Conn, bool) {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		text := make([]byte, 1000)
		n, _ := c.Read(text)
		return c, strings.Contains(string(text[:n]), "200 OK")
	}
	var first net.Conn
	for i, want := range []bool{true, true, true, true, false, false} { // the first one is free
		c, ok := answered()
		if ok != want {
			t.Errorf("connection %d: %v", i, ok)
		}
		if i == 1 {
			first = c
		}
	}
	who.Store("uid 2")
	if _, ok := answered(); !ok {
		t.Error("another peer is kept out")
	}
	who.Store("uid 1")
	_ = first.Close()
	waitUntil(t, "the place that was left can be had", func() bool { _, ok := answered(); return ok })
}

// TestPeers: users of this machine by their uid, others by their address, those of IPv6 by their network.
func TestPeers(t *testing.T) {
	host := newEmptySite(t).Observer.Host
	for remote, want := range map[string]string{
		"10.0.0.7:1": "the address 10.0.0.7", "[::ffff:10.0.0.7]:1": "the address 10.0.0.7", "127.0.0.1:1": "the address 127.0.0.1",
		"[2001:db8::1]:1": "the network 2001:db8::/64", "[fe80::1%eth0]:1": "the network fe80::/64",
	} {
		if got := peerOfConnection(host, addressedConn{remote: remote}); got != want {
			t.Errorf("%s: %s, want %s", remote, got, want)
		}
	}
}

// addressedConn is a connection that has nothing but addresses.
type addressedConn struct {
	net.Conn
	remote string
}

func (e addressedConn) LocalAddr() net.Addr  { return textAddress("10.0.0.1:8470") }
func (e addressedConn) RemoteAddr() net.Addr { return textAddress(e.remote) }

type textAddress string

func (t textAddress) Network() string { return "tcp" }
func (t textAddress) String() string  { return string(t) }

func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still not so after a minute: %s", what)
		}
	}
}
