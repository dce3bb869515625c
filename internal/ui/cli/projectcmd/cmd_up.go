// Package projectcmd has the commands about the services of a gpuard.yaml: up, ps, restart, down.
package projectcmd

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"gpuard/internal/app/services"
	"gpuard/internal/core/service"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/projectfile"
)

const (
	upLong = `Starts the services of a gpuard.yaml, each on devices of its own. It starts
those that do not run, restarts those that changed in the file, and lets the
others run. It ends services that are no longer in the file, unless SERVICEs are
named: then it handles only these and their dependencies.

Shows what they write until all have ended; Ctrl-C ends them, dependents first,
and Ctrl-C again kills them. With -d they run in the background: see gpuard ps,
logs, restart and down. If gpuard itself is killed they keep running, and the
next gpuard up -d finds them again. Where all that was asked for has to wait
for a GPU, up -d says so and ends with 1.

A gpuard.yaml that is found here or above runs only if it, and every folder up
to it, belongs to you or root and no other user can write it. Another user's
file runs only when you name it: --file FILE.`

	upExample = `  gpuard up                                all services, and what they write
  gpuard up -d                             in the background
  gpuard up -d train                       one service, and what it depends on
  gpuard --machine demo:4xL4 up            on GPUs that do not exist`
)

// NewUpCommand makes gpuard up.
func NewUpCommand(p *cli.Program) *cobra.Command {
	o := &upOptions{}
	cmd := &cobra.Command{
		Use:   "up [flags] [SERVICE...]",
		Short: "Start the services of a gpuard.yaml",
		Long:  upLong, Example: upExample,
		ValidArgsFunction: CompleteServices(p, &o.ProjectFlags, false),
		RunE:              func(cmd *cobra.Command, args []string) error { return upWith(p, cmd, o, args) },
	}

	cmd.Flags().BoolVarP(&o.detach, "detach", "d", false, "return as soon as they have started, and leave them in the background")
	o.Add(cmd, "answer as one JSON object, that of gpuard ps (with -d)")

	return cmd
}

type upOptions struct {
	ProjectFlags
	detach bool
}

func upWith(p *cli.Program, cmd *cobra.Command, o *upOptions, names []string) error {
	if o.JSON && !o.detach {
		return failure.Usagef("cannot use --json without -d: the output of the services is not JSON")
	}

	project, err := projectfile.LoadProject(p, o.File)
	if err != nil {
		return err
	}

	project, err = localServices(p, project, names)
	if err != nil {
		return err
	}

	p.Host.Project = project.Policy
	if _, err := p.Host.Config(); err != nil {
		// Else every instance would report it.
		return err
	}

	wanted, err := projectfile.NeededServices(project, names)
	if err != nil {
		return err
	}

	ctx := cmd.Context()
	folder, err := projectfile.ProjectsOf(p).Open(project)
	if err != nil {
		return err
	}

	all := len(names) == 0
	mine := func(row *services.Row) bool { return all || wanted[serviceOf(row)] }
	a := &Poller{P: p, Folder: folder, Quiet: o.JSON}
	t := &eventFinder{only: mine}
	before, err := folder.ReadView(ctx)
	if err != nil {
		return err
	}

	t.findEvents(before)
	if o.detach {
		return runDetached(p, cmd, project, names, a, t)
	}

	return runFollowed(ctx, p, project, names, a, t, before)
}

// runDetached returns when each instance has started, ended, failed or waits for a device.
func runDetached(p *cli.Program, cmd *cobra.Command, project *service.Project, names []string, a *Poller, t *eventFinder) error {
	ctx, signals := cmd.Context(), catchInterrupts()
	change, err := a.Folder.Up(ctx, project, names)
	if err != nil {
		// Of a template.
		return projectfile.AsMistake(err)
	}

	t.markOld(change.Start)
	first := func(view *services.View) { a.writeEvents(unchangedEvents(view, change)) }

	return awaitBegun(p, cmd, signals, a, t, first)
}

// waitingEvents returns events for instances that wait for other instances, which wait too.
func waitingEvents(view *services.View, which func(*services.Row) bool) (told []event) {
	for i := range view.Rows {
		if row := &view.Rows[i]; which(row) && row.State == service.Waiting && !row.Kept && !waitsInVain(row) {
			told = append(told, event{name: row.Name, text: waitsText(row)})
		}
	}
	return told
}

