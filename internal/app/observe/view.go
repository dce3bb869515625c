package observe

import (
	"context"
	"time"

	"gpuard/internal/app/machine"
)

// Source is something besides the devices that a view shows, such as the queue.
type Source struct {
	// The name in its path: "queue".
	Name  string
	Title string // in English
	// The time between two readings while somebody looks.
	Every time.Duration
	Read  func(ctx context.Context) (any, error)

	// Public is a copy of an answer without what only its owner may know; nil: all of it is for everybody.
	Public func(any) any

	// The gauges of an answer for Prometheus; nil: none.
	Gauges func(any) []Gauge
}

// Gauge is one value for Prometheus.
type Gauge struct {
	Name, Help string
	Value      float64
	// Names and values in turn.
	Labels []string
}

// Action is something that a view may be asked for.
type Action struct {
	Name string // "cancel"
	Do   func(ctx context.Context, words []string) error
	// Reports whether it may succeed, as far as that can be told before; nil: for what is the user's own.
	Can func() bool
}

// View is what a command that shows the machine all the time gets from the command line. The functions take the host
// that an Observer reads for.
type View struct {
	Host    *machine.Host
	Sources func(*machine.Host) []Source
	Actions func(*machine.Host) []Action
	Log     func(*machine.Host) LogReader
	// Colours of a full screen: "auto", "light", "dark" or "mono".
	Theme   string
	Version string
}

// LogReader reads the last lines that a job of the queue, by number, or the command of a lease of the caller has
// written.
type LogReader func(ctx context.Context, name string, last int) (title string, lines []string, err error)

// ServeOptions is what gpuard serve was asked for.
type ServeOptions struct {
	Listen    string // address and port
	TokenFile string // "" forbids actions
	Token     string // in that file
	// The names by which this machine is asked.
	Names []string
	// Files for TLS; "" for none.
	Cert, Key string
	// Folder for files with the leases of each device, for dcgm-exporter; "" for none.
	Jobs string
}
