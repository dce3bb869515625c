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

// pageUpdater keeps open pages current. What pages of one sight show is rendered once, whatever their number.
type pageUpdater struct {
	pages pageTemplates

	mu sync.Mutex
	// The last reading of each source, by its name.
	kept map[string]*sourceReading
	// The encoded answers, by their names.
	encoded map[string]encodedAnswer
	lines   map[*openPage]bool // open pages
	laid    map[int]*layout    // by the days
	// When each finding was seen first.
	found map[string]time.Time
}

// openPage is one open page. It is cut when it does not take what is sent.
type openPage struct {
	pageView
	peer string
	out  chan []byte
}

const (
	maxPages = 1000 // open at once
	// Messages that a page may be behind.
	maxBacklog = 16
	// For one message to be taken by the other side.
	messageTimeout = 10 * time.Second
	// Between two signs of life, so that a page whose owner is gone is noticed.
	aliveInterval = 15 * time.Second
)

// Run keeps pages current until ctx ends.
func (s *Site) Run(ctx context.Context) {
	changed, leave := s.Observer.Listen()
	defer leave()
	sent := sent{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		err := s.update(ctx, sent)
		if err != nil {
			return
		}
	}
}

// sent is what the open pages show, by what they were asked to show and by section.
type sent map[pageView]map[string]template.HTML

// update sends each open page what has changed on it.
func (s *Site) update(ctx context.Context, sent sent) error {
	open := s.live.openSights()
	maps.DeleteFunc(sent, func(v pageView, _ map[string]template.HTML) bool { return !open[v] })

	for v := range open {
		parts, err := s.renderSections(ctx, v)
		if err != nil {
			return err
		}

		if sent[v] == nil {
			sent[v] = map[string]template.HTML{}
		}

		var fresh []pagePart

		for _, p := range parts {
			if sent[v][p.Name] != p.Body {
				sent[v][p.Name] = p.Body
				fresh = append(fresh, p)
			}
		}

		if len(fresh) > 0 {
			s.live.sendParts(v, fresh)
		}
	}

	return nil
}

// openSights are those of the open pages.
func (p *pageUpdater) openSights() map[pageView]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	open := map[pageView]bool{}
	for page := range p.lines {
		open[page.pageView] = true
	}

	return open
}

// sendParts gives sections to the pages of one sight. A page that is too far behind is cut: it comes again by itself.
func (p *pageUpdater) sendParts(v pageView, parts []pagePart) {
	text := eventMessage(parts)
	p.mu.Lock()
	defer p.mu.Unlock()

	for page := range p.lines {
		if page.pageView != v {
			continue
		}
		select {
		case page.out <- text:
		default:
			delete(p.lines, page)
			close(page.out)
		}
	}
}

// eventMessage is sections as an event (https://html.spec.whatwg.org/multipage/server-sent-events.html).
func eventMessage(parts []pagePart) []byte {
	// Strings.
	text, _ := json.Marshal(parts)
	return append(append([]byte("data: "), text...), '\n', '\n')
}

// addPage makes a page one of those that are kept current. The error says who has too many.
func (p *pageUpdater) addPage(v pageView, peer string) (*openPage, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.lines) >= maxPages {
		return nil, fmt.Errorf("cannot keep more than %d pages current: this one stays as it is", maxPages)
	}

	open := 0
	for page := range p.lines {
		if page.peer == peer {
			open++
		}
	}

	if open >= maxPagesOfPeer {
		return nil, fmt.Errorf("cannot keep more than %d pages of one peer current, and %s has so many open: close some; this one stays as it is", maxPagesOfPeer, peer)
	}

	if p.lines == nil {
		p.lines = map[*openPage]bool{}
	}

	page := &openPage{v, peer, make(chan []byte, maxBacklog)}
	p.lines[page] = true

	return page, nil
}

func (p *pageUpdater) removePage(page *openPage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.lines, page)
}

// serveEvents sends the sections, and then each that changes.
func (s *Site) serveEvents(w http.ResponseWriter, r *http.Request) {
	v := s.sightOf(r)
	page, err := s.live.addPage(v, peerOf(s.Observer.Host, r))
	if err != nil {
		refuseRequest(w, http.StatusServiceUnavailable, err.Error())
		return
	}

	defer s.live.removePage(page)
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	write := func(text []byte) bool {
		_ = out.SetWriteDeadline(time.Now().Add(messageTimeout))
		_, err := w.Write(text)
		return err == nil && out.Flush() == nil
	}

	// What changed since the page was loaded.
	parts, err := s.renderSections(r.Context(), v)
	if err != nil || !write(eventMessage(parts)) {
		return
	}

	alive := time.NewTicker(aliveInterval)
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
