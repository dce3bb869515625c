package projectcmd

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"gpuard/internal/app/services"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/failure"
)

// NewRestartCommand makes gpuard restart.
func NewRestartCommand(p *cli.Program) *cobra.Command {
	o := &ProjectFlags{}
	cmd := &cobra.Command{
		Use:   "restart [flags] [SERVICE...]",
		Short: "Restart services of a gpuard.yaml",
		Long: `Ends services that are up and starts them again, also those that have ended,
failed or were refused. Services that depend on them keep running. They start
with their old settings: to apply changes of the file use gpuard up -d.`,
		Example: `  gpuard restart
  gpuard restart node                      all instances of one service
  gpuard restart node-2                    one of them`,
		ValidArgsFunction: CompleteServices(p, o, true),
		RunE:              func(cmd *cobra.Command, args []string) error { return restartWith(p, cmd, o, args) },
	}
	o.Add(cmd, "answer as one JSON object, that of gpuard ps")

	return cmd
}

func restartWith(p *cli.Program, cmd *cobra.Command, o *ProjectFlags, names []string) error {
	ctx := cmd.Context()
	folder, view, mine, err := FindInstances(ctx, p, o.File, names)
	switch {
	case err != nil:
		return err
	case len(view.Rows) == 0:
		return errors.New("cannot restart: " + NothingUpText(view))
	}

	a := &Poller{P: p, Folder: folder, Quiet: o.JSON}
	t := &eventFinder{only: mine.Has}
	t.findEvents(view)
	signals := catchInterrupts()
	if err := folder.Restart(ctx, names); err != nil {
		return err
	}

	for i := range view.Rows {
		if mine.Has(&view.Rows[i]) {
			t.markOld([]string{view.Rows[i].Name})
		}
	}

	return awaitBegun(p, cmd, signals, a, t, func(*services.View) {})
}

// awaitBegun reports events until each instance has started, ended, failed or waits for a device, and then the result.
// first is called with the first view.
func awaitBegun(p *cli.Program, cmd *cobra.Command, signals <-chan os.Signal, a *Poller, t *eventFinder, first func(*services.View)) error {
	var last *services.View
	err := a.Until(cmd.Context(), signals, func(view *services.View) bool {
		if last == nil {
			first(view)
		}
		last = view
		a.writeEvents(t.findEvents(view))

		return haveAllBegun(view, t.only)
	}, PendingText(t.only))

	var by *interruptError
	switch {
	case errors.As(err, &by):
		by.how = "they continue in the background: gpuard ps shows them, gpuard down ends them"
		return dieBySignal(p, by)
	case err != nil:
		return err
	}

	a.writeEvents(waitingEvents(last, t.only))

	return reportResult(p, cmd, last, t.only, a.Quiet)
}

// reportResult returns the result of a command that starts services: an error if one is not as wanted, and with asJSON
// the answer.
func reportResult(p *cli.Program, cmd *cobra.Command, view *services.View, which func(*services.Row) bool, asJSON bool) error {
	err := checkOutcome(view, which)
	if !asJSON {
		return err
	}
	if werr := cli.WriteJSON(p.Out, MakePsAnswer(cli.SchemaOf(cmd), view, which)); werr != nil {
		return fmt.Errorf("cannot answer: %w", werr)
	}
	if err != nil {
		return &failure.ShownError{Err: err}
	}

	return nil
}