// unchangedEvents returns events for instances that keep running: otherwise a second up would report nothing.
func unchangedEvents(view *services.View, change *services.Change) (told []event) {
	for i := range view.Rows {
		row := &view.Rows[i]
		if !slices.Contains(change.Stay, row.Name) {
			continue
		}

		text := stateText(row)
		switch {
		case row.State == service.Running && row.IsUsable():
			text = strings.Replace(startedText(row), "started", "runs already", 1)
		case row.State == service.Done:
			text = "is done"
		}

		told = append(told, event{name: row.Name, text: text})
	}
	return told
}

// runFollowed shows the output of the services until they have ended, or a signal ends them.
func runFollowed(ctx context.Context, p *cli.Program, project *service.Project, names []string, a *Poller, t *eventFinder, before *services.View) error {
	signals := catchInterrupts(syscall.SIGPIPE)
	screen := newScreen(p, a.Folder, before, signals)
	defer screen.Leave()
	change, err := a.Folder.Up(ctx, project, names)
	if err != nil {
		// Of a template.
		return projectfile.AsMistake(err)
	}

	t.markOld(change.Start)
	a.Quiet = true
	last := before
	first := true
	err = a.Until(ctx, signals, func(view *services.View) bool {
		screen.Follow(view, t.only)
		if first {
			screen.showEvents(unchangedEvents(view, change))
			first = false
		}

		last = view
		screen.showEvents(t.findEvents(view))

		return HaveAllEnded(view, t.only)
	}, PendingText(t.only))

	var by *interruptError
	switch {
	case errors.As(err, &by):
		return endOnInterrupt(ctx, p, by, signals, a, t, screen, startedServices(names, last, change))
	case err != nil:
		return err
	}

	screen.Flush(signals)

	return checkAllDone(last, t.only)
}

// startedServices returns the services that Ctrl-C ends: those that were named, and the dependencies that were started;
// nil for all.
func startedServices(names []string, view *services.View, change *services.Change) (list []string) {
	if len(names) == 0 {
		return nil
	}
	list = slices.Clone(names)
	for i := range view.Rows {
		row := &view.Rows[i]
		if slices.Contains(change.Start, row.Name) && !slices.Contains(list, serviceOf(row)) {
			list = append(list, serviceOf(row))
		}
	}

	return list
}

// endOnInterrupt ends the services of list, kills them at the second Ctrl-C, and returns at the third.
func endOnInterrupt(ctx context.Context, p *cli.Program, by *interruptError, signals <-chan os.Signal, a *Poller, t *eventFinder, screen *Screen, list []string) error {
	mine := Selection(list)
	words := "ending all"
	if list != nil {
		words = "ending " + strings.Join(list, ", ")
	}

	if by.sig == syscall.SIGPIPE {
		words = "the reader of the output is gone: " + words
	}

	screen.showLine(words + "; Ctrl-C again kills immediately")

	for now := false; ; now = true {
		if err := a.Folder.Down(ctx, list, now); err != nil {
			return err
		}

		err := awaitGone(ctx, p, signals, a, mine, func(view *services.View) {
			screen.Follow(view, t.only)
			screen.showEvents(t.findEvents(view))
		})

		var again *interruptError
		switch {
		case err == nil:
			screen.Flush(signals)
			return dieBySignal(p, by)
		case !errors.As(err, &again):
			return err
		case now:
			again.how = "some instances are still ending: gpuard ps"
			return dieBySignal(p, again)
		}

		screen.showLine("killing what has not ended")
	}
}

// HaveAllEnded reports whether no instance runs or will be started.
func HaveAllEnded(view *services.View, which func(*services.Row) bool) bool {
	for i := range view.Rows {
		if row := &view.Rows[i]; which(row) && (isAlive(row) || row.Kept || row.Wanted && !row.Fresh && row.State != service.Waiting) {
			return false
		}
	}
	return haveAllBegun(view, which)
}

// checkAllDone returns an error if an instance did not succeed. It is silent, because the failure was reported when it
// happened.
func checkAllDone(view *services.View, which func(*services.Row) bool) error {
	for i := range view.Rows {
		if row := &view.Rows[i]; row.Wanted && which(row) && row.State != service.Done {
			return &failure.ShownError{Err: errors.New("cannot report success: " + row.Name + " " + stateText(row))}
		}
	}
	return nil
}
