package observe

import (
	"context"
	"time"

	"gpuard/internal/app/machine"
)

// Source is something besides the devices that a view shows, such as the queue.
type Source struct {
	Name  string        // of its path: "queue"
	Title string        // in English
	Every time.Duration // between two readings while somebody looks
	Read  func(ctx context.Context) (any, error)

	// Public is a copy of an answer without what only its owner may know; nil: all of it is for everybody.
	Public func(any) any

	Gauges func(any) []Gauge // of an answer, for Prometheus; nil: none
}

// Gauge is one value for Prometheus.
type Gauge struct {
	Name, Help string
	Value      float64
	Labels     []string // names and values in turn
}

// Action is something that a view may be asked for.
type Action struct {
	Name string // "cancel"
	Do   func(ctx context.Context, words []string) error
	Can  func() bool // reports whether it may succeed, as far as that can be told before; nil: for what is the user's own
}

// View is what a command that shows the machine all the time gets from the command line. The functions take the host
// that an Observer reads for.
type View struct {
	Host    *machine.Host
	Sources func(*machine.Host) []Source
	Actions func(*machine.Host) []Action
	Log     func(*machine.Host) LogReader
	Theme   string // colours of a full screen: "auto", "light", "dark" or "mono"
	Version string
}

// LogReader reads the last lines that a job of the queue, by number, or the command of a lease of the caller has written.
type LogReader func(ctx context.Context, name string, last int) (title string, lines []string, err error)

// ServeOptions is what gpuard serve was asked for.
type ServeOptions struct {
	Listen    string   // address and port
	TokenFile string   // "" forbids actions
	Token     string   // in that file
	Names     []string // by which this machine is asked
	Cert, Key string   // files for TLS; "" for none
	Jobs      string   // folder for files with the leases of each device, for dcgm-exporter; "" for none
}
