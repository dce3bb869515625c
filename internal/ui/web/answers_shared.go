package web

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"gpuard/internal/app/observe"
)

// How long a reading of a source is waited for: then the answer before it is given. The first one may take longer.
const (
	maxPageWait = 300 * time.Millisecond
	maxJSONWait = 20 * time.Second
)

// sourceReading is the last answer of a source.
type sourceReading struct {
	at     time.Time
	answer any
	err    error
	// Closed when the reading that is under way is over; nil: none is.
	done chan struct{}
}

// answerOf is that of a source, about as old as it may be, and when it came. All who ask at the same time share one
// reading, and a source that takes long keeps nobody waiting for longer than wait: the last answer is given meanwhile.
func (p *pageUpdater) answerOf(ctx context.Context, source observe.Source, wait time.Duration) (any, time.Time, error) {
	p.mu.Lock()
	if p.kept == nil {
		p.kept = map[string]*sourceReading{}
	}

	kept := p.kept[source.Name]
	if kept == nil {
		kept = &sourceReading{err: errors.New("it is being read")}
		p.kept[source.Name] = kept
	}

	if kept.at.IsZero() {
		wait = max(wait, time.Second)
	}

	if kept.done == nil && time.Since(kept.at) >= source.Every {
		kept.done = make(chan struct{})
		go p.readSource(context.WithoutCancel(ctx), source, kept)
	}

	done := kept.done
	p.mu.Unlock()
	if done != nil {
		select {
		case <-done:
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	return kept.answer, kept.at, kept.err
}

// readSource reads a source once.
func (p *pageUpdater) readSource(ctx context.Context, source observe.Source, kept *sourceReading) {
	answer, err := source.Read(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	kept.answer, kept.err, kept.at = answer, err, time.Now()
	close(kept.done)
	kept.done = nil
}

// encodedAnswer is an answer as JSON. All connections that it is sent to share its bytes: a client that does not read costs
// little.
type encodedAnswer struct {
	at   time.Time
	text []byte
}

// replyCached replies with an answer that is made, and encoded, once for all who ask for what there is since at.
func (s *Site) replyCached(w http.ResponseWriter, name string, at time.Time, answer func() any) {
	s.live.mu.Lock()
	text, have := s.live.encoded[name]
	s.live.mu.Unlock()
	if !have || !text.at.Equal(at) {
		made, err := json.MarshalIndent(answer(), "", "  ")
		if err != nil {
			refuseRequest(w, http.StatusInternalServerError, err.Error())
			return
		}

		text = encodedAnswer{at, append(made, '\n')}
		s.live.mu.Lock()
		if s.live.encoded == nil {
			s.live.encoded = map[string]encodedAnswer{}
		}

		s.live.encoded[name] = text
		s.live.mu.Unlock()
	}

	w.Header().Set("Content-Type", "application/json")

	// Who asked may be gone.
	_, _ = w.Write(text.text)
}
