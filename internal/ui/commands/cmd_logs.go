package commands

import (
	"context"
	"errors"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"gpuard/internal/app/services"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/cli/projectcmd"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
)

func logsCommand(p *cli.Program) *cobra.Command {
	o := &logsOptions{}
	cmd := &cobra.Command{
		Use:   "logs [flags] [SERVICE...|JOB...]",
		Short: "Show what jobs of your queue, or services, write",
		Long: `Shows what instances have written to standard output and standard error, also
before a restart. A number is a job of gpuard submit. With several instances
each line begins with the name of its instance. A log that is full (64M, or
log_limit) is renamed; the file that was renamed before it is removed.`,
		Example: `  gpuard logs --tail 20
  gpuard logs -f node                      and new lines, until Ctrl-C
  gpuard logs node-0 | grep error          one instance: lines without its name
  gpuard logs -f 17                        job 17 of your queue, until it ends`,
		ValidArgsFunction: projectcmd.CompleteServices(p, &o.ProjectFlags, true),
		RunE:              func(cmd *cobra.Command, args []string) error { return showLogs(cmd.Context(), p, o, args) },
	}

	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "continue with new lines as they are written")
	cmd.Flags().StringVar(&o.tail, "tail", "all", "begin with the last `N` lines of each")
	o.Add(cmd, "one JSON object for each line")
	_ = cmd.RegisterFlagCompletionFunc("tail", cobra.FixedCompletions([]string{"10", "100", "1000", "all"}, flagset.NoFiles))

	return cmd
}

type logsOptions struct {
	projectcmd.ProjectFlags
	follow bool
	tail   string
}

func showLogs(ctx context.Context, p *cli.Program, o *logsOptions, names []string) error {
	last := services.AllLines
	if o.tail != "all" {
		n, err := strconv.ParseUint(o.tail, 10, 31)
		if err != nil {
			return failure.Usagef("cannot read --tail %q: write a number of lines, such as --tail 100, or --tail all", o.tail)
		}
		last = int(n)
	}

	if areJobs(names) {
		return jobLogs(ctx, p, names, last, o.follow, o.JSON)
	}

	folder, view, err := projectcmd.FindProject(ctx, p, o.File)
	if err != nil && len(names) > 0 {
		return failure.Usagef("%v; a job of the queue has a number: gpuard logs 17", err)
	} else if err != nil {
		return err
	}

	mine, err := projectcmd.SelectInstances(view, names)
	switch {
	case err != nil:
		return err
	case len(view.Rows) == 0:
		return errors.New("cannot show logs: " + projectcmd.NothingUpText(view))
	}

	out := p.NewPrinter()
	out.JSON = o.JSON
	logs := services.NewLogs()

	for i := range view.Rows {
		if row := &view.Rows[i]; mine.Has(row) {
			out.Name(row.Name)
		}
	}

	out.Alone = len(out.Names) == 1

	for i := range view.Rows {
		if row := &view.Rows[i]; mine.Has(row) && row.Log != "" {
			logs.Add(*row, last)
			if err := writeRemaining(&out, logs, !o.follow); err != nil {
				return err
			}
		}
	}

	if !o.follow {
		logs.Close()
		return nil
	}

	return followLogs(ctx, p, folder, projectcmd.StartScreen(p, logs, out, nil), mine)
}

// writeRemaining writes the lines that exist now; with all also a last line without a newline.
func writeRemaining(o *cli.Printer, logs *services.Logs, all bool) error {
	for line, ok := logs.Now(); ok; line, ok = logs.Now() {
		if err := o.Print(line); err != nil {
			return err
		}
	}
	for all {
		line, ok := logs.UnendedLine()
		if !ok {
			break
		}
		if err := o.Print(line); err != nil {
			return err
		}
	}
	return nil
}

// followLogs continues until no instance runs or will be started.
func followLogs(ctx context.Context, p *cli.Program, folder *services.Folder, s *projectcmd.Screen, mine projectcmd.Selection) error {
	defer s.Leave()
	a := &projectcmd.Poller{P: p, Folder: folder, Quiet: true}

	// Ctrl-C just ends it.
	nothing := make(chan os.Signal)
	err := a.Until(ctx, nothing, func(view *services.View) bool {
		s.Follow(view, mine.Has)
		return projectcmd.HaveAllEnded(view, mine.Has)
	}, projectcmd.PendingText(mine.Has))

	if err != nil {
		return err
	}

	s.Flush(nothing)

	return err
}
