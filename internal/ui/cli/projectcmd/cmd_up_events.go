package projectcmd

import (
	"cmp"
	"slices"
	"strings"

	"gpuard/internal/app/services"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/service"
)

// eventFinder finds the events of a project's instances between two views.
type eventFinder struct {
	before map[string]services.Row
	only   func(*services.Row) bool
	// The order of the instances when first seen, dependencies first.
	order []string
	// Instances whose end was reported, and which did not start again.
	ended map[string]bool
}

// event is one line about one instance.
type event struct {
	name, text string
	// The instance has ended: its output comes before this line.
	over bool
}

// markOld marks instances as stale, so that their next state is reported as an event.
func (e *eventFinder) markOld(names []string) {
	for _, name := range names {
		row := e.before[name]
		row.Fresh = false
		e.before[name] = row
	}
}

// findEvents returns the events between the last view and this one. The first view has none.
func (e *eventFinder) findEvents(view *services.View) (told []event) {
	now := map[string]services.Row{}
	for i := range view.Rows {
		row := view.Rows[i]
		if !e.only(&row) {
			continue
		}

		now[row.Name] = row
		if !slices.Contains(e.order, row.Name) {
			e.order = append(e.order, row.Name)
		}

		if e.before == nil {
			continue
		}
		if !row.Wanted && hasEnded(&row) {
			// Reported by ends.
			continue
		}

		before, known := e.before[row.Name]
		if !known && row.Wanted && !row.Fresh {
			// The state of an earlier start.
			continue
		}

		if text := eventText(&before, &row); text != "" {
			told = append(told, event{row.Name, text, isAlive(&before) && !isAlive(&row) || row.State == service.Restarting})
		}
	}

	told = append(e.endEvents(now), told...)
	e.before = now

	return told
}

// endEvents returns the ends of instances that are not wanted any more. It reports each end once, although the instance
// stays in the view for a moment. Dependents come first, because they end first.
func (e *eventFinder) endEvents(now map[string]services.Row) (told []event) {
	for _, name := range slices.Backward(e.order) {
		before, known := e.before[name]
		row, there := now[name]
		switch {
		case there && (row.Wanted || !hasEnded(&row) && (row.State != "" || isAlive(&row))):
			if row.State != "" {
				// Without a state its keeper may be exiting.
				delete(e.ended, name)
			}
		case known && isAlive(&before) && !e.ended[name]:
			text := "ended"
			if there && row.State != "" {
				text = stateText(&row)
			}

			told = append(told, event{name, text, true})
			if e.ended == nil {
				e.ended = map[string]bool{}
			}

			e.ended[name] = true
		}
	}
	return told
}

// eventText is the text of the event between two states of an instance; "" if there is none.
func eventText(before, now *services.Row) string {
	other := now.State != before.State
	switch now.State {
	case service.Waiting:
		// A wait for another instance is short, or that instance has an event itself.
		if now.Why != before.Why && (now.Kept || waitsInVain(now)) {
			return waitsText(now)
		}
	case service.Running:
		started := other || !now.Since.Equal(before.Since) || now.Restarts != before.Restarts
		ready := now.Ready != nil && now.Seen.Ready
		switch {
		case started && ready:
			return startedText(now) + ", and is ready"
		case started:
			return startedText(now)
		case ready && !before.Seen.Ready:
			return "is ready"
		case isUnhealthy(now) && !isUnhealthy(before):
			return stateText(now)
		case isUnhealthy(before) && !isUnhealthy(now):
			return "is healthy again"
		}
	case service.Restarting:
		if other || now.Restarts != before.Restarts {
			return cmp.Or(strings.TrimPrefix(prose.Clean(now.Why), "the command "), endText(now)+", and is started again")
		}
	case service.Done, service.Failed, service.Refused:
		if other || now.Fresh && !before.Fresh {
			return stateText(now)
		}
	}
	return ""
}

func waitsText(row *services.Row) string {
	why := prose.Clean(row.Why)
	if strings.HasPrefix(why, "waits") {
		return why
	}
	return "waits: " + why
}

func startedText(row *services.Row) string {
	text := "started without a GPU"
	if len(row.Devices) > 0 {
		var names []string
		for _, d := range row.Devices {
			names = append(names, d.String())
		}
		text = "started on " + strings.Join(names, ", ")
	}

	if row.Share > 0 {
		text += ", a share of " + row.Share.String()
	}

	if row.Restarts > 0 {
		text += ", " + prose.CountNoun(row.Restarts, "restart")
	}

	return text
}
