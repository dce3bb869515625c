package web

import (
	"net"
	"sync"
	"time"
)

const (
	// Open at once; the next ones are closed unanswered.
	maxConnections = 1500
	// For one answer, from its request on; /events has a limit per message.
	writeTimeout = 45 * time.Second
)

// limitedListener is a listener with a limit of open connections, and one of those of each peer. One above it is closed, so that
// the others go on: if it waited, a client that holds many would keep everybody else out without a word.
type limitedListener struct {
	net.Listener
	places chan struct{}
	// nil: there is no limit of each.
	peer func(net.Conn) string
	each int // that limit
	// While no more are open, nothing is asked about who opens one.
	free int

	mu sync.Mutex
	// Connections by peer, but for those that came while few were open.
	of map[string]int
}

// Accept returns the next connection that has a place.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}

		select {
		case l.places <- struct{}{}:
		default:
			_ = c.Close()
			continue
		}

		leave, ok := l.countPeer(c)
		one := &limitedConn{Conn: c, leave: sync.OnceFunc(func() { leave(); <-l.places })}
		if ok {
			return one, nil
		}

		_ = one.Close()
	}
}

// countPeer counts a connection for its peer; false: the peer has too many.
func (l *limitedListener) countPeer(c net.Conn) (leave func(), ok bool) {
	if l.peer == nil || len(l.places) <= l.free {
		return func() {}, true
	}

	who := l.peer(c)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of[who] >= l.each {
		return func() {}, false
	}

	if l.of == nil {
		l.of = map[string]int{}
	}

	l.of[who]++

	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.of[who]--
		if l.of[who] == 0 {
			delete(l.of, who)
		}
	}, true
}

// limitedConn is a connection that has a place until it is closed.
type limitedConn struct {
	net.Conn
	leave func()
}

// Close closes it, and gives its place back.
func (l *limitedConn) Close() error {
	defer l.leave()
	return l.Conn.Close()
}
