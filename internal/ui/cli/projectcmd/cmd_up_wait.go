package projectcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"gpuard/internal/app/services"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/service"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/console"
)

// Poller reads the state of a project until a condition is met.
type Poller struct {
	P      *cli.Program
	Folder *services.Folder
	// Draws nothing: the output is JSON, or the screen shows logs.
	Quiet bool

	line  cli.LiveLine
	began time.Time
}

// Intervals of poller.
const (
	// A shorter wait is not shown.
	showDelay = time.Second
	// Poll interval without a change event: a killed process sends none.
	pollInterval = 5 * time.Second
)

// Until calls each with every new view until it returns true. On a terminal it shows, after a second, the text of
// pending. The error is an *interrupted if a signal came.
func (a *Poller) Until(ctx context.Context, signals <-chan os.Signal, each func(*services.View) bool, pending func(*services.View) string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes := a.Folder.Changes(ctx)
	tick := time.NewTicker(showDelay)
	defer tick.Stop()
	defer a.line.Wipe()
	a.began = time.Now()

	for {
		view, err := a.Folder.ReadView(ctx)
		if err != nil {
			return err
		}

		looked := time.Now()
		if each(view) {
			return nil
		}
		if err := a.Folder.EnsureSupervisor(ctx); err != nil {
			return err
		}

		for idle := true; idle; {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case sig := <-signals:
				return &interruptError{sig: sig}
			case <-changes:
				idle = false
			case <-tick.C:
				idle = time.Since(looked) < pollInterval
				a.draw(pending(view))
			}
		}
	}
}

// awaitGone waits for the end of all instances of mine. It ignores SIGPIPE.
func awaitGone(ctx context.Context, p *cli.Program, signals <-chan os.Signal, a *Poller, mine Selection, each func(*services.View)) error {
	running := func(row *services.Row) bool { return mine.Has(row) && (isAlive(row) || row.Kept) }
	for {
		err := a.Until(ctx, signals, func(view *services.View) bool {
			each(view)
			return firstRow(view, running) == nil
		}, func(view *services.View) string { return rowText(firstRow(view, running)) })
		var by *interruptError
		if !errors.As(err, &by) || by.sig != syscall.SIGPIPE {
			return err
		}
	}
}

// firstRow is the first row for which the function returns true; nil if there is none.
func firstRow(view *services.View, which func(*services.Row) bool) *services.Row {
	for i := range view.Rows {
		if which(&view.Rows[i]) {
			return &view.Rows[i]
		}
	}
	return nil
}

// draw shows the text on a terminal, if gpuard is in the foreground.
func (a *Poller) draw(text string) {
	if a.Quiet || text == "" || !a.P.Term(a.P.Err).TTY {
		return
	}

	page := console.Page{Term: a.P.Term(a.P.Err)}
	a.line.P = a.P
	a.line.Draw(func(width int) string {
		return console.Cut(page.Text(text)+", "+console.AgeText(time.Since(a.began)), width, page.Ellipsis())
	})
}

// writeEvents writes events.
func (a *Poller) writeEvents(told []event) {
	if len(told) == 0 || a.Quiet {
		return
	}
	a.line.Wipe()

	for _, h := range told {
		fmt.Fprintf(a.P.Out, "%s %s\n", h.name, h.text)
	}
}

// haveAllBegun reports whether all instances of which are ready, have ended, wait in line for a device, or wait for one
// that does.
func haveAllBegun(view *services.View, which func(*services.Row) bool) bool {
	return slowestRow(view, which) == nil
}

// slowestRow is the first instance for which begun is false; nil if there is none.
func slowestRow(view *services.View, which func(*services.Row) bool) *services.Row {
	// Services with an instance that will not be ready soon.
	stuck := map[string]bool{}
	var open []*services.Row
	for i := range view.Rows {
		row := &view.Rows[i]
		switch {
		case !row.Wanted, row.IsSettled() && row.State == service.Running && row.IsUsable():
		case row.IsSettled() && row.State == service.Done:
		case row.IsSettled(), row.Fresh && (row.State == service.Waiting && row.Kept || row.State == service.Restarting):
			stuck[serviceOf(row)] = true
		default:
			open = append(open, row)
		}
	}

	for again := true; again; {
		again = false
		for i, row := range open {
			if row != nil && row.State == service.Waiting && dependsOn(row, stuck) {
				stuck[serviceOf(row)], open[i], again = true, nil, true
			}
		}
	}

	for _, row := range open {
		if row != nil && which(row) {
			return row
		}
	}

	return nil
}

