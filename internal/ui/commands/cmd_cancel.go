package commands

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gpuard/internal/app/leases"
	"gpuard/internal/app/services"
	"gpuard/internal/app/userqueue"
	"gpuard/internal/core/batchlog"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/shellquote"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/cli/batchcmd"
	"gpuard/internal/ui/cli/projectcmd"
	"gpuard/internal/ui/failure"
)

// cancelPatience is how long cancel waits for the end of a run.
const cancelPatience = 10 * time.Second

func cancelCommand(p *cli.Program) *cobra.Command {
	now := false
	cmd := &cobra.Command{
		Use:   "cancel NAME...",
		Short: "Stop a run, a running or waiting job, or a service",
		Long: `Ends what gpuard has started, by the name that it has: the number of a job, also
one that waits; the lease of a run, as gpuard status shows it; or a service of
the gpuard.yaml here. Nothing of it is started again.

A job is asked to end and killed after its --grace, a service as its file says.
A run and all that have its lease are asked to end by SIGTERM; what still runs
after 10 s is named, and killed by --now. Of jobs either all are cancelled or
none; of a range, such as 17-36, it is those that can be. A process that gpuard
did not start: gpuard evict.`,
		Example: `  gpuard cancel 17                         a job of your queue
  gpuard cancel 20-39
  gpuard cancel k3f9                       the run that has this lease
  gpuard cancel train                      a service, as gpuard down does`,
		ValidArgsFunction: completeCancel(p),
		RunE:              func(cmd *cobra.Command, args []string) error { return cancelAll(cmd.Context(), p, args, now) },
	}
	cmd.Flags().BoolVar(&now, "now", false, "kill runs and services immediately")

	return cmd
}

// completeCancel offers the jobs that have not ended, and the leases of the caller.
func completeCancel(p *cli.Program) cobra.CompletionFunc {
	return cli.Complete(func(ctx context.Context, args []string, typed string) []string {
		jobs, _ := batchcmd.CompleteJobs(p)(nil, args, typed)
		return append(jobs, leases.OwnLeases(ctx, p.Host)...)
	})
}

// cancelAll ends jobs, then runs and services. Nothing is ended where one of the names cannot be.
func cancelAll(ctx context.Context, p *cli.Program, args []string, now bool) error {
	if len(args) == 0 {
		return failure.Usagef("cannot tell what to cancel: name a job, such as 17, a lease, such as k3f9, or a service; see gpuard queue, gpuard status and gpuard ps")
	}

	var jobs, named []string
	var runs []job.Lease
	for i, word := range args {
		switch {
		case slices.Contains(args[:i], word):
			continue
		case strings.Trim(word, "0123456789-,") == "":
			jobs = append(jobs, word)
			continue
		}

		l, found, err := leases.FindToCancel(ctx, p.Host, word)
		if err != nil {
			return err
		}

		if !found {
			named = append(named, word)
			continue
		}

		number, err := jobOfLease(p, l)
		text := fmt.Sprint(number)
		switch {
		case err != nil:
			return err
		case number > 0 && !slices.Contains(args, text):
			jobs = append(jobs, text)
		case number > 0:
		default:
			runs = append(runs, l)
		}
	}

	project := &projectcmd.ProjectFlags{}
	if err := checkServices(ctx, p, project, named); err != nil {
		return err
	}

	if len(jobs) > 0 {
		if now {
			return failure.Usagef("cannot use --now with job %s: its own --grace decides; leave --now out", jobs[0])
		}
		if err := batchcmd.AskJobs(ctx, p, jobs, batchlog.Cancel, "cancelled"); err != nil {
			return err
		}
	}

	for _, l := range runs {
		if err := cancelRun(ctx, p, l, now); err != nil {
			return err
		}
	}

	if len(named) > 0 {
		return projectcmd.EndServices(ctx, p, project, named, now)
	}

	return nil
}

// jobOfLease is the number of the job that a lease is of, 0 for none. A lease of a service, which would be started
// again, is refused.
func jobOfLease(p *cli.Program, l job.Lease) (number int, err error) {
	if name, file, found := services.FindInstance(p.Host, l.ID); found {
		return 0, failure.Usagef("cannot cancel %s: it is of service %s, which may be started again; end the service: %s", l.ID, name, shellquote.JoinQuoted(shellquote.Sh, "gpuard", "down", "--file", file, name))
	}
	return userqueue.FindJob(p.Host, l)
}

// checkServices refuses names that are none of a service either, before anything is ended.
func checkServices(ctx context.Context, p *cli.Program, o *projectcmd.ProjectFlags, names []string) error {
	if len(names) == 0 {
		return nil
	}

	_, _, _, err := projectcmd.FindInstances(ctx, p, o.File, names)
	if err == nil {
		return nil
	}
	if jobs := userqueue.FindNamed(p.Host, names[0]); len(jobs) > 0 {
		return failure.Usagef("cannot cancel %q: that is a name, which several jobs may have; write the number: gpuard cancel %s", names[0], prose.Ranges(jobs, " "))
	}

	return failure.Usagef("cannot cancel %q: it is no job and no lease, and: %v", names[0], err)
}

// cancelRun ends the command of a lease.
func cancelRun(ctx context.Context, p *cli.Program, l job.Lease, now bool) error {
	if err := leases.Cancel(ctx, p.Host, l, now, cancelPatience); err != nil {
		return err
	}
	what := "the run"
	if l.IsReservation() {
		what = "the reservation"
	}

	return p.Answer("%s: %s has ended", l.ID, what)
}
