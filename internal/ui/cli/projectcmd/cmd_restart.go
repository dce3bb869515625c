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

// Restart makes gpuard restart.
func Restart(p *cli.Program) *cobra.Command {
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
		RunE: func(cmd *cobra.Command, args []string) error {
			return failure.Report(func() error { return restartWith(p, cmd, o, args) })
		},
	}
	o.Add(cmd, "answer as one JSON object, that of gpuard ps")
	return cmd
}

func restartWith(p *cli.Program, cmd *cobra.Command, o *ProjectFlags, names []string) error {
	ctx := cmd.Context()
	folder, view, err := FindProject(ctx, p, o.File)
	if err != nil {
		return err
	}
	mine, err := SelectInstances(view, names)
	switch {
	case err != nil:
		return err
	case len(view.Rows) == 0:
		return errors.New("cannot restart: " + NothingUp(view))
	}
	a := &Poller{P: p, Folder: folder, Quiet: o.JSON}
	t := &eventFinder{only: mine.Has}
	t.compare(view)
	signals := interrupts()
	if err := folder.Restart(ctx, names); err != nil {
		return err
	}
	for i := range view.Rows {
		if mine.Has(&view.Rows[i]) {
			t.markOld([]string{view.Rows[i].Name})
		}
	}
	return untilBegun(p, cmd, signals, a, t, func(*services.View) {})
}

// untilBegun reports events until each instance has started, ended, failed or waits for a device, and then the result.
// first is called with the first view.
func untilBegun(p *cli.Program, cmd *cobra.Command, signals <-chan os.Signal, a *Poller, t *eventFinder, first func(*services.View)) error {
	var last *services.View
	err := a.Until(cmd.Context(), signals, func(view *services.View) bool {
		if last == nil {
			first(view)
		}
		last = view
		a.lines(t.compare(view))
		return begun(view, t.only)
	}, PendingText(t.only))
	var by *interrupted
	switch {
	case errors.As(err, &by):
		by.how = "they continue in the background: gpuard ps shows them, gpuard down ends them"
		return dieOf(p, by)
	case err != nil:
		return err
	}
	a.lines(waitingForOthers(last, t.only))
	return brought(p, cmd, last, t.only, a.Quiet)
}

// brought returns the result of a command that starts services: an error if one is not as wanted, and with asJSON the
// answer.
func brought(p *cli.Program, cmd *cobra.Command, view *services.View, which func(*services.Row) bool, asJSON bool) error {
	err := outcome(view, which)
	if !asJSON {
		return err
	}
	if werr := psJSON(p, cmd, view, which); werr != nil {
		return fmt.Errorf("cannot answer: %w", werr)
	}
	if err != nil {
		return &failure.Shown{Err: err}
	}
	return nil
}
