package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"gpuard/internal/app/services"
)

func (p *Program) restart() *cobra.Command {
	o := &projectFlags{}
	cmd := &cobra.Command{
		Use:   "restart [flags] [SERVICE...]",
		Short: "Start services of a gpuard.yaml anew",
		Long: `Ends services that are up and starts them again, also those that have ended,
failed or were refused; what depends on them is ended before and started after
them. They are started as they were: for changes of the file, gpuard up -d.`,
		Example: `  gpuard restart
  gpuard restart node                      all instances of one service`,
		ValidArgsFunction: p.completeServices(o, false),
		RunE: func(cmd *cobra.Command, args []string) error {
			return report(func() error { return p.restartWith(cmd.Context(), o, args) })
		},
	}
	o.add(cmd, "answer as one JSON object, that of gpuard ps")
	return cmd
}

func (p *Program) restartWith(ctx context.Context, o *projectFlags, names []string) error {
	folder, view, err := p.found(ctx, o.file)
	if err != nil {
		return err
	}
	mine, err := named(view, names)
	if err == nil {
		err = servicesOnly(view, mine, "restart")
	}
	switch {
	case err != nil:
		return err
	case len(view.Rows) == 0:
		return errors.New("cannot restart: " + nothingUp(view))
	}
	a := &attending{p: p, folder: folder, quiet: o.json}
	t := &teller{only: mine.has}
	t.see(view)
	signals := interrupts()
	if err := folder.Restart(ctx, names); err != nil {
		return err
	}
	last := view
	err = a.until(ctx, signals, func(view *services.View) bool {
		last = view
		a.lines(t.see(view))
		return begun(view, t.only)
	}, pending(t.only))
	var by *interrupted
	switch {
	case errors.As(err, &by):
		by.how = "they go on in the background: gpuard ps shows them"
		return p.dieOf(by)
	case err != nil:
		return err
	}
	return p.brought(last, t.only, o.json)
}

// brought is the answer of what starts services: whether they are as wanted.
func (p *Program) brought(view *services.View, which func(*services.Row) bool, asJSON bool) error {
	err := outcome(view, which)
	if !asJSON {
		return err
	}
	if werr := p.psJSON(view, which); werr != nil {
		return fmt.Errorf("cannot answer: %w", werr)
	}
	if err != nil {
		return &silent{err}
	}
	return nil
}
