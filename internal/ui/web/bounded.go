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
func (b *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}

		select {
		case b.places <- struct{}{}:
		default:
			_ = c.Close()
			continue
		}

		leave, ok := b.countPeer(c)
		one := &limitedConn{Conn: c, leave: sync.OnceFunc(func() { leave(); <-b.places })}
		if ok {
			return one, nil
		}

		_ = one.Close()
	}
}

// countPeer counts a connection for its peer; false: the peer has too many.
func (b *limitedListener) countPeer(c net.Conn) (leave func(), ok bool) {
	if b.peer == nil || len(b.places) <= b.free {
		return func() {}, true
	}

	who := b.peer(c)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of[who] >= b.each {
		return func() {}, false
	}

	if b.of == nil {
		b.of = map[string]int{}
	}

	b.of[who]++

	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.of[who]--
		if b.of[who] == 0 {
			delete(b.of, who)
		}
	}, true
}

// limitedConn is a connection that has a place until it is closed.
type limitedConn struct {
	net.Conn
	leave func()
}

// Close closes it, and gives its place back.
func (p *limitedConn) Close() error {
	defer p.leave()
	return p.Conn.Close()
}
