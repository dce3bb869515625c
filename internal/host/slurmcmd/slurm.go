// Package slurmcmd drives Slurm by its own commands: sbatch, squeue, scontrol, sinfo, scancel and, where there is one,
// sacct. No shell is between, formats are named, and variables that change what these commands do are left out. What
// they print is read by text/slurmout. It keeps nothing.
//
//	c := slurm.Commands{Env: os.Environ(), Patience: 10 * time.Second}
//	id, err := c.Submit(ctx, "/home/alice/job.sh")
package slurmcmd

import (
	"context"
	"errors"
	"fmt"
	"gpuard/internal/host/program"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Commands are those of Slurm, as this user calls them.
type Commands struct {
	// The environment, of which only what Slurm's commands need is handed on.
	Env      []string
	Patience time.Duration // for each call
}

// MissingError says that Slurm's commands are not installed here.
type MissingError struct{ Command string }

// Error names the command, and what to do.
func (m *MissingError) Error() string {
	return "cannot find " + m.Command + ", a command of Slurm: log in to a machine of the cluster, or add its folder to PATH (module load slurm)"
}

// SilentError says that a command of Slurm did not get an answer.
type SilentError struct{ Text string }

// Error says which, and why.
func (s *SilentError) Error() string { return s.Text }

// RefusedError says what Slurm does not want to do, in its own words.
type RefusedError struct{ Text string }

// Error is what Slurm said.
func (r *RefusedError) Error() string { return r.Text }

// maxOutputSize is the most that a command may print, in bytes: a line of scontrol for each of 10,000 nodes.
const maxOutputSize = 32 << 20

// runCommand calls one command and returns what it printed. In errs are its words whether it failed or not.
func (c Commands) runCommand(ctx context.Context, name string, args ...string) (out, errs string, err error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", "", &MissingError{name}
	}

	path, err = filepath.Abs(path)
	if err != nil {
		return "", "", fmt.Errorf("cannot call %s: %w", name, err)
	}

	patience := c.Patience
	if end, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(end).Round(100*time.Millisecond))
	}

	text, errs, err := program.Output(ctx, patience, maxOutputSize, commandEnv(c.Env), nil, append([]string{path}, args...)...)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "", errs, &SilentError{fmt.Sprintf("%s has not answered within %s", name, patience)}
	case ctx.Err() != nil:
		return "", errs, ctx.Err()
	case err == nil:
		return string(text), errs, nil
	case errs == "":
		errs = err.Error()
	}

	for _, sign := range []string{"Unable to contact slurm controller", "Connection refused", "Connection timed out", "Socket timed out", "Zero Bytes were transmitted", "fetch config", "Unable to process configuration", "authentication", "munge"} {
		if strings.Contains(strings.ToLower(errs), strings.ToLower(sign)) {
			return "", errs, &SilentError{name + " says: " + joinLines(errs)}
		}
	}

	return "", errs, &RefusedError{joinLines(errs)}
}

// joinLines is a message in one line, without the name of the program.
func joinLines(text string) string {
	var parts []string
	for part := range strings.Lines(text) {
		part = strings.TrimSpace(part)
		for _, lead := range []string{"sbatch: ", "error: ", "scancel: ", "scontrol: ", "squeue: ", "sinfo: ", "sacct: "} {
			part = strings.TrimPrefix(part, lead)
		}
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "; ")
}

// commandEnv leaves out what would change the answers: formats, filters and options of single commands (SQUEUE_FORMAT,
// SBATCH_PARTITION, SLURM_TIME_FORMAT), and the job that this process may be in. What chooses the cluster stays, and
// who pays, which gpuard has no word for.
func commandEnv(env []string) []string {
	kept := []string{"LC_ALL=C"}
	for _, pair := range env {
		name, _, _ := strings.Cut(pair, "=")
		switch {
		case name == "SLURM_CONF", name == "SLURM_CLUSTERS", name == "SLURM_CONF_SERVER", name == "SLURM_JWT":
		case name == "SBATCH_ACCOUNT", name == "SBATCH_QOS", name == "SBATCH_RESERVATION", name == "SBATCH_WCKEY":
		case strings.HasPrefix(name, "LC_"), strings.HasPrefix(name, "SLURM"):
			continue
		case hasAny(name, "SQUEUE_", "SBATCH_", "SINFO_", "SCONTROL_", "SACCT_", "SCANCEL_", "SALLOC_", "SRUN_"):
			continue
		}
		kept = append(kept, pair)
	}
	return kept
}

