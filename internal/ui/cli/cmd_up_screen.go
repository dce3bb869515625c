package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"gpuard/internal/app/services"
)

// screen shows the output and the events of instances, line by line. One goroutine writes, so that a reader that
// stopped reading does not prevent the end of the services.
type screen struct {
	printer
	p       *Program
	signals chan<- os.Signal // gets SIGPIPE if the reader is gone
	logs    *services.Logs
	stop    context.CancelFunc
	ended   chan struct{}

	mu      sync.Mutex
	told    []event
	rows    []services.Row // instances to follow from now on
	known   []string       // all instances that are followed
	closing bool
}

// newScreen shows output that is written after this call.
func (p *Program) newScreen(folder *services.Folder, before *services.View, signals chan<- os.Signal) *screen {
	logs := services.NewLogs()
	logs.Skip(folder, before)
	out := p.newPrinter()
	out.brief = true
	return p.showing(logs, out, signals)
}

// showing starts a screen for logs and takes ownership of them.
func (p *Program) showing(logs *services.Logs, out printer, signals chan<- os.Signal) *screen {
	ctx, stop := context.WithCancel(context.Background())
	s := &screen{p: p, signals: signals, logs: logs, stop: stop, ended: make(chan struct{}), printer: out, known: slices.Clone(out.names)}
	go s.run(ctx)
	return s
}

func (s *screen) leave() { s.stop() }

// follow adds the instances that are not followed yet.
func (s *screen) follow(view *services.View, which func(*services.Row) bool) {
	s.change(func() {
		for i := range view.Rows {
			row := &view.Rows[i]
			if which(row) && row.Log != "" && !slices.Contains(s.known, row.Name) {
				s.known, s.rows = append(s.known, row.Name), append(s.rows, *row)
			}
		}
	})
}

// showEvents shows events. The end of an instance comes after its output.
func (s *screen) showEvents(told []event) {
	if len(told) > 0 {
		s.change(func() { s.told = append(s.told, told...) })
	}
}

// say shows a line of gpuard itself.
func (s *screen) say(text string) { s.showEvents([]event{{text: text}}) }

// flush returns when everything is shown, or at a signal: the reader may have stopped reading. A reader that is gone, which
// every write tells again (SIGPIPE), keeps nothing waiting.
func (s *screen) flush(signals <-chan os.Signal) {
	s.change(func() { s.closing = true })
	for {
		select {
		case <-s.ended:
			return
		case sig := <-signals:
			if sig != syscall.SIGPIPE {
				return
			}
		}
	}
}

func (s *screen) change(how func()) {
	s.mu.Lock()
	how()
	s.mu.Unlock()
	s.logs.Look()
}

func (s *screen) run(ctx context.Context) {
	defer close(s.ended)
	defer s.logs.Close()
	for {
		s.mu.Lock()
		told, rows, closing := s.told, s.rows, s.closing
		s.told, s.rows = nil, nil
		s.mu.Unlock()
		for i := range rows {
			s.logs.Add(rows[i], services.AllLines)
			s.name(rows[i].Name)
		}
		s.printEvents(told, false)
		s.drain(ctx)
		s.printEvents(told, true)
		if closing {
			for line, ok := s.logs.Unended(); ok; line, ok = s.logs.Unended() {
				s.line(line)
			}
			return
		}
		if s.logs.Wait(ctx) != nil {
			return
		}
	}
}

// drain shows the lines that exist now, for at most 100 ms: an instance that writes all the time must not delay events.
func (s *screen) drain(ctx context.Context) {
	for end := time.Now().Add(100 * time.Millisecond); ctx.Err() == nil && time.Now().Before(end); {
		line, ok := s.logs.Now()
		if !ok {
			return
		}
		s.line(line)
	}
	s.logs.Look()
}

func (s *screen) printEvents(told []event, over bool) {
	for _, h := range told {
		if h.over == over {
			fmt.Fprintln(s.p.Err, strings.Join(strings.Fields("gpuard: "+h.name+" "+h.text), " "))
		}
	}
}

// line shows one line. If the reader is gone it discards all further output and sends SIGPIPE.
func (s *screen) line(line services.Line) {
	if err := s.print(line); errors.Is(err, syscall.EPIPE) {
		s.out = io.Discard
		select {
		case s.signals <- syscall.SIGPIPE:
		default:
		}
	}
}