func dependsOn(row *services.Row, on map[string]bool) bool {
	for _, d := range row.After {
		if on[d.Service] {
			return true
		}
	}
	return false
}

// PendingText describes the slowest instance.
func PendingText(which func(*services.Row) bool) func(*services.View) string {
	return func(view *services.View) string {
		return rowText(slowestRow(view, which))
	}
}

// rowText is an instance and its state; "" for none.
func rowText(row *services.Row) string {
	return prose.ValueOr(row, "", func(r services.Row) string { return r.Name + " " + stateText(&r) })
}

// stateText is the state of an instance in a few words.
func stateText(row *services.Row) string {
	switch row.State {
	case service.Waiting:
		return waitsText(row)
	case service.Running:
		if !row.Seen.Ready {
			return strings.TrimSuffix("is not ready yet: "+prose.Clean(row.Why), ": ")
		}
		if !row.IsUsable() {
			return "is unhealthy: " + prose.Clean(row.Why)
		}
		return "runs"
	case service.Ending:
		return "is ending"
	case service.Restarting:
		return "is about to be restarted"
	case service.Done:
		return endText(row)
	case service.Failed:
		return "failed: " + cmp.Or(prose.Clean(row.Why), endText(row))
	case service.Refused:
		return "cannot be started: " + prose.Clean(row.Why)
	}
	return "is starting"
}

// isFailing reports whether an instance failed and will be restarted. That may repeat for ever, so up -d does not wait
// for it.
func isFailing(row *services.Row) bool {
	return row.State == service.Restarting && (row.Exit == nil || *row.Exit != 0)
}

// checkOutcome returns an error if instances could not be started, failed, or wait for one that did, and if all of them
// wait.
func checkOutcome(view *services.View, which func(*services.Row) bool) error {
	// Services.
	lost := map[string]bool{}
	for again := true; again; {
		again = false
		for i := range view.Rows {
			row := &view.Rows[i]
			if name := serviceOf(row); !lost[name] && row.Wanted && (hasFailed(row) || row.State == service.Waiting && !row.Kept && dependsOn(row, lost)) {
				lost[name], again = true, true
			}
		}
	}

	var bad, waiting []string
	good := 0
	for i := range view.Rows {
		row := &view.Rows[i]
		switch {
		case !row.Wanted || !which(row):
		case hasFailed(row), isFailing(row), row.State == service.Waiting && !row.Kept && dependsOn(row, lost):
			bad = append(bad, row.Name)
		case row.State == service.Waiting:
			waiting = append(waiting, row.Name)
		default:
			good++
		}
	}

	switch {
	case len(bad) > 0:
		text := "cannot bring up " + someOf(bad)
		if all := good + len(bad) + len(waiting); good > 0 {
			text += fmt.Sprintf("; %d of %d are up", good, all)
		}
		return fmt.Errorf("%s; gpuard ps says why, gpuard logs what they wrote", text)
	case len(waiting) > 0 && good == 0:
		return fmt.Errorf("cannot bring up %s yet: waiting; what waits starts by itself when it can, gpuard ps says for what it waits; to end that: gpuard down %s", someOf(waiting), strings.Join(waiting[:min(len(waiting), 8)], " "))
	}

	return nil
}

// someOf names the first few instances.
func someOf(names []string) string {
	const few = 8
	text := strings.Join(names[:min(len(names), few)], ", ")
	if more := len(names) - few; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}

	return text
}

func hasFailed(row *services.Row) bool {
	return row.State == service.Failed || row.State == service.Refused || isUnhealthy(row)
}
