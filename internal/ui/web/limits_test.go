package web

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gpuard/internal/app/observe"
)

// sendRequest is one request.
func sendRequest(s *Site, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(method, "http://127.0.0.1"+path, nil))
	return w
}

// TestShared: all who ask at the same time get one reading, and one encoding.
func TestShared(t *testing.T) {
	var read, encoded atomic.Int32
	s := newEmptySite(t, observe.Source{Name: "findings", Every: time.Minute, Read: func(context.Context) (any, error) {
		read.Add(1)
		time.Sleep(100 * time.Millisecond)
		return 7, nil
	}, Public: func(answer any) any {
		encoded.Add(1)
		return answer
	}})
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			if w := sendRequest(s, http.MethodGet, "/api/findings"); w.Code != http.StatusOK || w.Body.String() != "7\n" {
				t.Errorf("%d: %s", w.Code, w.Body)
			}
		})
	}
	all.Wait()
	if w := sendRequest(s, http.MethodGet, "/api/findings"); w.Body.String() != "7\n" || read.Load() != 1 || encoded.Load() > 100 {
		t.Errorf("%s: %d readings", w.Body, read.Load())
	}
	before := encoded.Load()
	for range 10 {
		sendRequest(s, http.MethodGet, "/api/findings")
	}
	if encoded.Load() != before {
		t.Errorf("encoded %d times more", encoded.Load()-before)
	}
}

// TestUnknownPaths: what is below /api/ is JSON, whatever is asked for.
func TestUnknownPaths(t *testing.T) {
	s := newEmptySite(t)
	s.Actions = []observe.Action{{Name: "cancel"}}
	for _, test := range []struct {
		method, path string
		code         int
	}{{"GET", "/api/none", 404}, {"GET", "/api/status/x", 404}, {"POST", "/api/status", 405}, {"GET", "/api/cancel", 405}, {"DELETE", "/api/", 405}, {"POST", "/api/cancel", 403}} {
		w := sendRequest(s, test.method, test.path)
		var answer errorAnswer
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != test.code || answer.Schema != "gpuard.error/1" || !strings.HasPrefix(answer.Error, "cannot ") {
			t.Errorf("%s %s: %d, %v, %s", test.method, test.path, w.Code, err, w.Body)
		}
	}
}

// TestWriteLimit: an answer that nobody takes ends.
func TestWriteLimit(t *testing.T) {
	ended := make(chan bool, 1)
	server := newServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				ended <- true
				return
			}
		}
	}))
	server.WriteTimeout /= 100
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("it still writes")
	}
}

// TestBounded: a connection above the limit is closed, and a place that was left can be had.
func TestBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := newServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") }))
	go func() { _ = server.Serve(&limitedListener{Listener: l, places: make(chan struct{}, 2)}) }()
	defer server.Close()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	answered := func(c net.Conn) bool {
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		text := make([]byte, 1000)
		n, _ := c.Read(text)
		return strings.Contains(string(text[:n]), "200 OK")
	}
	first, second := dial(), dial()
	if !answered(first) || !answered(second) {
		t.Fatal("no answer below the limit")
	}
	if answered(dial()) {
		t.Error("an answer above the limit")
	}
	_ = first.Close()
	for deadline := time.Now().Add(10 * time.Second); !answered(dial()); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no answer after a place was left")
		}
	}
}

// TestShownAddress: what is printed can be opened.
func TestShownAddress(t *testing.T) {
	at := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 8470} }
	for ip, want := range map[string]string{"127.0.0.1": "127.0.0.1:8470", "::1": "[::1]:8470", "10.0.0.7": "10.0.0.7:8470"} {
		if got := shownAddress(at(ip), ""); got != want {
			t.Errorf("%s: %s", ip, got)
		}
	}
	for _, ip := range []string{"0.0.0.0", "::"} {
		if got := shownAddress(at(ip), "0.0.0.0:8470"); strings.Contains(got, "[::]") || !strings.HasSuffix(got, ":8470") || got == ":8470" {
			t.Errorf("%s: %s", ip, got)
		}
	}
}
