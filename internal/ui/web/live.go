package web

import (
	"context"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"sync"
	"time"
)

// live keeps open pages current. Each section is rendered once per language, whatever the number of pages.
type live struct {
	pages pages

	mu      sync.Mutex
	kept    map[string]*reading // by the name of the source
	encoded map[string]encoded  // by the name of the answer
	lines   map[*line]bool      // open pages
}

// line is one open page. It is cut when it does not take what is sent.
type line struct {
	language, peer string
	out            chan []byte
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
	sent := map[string]map[string]template.HTML{} // by language and section
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		for _, language := range s.live.languages() {
			t, err := s.live.pages.in(language)
			if err != nil {
				return
			}
			if sent[language] == nil {
				sent[language] = map[string]template.HTML{}
			}
			for _, p := range s.sections(ctx, t) {
				if sent[language][p.Name] != p.Body {
					sent[language][p.Name] = p.Body
					s.live.send(language, p)
				}
			}
		}
	}
}

// sections renders all of them.
func (s *Site) sections(ctx context.Context, t *template.Template) []part {
	parts := []part{{Name: "devices", Body: s.devices(t, s.Observer.Now())}}
	for _, source := range s.Sources {
		answer, _, err := s.live.answer(ctx, source, pageWaits)
		parts = append(parts, part{Name: source.Name, Body: s.section(t, source, answer, err)})
	}
	return parts
}

// languages are those of the open pages.
func (l *live) languages() (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := map[string]bool{}
	for page := range l.lines {
		if !known[page.language] {
			known[page.language] = true
			all = append(all, page.language)
		}
	}
	return all
}

// send gives a section to the pages of one language. A page that is too far behind is cut: it comes again by itself.
func (l *live) send(language string, p part) {
	text := message(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	for page := range l.lines {
		if page.language != language {
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

// message is a section as an event (https://html.spec.whatwg.org/multipage/server-sent-events.html).
func message(p part) []byte {
	text, _ := json.Marshal(struct { // two strings
		Part string        `json:"part"`
		HTML template.HTML `json:"html"`
	}{p.Name, p.Body})
	return append(append([]byte("data: "), text...), '\n', '\n')
}

// join makes a page one of those that are kept current. The error says who has too many.
func (l *live) join(language, peer string) (*line, error) {
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
	page := &line{language, peer, make(chan []byte, backlog)}
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
	language := languageOf(r)
	t, err := s.live.pages.in(language)
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	page, err := s.live.join(language, peerOf(s.Observer.Host, r))
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
	for _, p := range s.sections(r.Context(), t) { // what changed since the page was loaded
		if !write(message(p)) {
			return
		}
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
