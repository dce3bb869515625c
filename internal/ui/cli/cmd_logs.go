package cli

import (
	"context"
	"errors"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"time"

	"gpuard/internal/app/services"
)

func (p *Program) logs() *cobra.Command {
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
		ValidArgsFunction: p.completeServices(&o.projectFlags, true),
		RunE: func(cmd *cobra.Command, args []string) error {
			return report(func() error { return p.logsWith(cmd.Context(), o, args) })
		},
	}
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "continue with new lines as they are written")
	cmd.Flags().StringVar(&o.tail, "tail", "all", "begin with the last `N` lines of each")
	o.add(cmd, "one JSON object for each line")
	_ = cmd.RegisterFlagCompletionFunc("tail", cobra.FixedCompletions([]string{"10", "100", "1000", "all"}, noFiles))
	return cmd
}

type logsOptions struct {
	projectFlags
	follow bool
	tail   string
}

// loggedLine is the JSON answer of logs, for each line.
type loggedLine struct {
	Schema   string `json:"schema"`   // "gpuard.logs/1"
	Instance string `json:"instance"` // that wrote it
	Text     string `json:"text"`     // the line; bytes that are not UTF-8 are replaced
}

func (p *Program) logsWith(ctx context.Context, o *logsOptions, names []string) error {
	last := services.AllLines
	if o.tail != "all" {
		n, err := strconv.ParseUint(o.tail, 10, 31)
		if err != nil {
			return usagef("cannot read --tail %q: write a number of lines, such as --tail 100, or --tail all", o.tail)
		}
		last = int(n)
	}
	if areJobs(names) {
		return p.jobLogs(ctx, names, last, o.follow, o.json)
	}
	folder, view, err := p.found(ctx, o.file)
	if err != nil && len(names) > 0 {
		return usagef("%v; a job of the queue has a number: gpuard logs 17", err)
	} else if err != nil {
		return err
	}
	mine, err := named(view, names)
	switch {
	case err != nil:
		return err
	case len(view.Rows) == 0:
		return errors.New("cannot show logs: " + nothingUp(view))
	}
	out := p.newPrinter()
	out.json = o.json
	logs := services.NewLogs()
	for i := range view.Rows {
		if row := &view.Rows[i]; mine.has(row) {
			out.name(row.Name)
		}
	}
	out.alone = len(out.names) == 1
	for i := range view.Rows {
		if row := &view.Rows[i]; mine.has(row) && row.Log != "" {
			logs.Add(*row, last)
			if err := out.rest(logs, !o.follow); err != nil {
				return err
			}
		}
	}
	if !o.follow {
		logs.Close()
		return nil
	}
	return p.followLogs(ctx, folder, p.showing(logs, out, nil), mine)
}

// rest writes the lines that exist now; with all also a last line without a newline.
func (o *printer) rest(logs *services.Logs, all bool) error {
	for line, ok := logs.Now(); ok; line, ok = logs.Now() {
		if err := o.print(line); err != nil {
			return err
		}
	}
	for all {
		line, ok := logs.Unended()
		if !ok {
			break
		}
		if err := o.print(line); err != nil {
			return err
		}
	}
	return nil
}

// followLogs continues until no instance runs or will be started.
func (p *Program) followLogs(ctx context.Context, folder *services.Folder, s *screen, mine selection) error {
	defer s.leave()
	a := &poller{p: p, folder: folder, quiet: true}
	nothing := make(chan os.Signal) // Ctrl-C just ends it
	err := a.until(ctx, nothing, func(view *services.View) bool {
		s.follow(view, mine.has)
		return finished(view, mine.has)
	}, pending(mine.has))
	if err == nil {
		s.flush(nothing)
	}
	return err
}

func (p *Program) newPrinter() printer {
	out := p.Out
	if w, ok := out.(*checkedWriter); ok { // logs does not fail if its reader is gone
		out = w.Writer
	}
	term := p.term(p.Out)
	return printer{out: out, term: term, drawn: map[string]time.Time{}, raw: !term.TTY}
}