func hasAny(name string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// Submit hands a script in, and returns the ID of its job, and the cluster where Slurm names it.
func (c Commands) Submit(ctx context.Context, script string) (id, place string, err error) {
	out, _, err := c.runCommand(ctx, "sbatch", "--parsable", script)
	if err != nil {
		return "", "", err
	}

	id, place, _ = strings.Cut(strings.TrimSpace(out), ";")
	if id == "" || strings.Trim(id, "0123456789") != "" {
		return "", "", fmt.Errorf("sbatch printed %q, which is no number of a job", out)
	}

	return id, place, nil
}

// TestSubmit asks whether Slurm would take a script, and returns what it says: when and where the job would start.
func (c Commands) TestSubmit(ctx context.Context, script string) (string, error) {
	_, errs, err := c.runCommand(ctx, "sbatch", "--test-only", script)
	if err != nil {
		return "", err
	}
	return joinLines(errs), nil
}

// ReadQueue is what squeue says in a format of the jobs with these IDs, also of those that have ended a short time ago.
// What it does not know is not in it.
func (c Commands) ReadQueue(ctx context.Context, format string, ids []string) (string, error) {
	// An argument may have 128 KiB.
	const most = 500
	var text strings.Builder
	for len(ids) > 0 {
		some := ids[:min(most, len(ids))]
		ids = ids[len(some):]
		out, _, err := c.runCommand(ctx, "squeue", "--noheader", "--array", "--all", "--states=all", "--jobs="+strings.Join(some, ","), "--format="+format)
		if isUnknownJob(err) {
			continue
		}
		if err != nil {
			return "", err
		}

		text.WriteString(out)
	}

	return text.String(), nil
}

// ReadOwnQueue is what squeue says in a format of all jobs of this user.
func (c Commands) ReadOwnQueue(ctx context.Context, format string) (string, error) {
	out, _, err := c.runCommand(ctx, "squeue", "--noheader", "--all", "--states=all", "--me", "--format="+format)
	return out, err
}

// isUnknownJob reports whether Slurm said that it has no such job.
func isUnknownJob(err error) bool {
	var r *RefusedError
	return errors.As(err, &r) && strings.Contains(r.Text, "Invalid job id")
}

// ReadJob is what scontrol says of a job in one line; "" if it does not know it.
func (c Commands) ReadJob(ctx context.Context, id string) (string, error) {
	out, _, err := c.runCommand(ctx, "scontrol", "--oneliner", "show", "job", id)
	if isUnknownJob(err) {
		return "", nil
	}
	return out, err
}

// ReadAccounting is what the accounting says of jobs, in these fields; "" where there is none.
func (c Commands) ReadAccounting(ctx context.Context, fields string, ids []string) (string, error) {
	out, _, err := c.runCommand(ctx, "sacct", "--noheader", "--parsable2", "--allocations", "--format="+fields, "--jobs="+strings.Join(ids, ","))
	var refused *RefusedError
	var missing *MissingError
	if errors.As(err, &refused) || errors.As(err, &missing) {
		return "", nil
	}

	return out, err
}

// CancelJobs ends jobs. One that has ended is no error.
func (c Commands) CancelJobs(ctx context.Context, ids []string) error {
	_, _, err := c.runCommand(ctx, "scancel", ids...)
	if isUnknownJob(err) {
		return nil
	}
	return err
}

// ControlJob asks scontrol to "hold" or "release" a job.
func (c Commands) ControlJob(ctx context.Context, what, id string) error {
	_, _, err := c.runCommand(ctx, "scontrol", what, id)
	return err
}

// Settings is the configuration of the cluster: lines "Name = value".
func (c Commands) Settings(ctx context.Context) (string, error) {
	out, _, err := c.runCommand(ctx, "scontrol", "show", "config")
	return out, err
}

// Nodes is a line for each node.
func (c Commands) Nodes(ctx context.Context) (string, error) {
	out, _, err := c.runCommand(ctx, "scontrol", "--oneliner", "--details", "show", "node")
	return out, err
}

// ReadPartitions are those that this user may see, in a format of sinfo.
func (c Commands) ReadPartitions(ctx context.Context, format string) (string, error) {
	out, _, err := c.runCommand(ctx, "sinfo", "--noheader", "--format="+format)
	return out, err
}

// SignalName is the name of a signal that Slurm names by its number; "" for none.
func SignalName(number int) string { return unix.SignalName(syscall.Signal(number)) }
