package holder

import (
	"encoding/json"
	"fmt"
	"os"

	"gpuard/internal/app/engine"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/proc"
)

// Orders are what a holder is told about its lease, beside the process that it watches and the lock that it keeps.
type Orders struct {
	Folder string `json:"-"` // the state folder
	Lease  string `json:"-"` // its ID
	// The PID of the gpuard that starts the holder. Where it supervises the command it has the lock too.
	Starter int `json:"starter"`
	// Nanoseconds since boot: when the time of the lease is over; 0 never.
	Until int64 `json:"until,omitempty"`
	// Ends the command in time while it lives, so that the holder need not; nil: none.
	InTime *Process `json:"in_time,omitempty"`
	// The lease outlives its command, an engine's client, until these have ended.
	Containers *engine.Watch `json:"containers,omitempty"`
	// The lease waits for a next start of its command.
	NextStart *NextStart `json:"next_start,omitempty"`
}

// Process names one process of this boot.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // ticks since boot
}

// NextStart is what starts a command again that has ended.
type NextStart struct {
	// File: while it is there a next start may come. Bytes, because its path need not be UTF-8.
	While  []byte  `json:"while"`
	Parent Process `json:"parent"`
}

// Words are the orders on the command line of a holder. The folder and the lease have words of their own: by these it
// is found by who asks which process keeps a lease.
func (o *Orders) Words() ([]string, error) {
	text, err := json.Marshal(o)
	return []string{o.Folder, o.Lease, string(text)}, err
}

// openPidfd gives a descriptor that means this very process.
func (p Process) openPidfd() (*os.File, error) {
	pidfd, err := launch.OpenPidfd(p.PID)
	if err != nil {
		return nil, err
	}
	if !p.isAlive() {
		_ = pidfd.Close()
		return nil, fmt.Errorf("process %d is another one", p.PID)
	}

	return pidfd, nil
}

// isAlive reports whether the process has not ended.
func (p Process) isAlive() bool { return proc.New("/proc").IsAlive(p.PID, p.Start) }
