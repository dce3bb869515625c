package web

import (
	"net"
	"sync"
	"time"
)

const (
	mostConnections = 1500             // open at once; the next ones are closed unanswered
	writeLimit      = 45 * time.Second // for one answer, from its request on; /events has a limit per message
)

// bounded is a listener with a limit of open connections, and one of those of each peer. One above it is closed, so that
// the others go on: if it waited, a client that holds many would keep everybody else out without a word.
type bounded struct {
	net.Listener
	places chan struct{}
	peer   func(net.Conn) string // nil: there is no limit of each
	each   int                   // that limit
	free   int                   // while no more are open, nothing is asked about who opens one

	mu sync.Mutex
	of map[string]int // connections by peer, but for those that came while few were open
}

// Accept returns the next connection that has a place.
func (b *bounded) Accept() (net.Conn, error) {
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

		leave, ok := b.enter(c)
		one := &placed{Conn: c, leave: sync.OnceFunc(func() { leave(); <-b.places })}
		if ok {
			return one, nil
		}
		_ = one.Close()
	}
}

// enter counts a connection for its peer; false: the peer has too many.
func (b *bounded) enter(c net.Conn) (leave func(), ok bool) {
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
		if b.of[who]--; b.of[who] == 0 {
			delete(b.of, who)
		}
	}, true
}

// placed is a connection that has a place until it is closed.
type placed struct {
	net.Conn
	leave func()
}

// Close closes it, and gives its place back.
func (p *placed) Close() error {
	defer p.leave()
	return p.Conn.Close()
}
