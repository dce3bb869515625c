package projectcmd

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"gpuard/internal/app/services"
	"gpuard/internal/ui/cli"
)

// NewDownCommand makes gpuard down.
func NewDownCommand(p *cli.Program) *cobra.Command {
	o := &ProjectFlags{}
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
		ValidArgsFunction: CompleteServices(p, o, true),
		RunE:              func(cmd *cobra.Command, args []string) error { return EndServices(cmd.Context(), p, o, args, now) },
	}

	cmd.Flags().BoolVar(&now, "now", false, "kill them immediately")
	o.Add(cmd, "answer as one JSON object")

	return cmd
}

// downAnswer is the JSON answer of down.
type downAnswer struct {
	Schema string `json:"schema"` // "gpuard.down/1"
	// Instances that ran or waited, and have ended.
	Ended []string `json:"ended"`
}

// EndServices ends the named services of a project, all of them if none is named.
func EndServices(ctx context.Context, p *cli.Program, o *ProjectFlags, names []string, now bool) error {
	folder, view, mine, err := FindInstances(ctx, p, o.File, names)
	if err != nil {
		return err
	}

	answer := downAnswer{"gpuard.down/1", []string{}}
	for i := range view.Rows {
		if row := &view.Rows[i]; mine.Has(row) && isAlive(row) {
			answer.Ended = append(answer.Ended, row.Name)
		}
	}

	a := &Poller{P: p, Folder: folder, Quiet: o.JSON}
	t := &eventFinder{only: mine.Has}
	t.findEvents(view)
	signals := catchInterrupts()
	if err := folder.Down(ctx, names, now); err != nil {
		return err
	}

	err = awaitGone(ctx, p, signals, a, mine, func(view *services.View) { a.writeEvents(t.findEvents(view)) })
	var by *interruptError
	switch {
	case errors.As(err, &by):
		by.how = "they are still ending: gpuard ps shows which; to kill them: gpuard down --now"
		return dieBySignal(p, by)
	case err != nil:
		return err
	case o.JSON:
		return cli.WriteJSON(p.Out, answer)
	case len(answer.Ended) == 0:
		err = p.Answer("nothing ran")
	}

	return err
}
