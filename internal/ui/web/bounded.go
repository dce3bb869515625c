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

// bounded is a listener with a limit of open connections. One above it is closed, so that the others go on: if it
// waited, a client that holds many would keep everybody else out without a word.
type bounded struct {
	net.Listener
	places chan struct{}
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
			return &placed{Conn: c, leave: sync.OnceFunc(func() { <-b.places })}, nil
		default:
			_ = c.Close()
		}
	}
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
