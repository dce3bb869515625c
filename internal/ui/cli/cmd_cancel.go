package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gpuard/internal/app/leases"
	"gpuard/internal/app/queue"
	"gpuard/internal/app/services"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prose"
	record "gpuard/internal/core/runs"
)

// cancelGrace is how long the command of a lease has to end before it is killed.
const cancelGrace = 10 * time.Second

func (p *Program) cancel() *cobra.Command {
	o := &projectFlags{}
	cmd := &cobra.Command{
		Use:   "cancel NAME...",
		Short: "Stop a run, a running or waiting job, or a service",
		Long: `Ends what gpuard has started, by the name that it has: the number of a job, also
one that waits; the lease of a run, as gpuard status shows it; or a service of
the gpuard.yaml here. It is asked to end, and killed after its grace (10 s).
Of jobs either all are cancelled or none; of a range, such as 17-36, it is those
that can be. A process that gpuard did not start: gpuard evict.`,
		Example: `  gpuard cancel 17                         a job of your queue
  gpuard cancel 20-39
  gpuard cancel k3f9                       the command of that lease
  gpuard cancel train                      a service, as gpuard down does`,
		ValidArgsFunction: p.completeCancel,
		RunE: func(cmd *cobra.Command, args []string) error {
			return report(func() error { return p.cancelAll(cmd.Context(), o, args) })
		},
	}
	return cmd
}

// completeCancel offers the jobs that have not ended, and the leases of the caller.
func (p *Program) completeCancel(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	jobs, how := p.completeJobs(cmd, args, typed)
	ctx, stop := context.WithTimeout(cmd.Context(), completeWithin)
	defer stop()
	return append(jobs, leases.OwnLeases(ctx, p.Host)...), how
}

// cancelAll ends jobs, which have numbers, then leases and services.
func (p *Program) cancelAll(ctx context.Context, o *projectFlags, args []string) error {
	if len(args) == 0 {
		return usagef("cannot tell what to cancel: name a job, such as 17, a lease, such as k3f9, or a service; see gpuard queue, gpuard status and gpuard ps")
	}
	var jobs, named []string
	var held []job.Lease
	for _, word := range args {
		if strings.Trim(word, "0123456789-,") == "" {
			jobs = append(jobs, word)
			continue
		}
		l, found, err := leases.Find(ctx, p.Host, word)
		switch {
		case err != nil:
			return err
		case found:
			held = append(held, l)
		default:
			named = append(named, word)
		}
	}
	if err := p.checkServices(ctx, o, named); err != nil {
		return err
	}
	if len(jobs) > 0 {
		if err := p.askJobs(ctx, jobs, record.Cancel, "cancelled"); err != nil {
			return err
		}
	}
	for _, l := range held {
		if err := p.cancelLease(ctx, l); err != nil {
			return err
		}
	}
	if len(named) > 0 {
		return p.downWith(ctx, o, named, false)
	}
	return nil
}

// checkServices refuses names that are none of a service either, before anything is ended.
func (p *Program) checkServices(ctx context.Context, o *projectFlags, names []string) error {
	if len(names) == 0 {
		return nil
	}
	_, view, err := p.found(ctx, o.file)
	if err == nil {
		_, err = named(view, names)
	}
	if err != nil {
		return usagef("cannot cancel %q: there is no job, lease or service of that name here; see gpuard queue, gpuard status and gpuard ps", names[0])
	}
	return nil
}

// cancelLease ends the command of a lease. A job of the queue, or a service, would be started again: these are ended as such.
func (p *Program) cancelLease(ctx context.Context, l job.Lease) error {
	if n, err := p.jobOfProcess(l.PID); err != nil || n > 0 {
		return errors.Join(err, p.askJobs(ctx, []string{fmt.Sprint(n)}, record.Cancel, "cancelled"))
	}
	if services.HasProcess(p.Host, l.PID) {
		return usagef("cannot cancel %s: it is of service %s, which would be started again; end the service, in its folder: gpuard down", l.ID, prose.Clean(l.Command))
	}
	l, err := leases.Cancel(ctx, p.Host, l.ID, cancelGrace)
	if err != nil {
		return err
	}
	what := "its command"
	if l.IsReservation() {
		what = "the reservation"
	}
	_, err = fmt.Fprintf(p.Out, "%s: %s has ended\n", l.ID, what)
	return err
}

// jobOfProcess is the number of the job of the queue that this process is the command of; 0 none.
func (p *Program) jobOfProcess(pid int) (int, error) {
	q, err := queue.Open(p.Host, false)
	if err != nil || q == nil {
		return 0, err
	}
	defer q.Close()
	return q.JobOf(pid)
}
