package projectcmd

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
	"gpuard/internal/ui/cli"
)

// Screen shows the output and the events of instances, line by line. One goroutine writes, so that a reader that
// stopped reading does not prevent the end of the services.
type Screen struct {
	cli.Printer
	p *cli.Program
	// Gets SIGPIPE if the reader is gone.
	signals chan<- os.Signal
	logs    *services.Logs
	stop    context.CancelFunc
	ended   chan struct{}

	mu   sync.Mutex
	told []event
	// Instances to follow from now on.
	rows []services.Row
	// All instances that are followed.
	known   []string
	closing bool
}

// newScreen shows output that is written after this call.
func newScreen(p *cli.Program, folder *services.Folder, before *services.View, signals chan<- os.Signal) *Screen {
	logs := services.NewLogs()
	logs.SkipExisting(folder, before)
	out := p.NewPrinter()
	out.Brief = true

	return StartScreen(p, logs, out, signals)
}

// StartScreen starts a screen for logs and takes ownership of them.
func StartScreen(p *cli.Program, logs *services.Logs, out cli.Printer, signals chan<- os.Signal) *Screen {
	ctx, stop := context.WithCancel(context.Background())
	s := &Screen{p: p, signals: signals, logs: logs, stop: stop, ended: make(chan struct{}), Printer: out, known: slices.Clone(out.Names)}
	go s.runScreen(ctx)

	return s
}

// Leave gives the terminal back.
func (s *Screen) Leave() { s.stop() }

// Follow adds the instances that are not followed yet.
func (s *Screen) Follow(view *services.View, which func(*services.Row) bool) {
	s.applyChange(func() {
		for i := range view.Rows {
			row := &view.Rows[i]
			if which(row) && row.Log != "" && !slices.Contains(s.known, row.Name) {
				s.known, s.rows = append(s.known, row.Name), append(s.rows, *row)
			}
		}
	})
}

// showEvents shows events. The end of an instance comes after its output.
func (s *Screen) showEvents(told []event) {
	if len(told) > 0 {
		s.applyChange(func() { s.told = append(s.told, told...) })
	}
}

// showLine shows a line of gpuard itself.
func (s *Screen) showLine(text string) { s.showEvents([]event{{text: text}}) }

// Flush returns when everything is shown, or at a signal: the reader may have stopped reading. A reader that is gone,
// which every write tells again (SIGPIPE), keeps nothing waiting.
func (s *Screen) Flush(signals <-chan os.Signal) {
	s.applyChange(func() { s.closing = true })
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

func (s *Screen) applyChange(how func()) {
	s.mu.Lock()
	how()
	s.mu.Unlock()
	s.logs.Refresh()
}

func (s *Screen) runScreen(ctx context.Context) {
	defer close(s.ended)
	defer s.logs.Close()

	for {
		s.mu.Lock()
		told, rows, closing := s.told, s.rows, s.closing
		s.told, s.rows = nil, nil
		s.mu.Unlock()

		for i := range rows {
			s.logs.Add(rows[i], services.AllLines)
			s.Name(rows[i].Name)
		}

		s.printEvents(told, false)
		s.showNewLines(ctx)
		s.printEvents(told, true)
		if closing {
			for line, ok := s.logs.UnendedLine(); ok; line, ok = s.logs.UnendedLine() {
				s.printLine(line)
			}
			return
		}

		if s.logs.Wait(ctx) != nil {
			return
		}
	}
}

// showNewLines shows the lines that exist now, for at most 100 ms: an instance that writes all the time must not delay
// events.
func (s *Screen) showNewLines(ctx context.Context) {
	for end := time.Now().Add(100 * time.Millisecond); ctx.Err() == nil && time.Now().Before(end); {
		line, ok := s.logs.Now()
		if !ok {
			return
		}
		s.printLine(line)
	}
	s.logs.Refresh()
}

func (s *Screen) printEvents(told []event, over bool) {
	for _, h := range told {
		if h.over == over {
			fmt.Fprintln(s.p.Err, strings.Join(strings.Fields("gpuard: "+h.name+" "+s.p.Host.Localize(h.text)), " "))
		}
	}
}

// printLine shows one line. If the reader is gone it discards all further output and sends SIGPIPE.
func (s *Screen) printLine(line services.LogLine) {
	if err := s.Print(line); errors.Is(err, syscall.EPIPE) {
		s.Out = io.Discard
		select {
		case s.signals <- syscall.SIGPIPE:
		default:
		}
	}
}
