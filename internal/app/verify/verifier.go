package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/proof"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/launch"
)

// Flag is the first argument of a verifier.
const Flag = "__verify"

// Orders say what a verifier looks at.
type Orders struct {
	PID     int        `json:"pid"` // of the command
	Lease   string     `json:"lease"`
	Devices []gpu.UUID `json:"devices"`
	Oversight
}

// Oversight is how a run is verified while it runs.
type Oversight struct {
	Patience time.Duration
	// End a job that certainly is not where it should be.
	Stop bool
	// Say it as one JSON object on a line.
	JSON bool
}

// RunVerifier is the life of a verifier: it watches one run, says one line on what was its standard error, and ends.
// fds are the numbers of a pidfd and of that stream.
func RunVerifier(ctx context.Context, host *machine.Host, fds []string, o Orders) error {
	pidfd, stream, err := launch.InheritWatcherFDs(fds[0], fds[1])
	if err != nil {
		return err
	}

	defer pidfd.Close()  //nolint:errcheck // it ends with us
	defer stream.Close() //nolint:errcheck // no one could read an error here
	host.Say = func(string) {}
	s, _ := host.Proc.Stat(o.PID)
	w := newWatch(host, o.PID, s.Start, o.Patience, launch.ExitChannel(pidfd), func() (string, bool) { return launch.EndSignalOf(pidfd) })
	w.lease = &job.Lease{ID: o.Lease, UID: uint32(os.Geteuid()), Devices: o.Devices}
	w.acts = o.Stop
	w.awaitCommand()
	v := w.watchUntilClear(ctx)
	v.Stopped = v.Verdict.Bad() && o.Stop && launch.SendSignal(pidfd, syscall.SIGTERM) == nil

	return v.Print(stream, o.JSON)
}

// Print writes the result to stream, as one line of text or as JSON.
func (v *Verification) Print(stream io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(stream).Encode(v)
	}
	_, err := fmt.Fprintln(stream, v.remarkText())
	return err
}

// remarkText is the line for the user who started the run.
func (v *Verification) remarkText() string {
	switch {
	case v.Verdict == proof.Proven:
		return "gpuard: " + v.Line()
	case !v.Verdict.Bad():
		return "gpuard: " + v.Line() + "; " + v.Remedy
	}
	line := "gpuard: WARNING: " + v.Line() + "; " + v.Remedy
	if v.Stopped {
		line += "; told it to end (SIGTERM), as --verify asked"
	}

	return line
}

// awaitCommand waits until the command has taken gpuard's place: only then its environment is the job's.
func (w *treeWatch) awaitCommand() {
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		env, err := w.host.Proc.Environ(w.facts.PID)
		if id, _ := visible.Env(env).Lookup("GPUARD_LEASE"); err == nil && id == w.lease.ID {
			w.env, w.facts.Command = env, commandOf(w.host, w.facts.PID)
			return
		}
		if !w.host.Proc.IsAlive(w.facts.PID, w.start) {
			break
		}
	}
	w.facts.Unread = fmt.Sprintf("the environment of process %d could not be read", w.facts.PID)
}
