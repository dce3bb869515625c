package web

import (
	"context"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"sync"
	"time"
)

// live keeps open pages current. What pages of one sight show is rendered once, whatever their number.
type live struct {
	pages pages

	mu      sync.Mutex
	kept    map[string]*reading  // by the name of the source
	encoded map[string]encoded   // by the name of the answer
	lines   map[*line]bool       // open pages
	laid    map[int]*layout      // by the days
	found   map[string]time.Time // of findings: when each was seen first
}

// line is one open page. It is cut when it does not take what is sent.
type line struct {
	sight
	peer string
	out  chan []byte
}

const (
	mostPages = 1000             // open at once
	backlog   = 16               // messages that a page may be behind
	patience  = 10 * time.Second // for one message to be taken by the other side
	beat      = 15 * time.Second // between two signs of life, so that a page whose owner is gone is noticed
)

// Run keeps pages current until ctx ends.
func (s *Site) Run(ctx context.Context) {
	changed, leave := s.Observer.Listen()
	defer leave()
	sent := map[sight]map[string]template.HTML{} // by section
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		open := s.live.sights()
		maps.DeleteFunc(sent, func(v sight, _ map[string]template.HTML) bool { return !open[v] })
		for v := range open {
			parts, err := s.sections(ctx, v)
			if err != nil {
				return
			}
			if sent[v] == nil {
				sent[v] = map[string]template.HTML{}
			}
			var fresh []part
			for _, p := range parts {
				if sent[v][p.Name] != p.Body {
					sent[v][p.Name] = p.Body
					fresh = append(fresh, p)
				}
			}
			if len(fresh) > 0 {
				s.live.send(v, fresh)
			}
		}
	}
}

// sights are those of the open pages.
func (l *live) sights() map[sight]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	open := map[sight]bool{}
	for page := range l.lines {
		open[page.sight] = true
	}
	return open
}

// send gives sections to the pages of one sight. A page that is too far behind is cut: it comes again by itself.
func (l *live) send(v sight, parts []part) {
	text := message(parts)
	l.mu.Lock()
	defer l.mu.Unlock()
	for page := range l.lines {
		if page.sight != v {
			continue
		}
		select {
		case page.out <- text:
		default:
			delete(l.lines, page)
			close(page.out)
		}
	}
}

// message is sections as an event (https://html.spec.whatwg.org/multipage/server-sent-events.html).
func message(parts []part) []byte {
	text, _ := json.Marshal(parts) // strings
	return append(append([]byte("data: "), text...), '\n', '\n')
}

// join makes a page one of those that are kept current. The error says who has too many.
func (l *live) join(v sight, peer string) (*line, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) >= mostPages {
		return nil, fmt.Errorf("cannot keep more than %d pages current: this one stays as it is", mostPages)
	}
	open := 0
	for page := range l.lines {
		if page.peer == peer {
			open++
		}
	}
	if open >= mostPagesOfPeer {
		return nil, fmt.Errorf("cannot keep more than %d pages of one peer current, and %s has so many open: close some; this one stays as it is", mostPagesOfPeer, peer)
	}
	if l.lines == nil {
		l.lines = map[*line]bool{}
	}
	page := &line{v, peer, make(chan []byte, backlog)}
	l.lines[page] = true
	return page, nil
}

func (l *live) leave(page *line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.lines, page)
}

// events sends the sections, and then each that changes.
func (s *Site) events(w http.ResponseWriter, r *http.Request) {
	v := s.sightOf(r)
	page, err := s.live.join(v, peerOf(s.Observer.Host, r))
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	defer s.live.leave(page)
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	write := func(text []byte) bool {
		_ = out.SetWriteDeadline(time.Now().Add(patience))
		_, err := w.Write(text)
		return err == nil && out.Flush() == nil
	}
	parts, err := s.sections(r.Context(), v) // what changed since the page was loaded
	if err != nil || !write(message(parts)) {
		return
	}
	alive := time.NewTicker(beat)
	defer alive.Stop()
	for {
		select {
		case text, more := <-page.out:
			if !more || !write(text) {
				return
			}
		case <-alive.C:
			if !write([]byte(": alive\n\n")) {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}
