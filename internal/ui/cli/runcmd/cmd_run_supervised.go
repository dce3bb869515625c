package runcmd

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/app/run"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prose"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/console"
	"gpuard/internal/ui/jobflags"
	"gpuard/internal/ui/planview"
)

// runEndAnswer is the JSON line at the end of a supervised run.
type runEndAnswer struct {
	// "gpuard.run-end/1".
	Schema string `json:"schema"`
	// The lease of the last start; "" without a device.
	Lease   string      `json:"lease"`
	Devices []job.Given `json:"devices"` // of the last start
	// How often the command was started.
	Starts int `json:"starts"`
	// Run time, the sum of all starts.
	Seconds float64 `json:"seconds"`
	// Its exit code; -1 when a signal ended it.
	Code int `json:"exit"`
	// That ended it: "SIGKILL".
	Signal   string `json:"signal,omitempty"`
	TimedOut bool   `json:"timed_out"` // --timeout ended it
	// Largest host memory of one of its processes; null unknown, as when it is less than that of gpuard.
	Peak *gpu.Bytes `json:"host_memory_peak"`
	// Processes that still hold the lease.
	HeldBy []job.Blocker `json:"held_by"`
	// Remarks since the last start.
	Notes []string `json:"notes"`
}

// superviseRun runs the command as a child of gpuard. It returns only if the command could not be started.
func superviseRun(p *cli.Program, cmd *cobra.Command, l *run.Launch, care *job.Care, o *jobflags.RunOptions) error {
	r, end, err := l.Supervise(cmd.Context(), *care, func(l *run.Launch, pid int) error { return announceRun(p, l, pid, o) })
	if err != nil {
		return err
	}

	l.WriteLog(endText(r))

	switch {
	case o.JSON:
		err = cli.LineJSON(p.Err, runEndAnswer{"gpuard.run-end/1", r.Lease, append([]job.Given{}, r.Devices...), r.Starts,
			float64(r.Ran.Milliseconds()) / 1000, r.Code, r.Signal, r.TimedOut, r.Peak, append([]job.Blocker{}, r.HeldBy...), append([]string{}, p.Remarks...)})
	case !o.Quiet:
		err = p.PrintMessage(endText(r))
		if text := remainingText(r); text != "" {
			p.Host.Say(text)
		}
	}

	// The command's own end counts.
	_ = err
	end()

	return nil
}

// announceRun reports the devices: as text before the start, or as JSON after it, with the PID of the command.
func announceRun(p *cli.Program, l *run.Launch, pid int, o *jobflags.RunOptions) error {
	switch {
	case o.JSON && pid != 0:
		l.Plan.Notes = append(p.Remarks, l.Plan.Notes...)
		p.Remarks = nil
		return cli.LineJSON(p.Err, runAnswer{"gpuard.run/1", l.Lease, pid, planview.WithLists(l.Plan), l.RankPlan()})
	case !o.JSON && !o.Quiet && pid == 0:
		for _, n := range l.Plan.Notes {
			_ = p.PrintMessage(n)
		}
		if line := l.PlanLine(); line != "" {
			_ = p.PrintMessage(line)
		}
	}
	return nil
}

// endText is the last line of a run: devices, run time, exit code or signal, and peak host memory.
func endText(r *job.Result) string {
	where := []string{}
	for _, d := range r.Devices {
		where = append(where, d.String())
	}

	if len(where) == 0 {
		where = []string{"no GPU"}
	}

	how := fmt.Sprintf("exit %d", r.Code)
	if r.Signal != "" {
		how = r.Signal
	}

	if r.TimedOut {
		how = "exit 124, ended by --timeout; the command itself: " + how
	}

	parts := []string{strings.Join(where, ", "), "ran " + console.ElapsedText(r.Ran), how}
	if r.Starts > 1 {
		parts = append(parts, fmt.Sprintf("%d starts", r.Starts))
	}

	if r.Peak != nil {
		parts = append(parts, fmt.Sprintf("at most %s of host memory in one process", *r.Peak))
	}

	return strings.Join(parts, "; ")
}

// remainingText names the processes that hold the lease after the command ended; "" if there are none.
func remainingText(r *job.Result) string {
	if len(r.HeldBy) == 0 {
		return ""
	}

	var names []string
	for _, b := range r.HeldBy[:min(len(r.HeldBy), 4)] {
		name := fmt.Sprintf("PID %d (%s)", b.PID, prose.Clean(b.Command))
		if b.Stopped {
			name = fmt.Sprintf("PID %d (%s, stopped: kill -CONT %[1]d)", b.PID, prose.Clean(b.Command))
		}
		names = append(names, name)
	}

	if more := len(r.HeldBy) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}

	return fmt.Sprintf("processes of the command still hold lease %s: %s; end them, or type: gpuard release %s", r.Lease, strings.Join(names, ", "), r.Lease)
}
