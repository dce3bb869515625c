package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"gpuard/internal/app/services"
)

func (p *Program) down() *cobra.Command {
	o := &projectFlags{}
	now := false
	cmd := &cobra.Command{
		Use:   "down [flags] [SERVICE...]",
		Short: "End the services of a gpuard.yaml",
		Long: `Ends what gpuard up has started, dependents first: each instance gets its
stop_signal, and is killed when its grace (10 s) is over. Returns when all have
ended. It does not read the file, so it also works after the file was changed or
removed.`,
		Example: `  gpuard down
  gpuard down train                        one service; the others keep running
  gpuard down node-2                       one instance
  gpuard down --now                        kill them immediately`,
		ValidArgsFunction: p.completeServices(o, true),
		RunE: func(cmd *cobra.Command, args []string) error {
			return report(func() error { return p.downWith(cmd.Context(), o, args, now) })
		},
	}
	cmd.Flags().BoolVar(&now, "now", false, "kill them immediately")
	o.add(cmd, "answer as one JSON object")
	return cmd
}

// downAnswer is the JSON answer of down.
type downAnswer struct {
	Schema string   `json:"schema"` // "gpuard.down/1"
	Ended  []string `json:"ended"`  // instances that ran or waited, and have ended
}

func (p *Program) downWith(ctx context.Context, o *projectFlags, names []string, now bool) error {
	folder, view, err := p.found(ctx, o.file)
	if err != nil {
		return err
	}
	mine, err := named(view, names)
	if err != nil {
		return err
	}
	answer := downAnswer{"gpuard.down/1", []string{}}
	for i := range view.Rows {
		if row := &view.Rows[i]; mine.has(row) && alive(row) {
			answer.Ended = append(answer.Ended, row.Name)
		}
	}
	a := &poller{p: p, folder: folder, quiet: o.json}
	t := &eventFinder{only: mine.has}
	t.compare(view)
	signals := interrupts()
	if err := folder.Down(ctx, names, now); err != nil {
		return err
	}
	err = p.untilGone(ctx, signals, a, mine, func(view *services.View) { a.lines(t.compare(view)) })
	var by *interrupted
	switch {
	case errors.As(err, &by):
		by.how = "they are still ending: gpuard ps shows which; to kill them: gpuard down --now"
		return p.dieOf(by)
	case err != nil:
		return err
	case o.json:
		return writeJSON(p.Out, answer)
	case len(answer.Ended) == 0:
		_, err = fmt.Fprintln(p.Out, "nothing ran")
	}
	return err
}
