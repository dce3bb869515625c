package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"gpuard/internal/app/services"
)

func (p *Program) restart() *cobra.Command {
	o := &projectFlags{}
	cmd := &cobra.Command{
		Use:   "restart [flags] [SERVICE...]",
		Short: "Restart services of a gpuard.yaml",
		Long: `Ends services that are up and starts them again, also those that have ended,
failed or were refused. Services that depend on them keep running. They start
with their old settings: to apply changes of the file use gpuard up -d.`,
		Example: `  gpuard restart
  gpuard restart node                      all instances of one service
  gpuard restart node-2                    one of them`,
		ValidArgsFunction: p.completeServices(o, true),
		RunE: func(cmd *cobra.Command, args []string) error {
			return report(func() error { return p.restartWith(cmd, o, args) })
		},
	}
	o.add(cmd, "answer as one JSON object, that of gpuard ps")
	return cmd
}

func (p *Program) restartWith(cmd *cobra.Command, o *projectFlags, names []string) error {
	ctx := cmd.Context()
	folder, view, err := p.found(ctx, o.file)
	if err != nil {
		return err
	}
	mine, err := named(view, names)
	switch {
	case err != nil:
		return err
	case len(view.Rows) == 0:
		return errors.New("cannot restart: " + nothingUp(view))
	}
	a := &poller{p: p, folder: folder, quiet: o.json}
	t := &eventFinder{only: mine.has}
	t.compare(view)
	signals := interrupts()
	if err := folder.Restart(ctx, names); err != nil {
		return err
	}
	for i := range view.Rows {
		if mine.has(&view.Rows[i]) {
			t.markOld([]string{view.Rows[i].Name})
		}
	}
	return p.untilBegun(cmd, signals, a, t, func(*services.View) {})
}

// untilBegun reports events until each instance has started, ended, failed or waits for a device, and then the result.
// first is called with the first view.
func (p *Program) untilBegun(cmd *cobra.Command, signals <-chan os.Signal, a *poller, t *eventFinder, first func(*services.View)) error {
	var last *services.View
	err := a.until(cmd.Context(), signals, func(view *services.View) bool {
		if last == nil {
			first(view)
		}
		last = view
		a.lines(t.compare(view))
		return begun(view, t.only)
	}, pending(t.only))
	var by *interrupted
	switch {
	case errors.As(err, &by):
		by.how = "they continue in the background: gpuard ps shows them, gpuard down ends them"
		return p.dieOf(by)
	case err != nil:
		return err
	}
	a.lines(waitingForOthers(last, t.only))
	return p.brought(cmd, last, t.only, a.quiet)
}

// brought returns the result of a command that starts services: an error if one is not as wanted, and with asJSON the
// answer.
func (p *Program) brought(cmd *cobra.Command, view *services.View, which func(*services.Row) bool, asJSON bool) error {
	err := outcome(view, which)
	if !asJSON {
		return err
	}
	if werr := p.psJSON(cmd, view, which); werr != nil {
		return fmt.Errorf("cannot answer: %w", werr)
	}
	if err != nil {
		return &silent{err}
	}
	return nil
}
