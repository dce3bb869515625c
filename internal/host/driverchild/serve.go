package driverchild

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	"gpuard/internal/host/ownproc"
)

// server is the child.
type server struct {
	read   Reader
	events Events
	mu     sync.Mutex
	out    *json.Encoder
	listen map[int]context.CancelFunc
}

// ServeRequests is the life of the child: it does what it is asked to on in, and answers on out, until in ends. It
// keeps none of the files that its parent passes on to a command: a call that hangs would keep them, and with them a
// lease.
func ServeRequests(in io.Reader, out io.Writer, read Reader, events Events) error {
	if err := closeInherited(); err != nil {
		return err
	}
	s := &server{read: read, events: events, out: json.NewEncoder(out), listen: map[int]context.CancelFunc{}}
	requests := json.NewDecoder(in)
	for {
		var r childRequest
		if err := requests.Decode(&r); err != nil {
			return nil //nolint:nilerr // the parent has ended, and with it all that there was to do
		}
		s.startRequest(r)
	}
}

// closeInherited closes what came with the start of this program, other than the standard streams. Such a file has no
// FD_CLOEXEC, else it were closed by then; what the Go runtime has opened itself has it.
func closeInherited() error {
	open, err := ownproc.OpenDescriptors()
	if err != nil {
		return err
	}

	for _, d := range open {
		if d.FD > 2 && !d.CloseOnExec {
			_ = unix.Close(d.FD)
		}
	}

	return nil
}

// ReportCrash is the whole life of a child whose library has crashed before: it says so.
func ReportCrash(out io.Writer, why *gpu.Unavailable) error {
	if _, err := io.WriteString(out, "\n"); err != nil {
		// What was written when it crashed may have no end.
		return err
	}
	return json.NewEncoder(out).Encode(childAnswer{Unavailable: why})
}

func (s *server) startRequest(r childRequest) {
	switch {
	case r.Stop:
		s.mu.Lock()
		defer s.mu.Unlock()
		if end := s.listen[r.ID]; end != nil {
			end()
		}
	case r.Listen != nil:
		ctx, end := context.WithCancel(context.Background())
		s.mu.Lock()
		s.listen[r.ID] = end
		s.mu.Unlock()
		go func() {
			for e := range s.events(ctx, r.Listen) {
				s.writeAnswer(childAnswer{ID: r.ID, Event: &e})
			}
			s.writeAnswer(childAnswer{ID: r.ID, Over: true})
		}()
	default:
		go func() { s.writeAnswer(s.readMachine(r)) }()
	}
}

func (s *server) readMachine(r childRequest) childAnswer {
	ctx := context.Background()
	if r.Limit != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *r.Limit)
		defer cancel()
	}

	a := childAnswer{ID: r.ID}
	m, err := s.read(ctx, r.Query)
	switch {
	case errors.As(err, &a.Unavailable):
	case err != nil:
		a.Error = err.Error()
	default:
		a.Machine = &m
	}

	return a
}

// writeAnswer writes a line. Without a parent there is nothing to say, and the requests end, too.
func (s *server) writeAnswer(a childAnswer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.out.Encode(a)
}
