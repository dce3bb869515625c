package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/proof"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/launch"
)

// Flag is the first argument of a verifier.
const Flag = "__verify"

// RunVerifier is the life of a verifier: it watches one run, says one line on what was its standard error, and ends.
// args are pidfd, stream, PID, lease, its devices, patience, whether to stop a bad job, and whether to say it as JSON.
func RunVerifier(ctx context.Context, host *machine.Host, args []string) error {
	if len(args) != 8 {
		return exit.Usagef("cannot verify by hand: gpuard run --verify starts its verifier itself")
	}

	pidfd, stream, err := launch.InheritWatcherFDs(args[0], args[1])
	if err != nil {
		return err
	}

	defer pidfd.Close()  //nolint:errcheck // it ends with us
	defer stream.Close() //nolint:errcheck // no one could read an error here
	pid, err1 := strconv.Atoi(args[2])
	patience, err2 := time.ParseDuration(args[5])
	stop, err3 := strconv.ParseBool(args[6])
	asJSON, err4 := strconv.ParseBool(args[7])
	if errors.Join(err1, err2, err3, err4) != nil {
		return exit.Usagef("cannot verify by hand: gpuard run --verify starts its verifier itself")
	}

	host.Say = func(string) {}
	s, _ := host.Proc.Stat(pid)
	w := newWatch(host, pid, s.Start, patience, launch.ExitChannel(pidfd), func() (string, bool) { return launch.EndSignalOf(pidfd) })
	w.lease = &job.Lease{ID: args[3], UID: uint32(os.Geteuid())}

	for id := range strings.SplitSeq(args[4], ",") {
		w.lease.Devices = append(w.lease.Devices, gpu.UUID(id))
	}

	w.acts = stop
	w.awaitCommand()
	v := w.watchUntilClear(ctx)
	v.Stopped = v.Verdict.Bad() && stop && launch.SendSignal(pidfd, syscall.SIGTERM) == nil

	return v.Print(stream, asJSON)
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
