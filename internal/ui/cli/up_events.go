package cli

import (
	"fmt"
	"strings"

	"gpuard/internal/app/services"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/service"
)

// teller finds out what happened to the instances of a project between two looks.
type teller struct {
	before map[string]services.Row
	only   func(*services.Row) bool
}

// happening is one line about one instance.
type happening struct {
	name, text string
	over       bool // it has ended: what it wrote comes before this
}

// anew makes instances count as those of a time before: what they are next is news.
func (t *teller) anew(names []string) {
	for _, name := range names {
		row := t.before[name]
		row.Fresh = false
		t.before[name] = row
	}
}

// see compares a view with the one before; the first tells nothing.
func (t *teller) see(view *services.View) (told []happening) {
	now := map[string]services.Row{}
	for i := range view.Rows {
		row := view.Rows[i]
		if !t.only(&row) {
			continue
		}
		now[row.Name] = row
		if t.before == nil {
			continue
		}
		before, known := t.before[row.Name]
		if !known && row.Wanted && !row.Fresh {
			continue // of one before it
		}
		if text := happened(&before, &row); text != "" {
			told = append(told, happening{row.Name, text, alive(&before) && !alive(&row) || row.State == service.Restarting})
		}
	}
	for name, before := range t.before {
		if _, there := now[name]; !there && alive(&before) {
			told = append(told, happening{name, "ended", true})
		}
	}
	t.before = now
	return told
}

// alive reports whether something of an instance runs, or is about to.
func alive(row *services.Row) bool {
	switch row.State {
	case service.Starting, service.Running, service.Restarting, service.Ending:
		return true
	case service.Waiting, "": // the gpuard beside it has written nothing yet, or is just leaving
		return row.Kept || row.Orphaned
	}
	return row.Orphaned
}

// happened is what to say of an instance that was and is seen like this; "" for nothing.
func happened(before, now *services.Row) string {
	other := now.State != before.State
	switch now.State {
	case service.Waiting:
		// What waits for another instance does so for a moment, or that one is told of.
		if now.Why != before.Why && (now.Kept || inVain(now)) {
			return waits(now)
		}
	case service.Running:
		started := other || !now.Since.Equal(before.Since) || now.Restarts != before.Restarts
		ready := now.Instance.Ready != nil && now.Seen.Ready
		switch {
		case started && ready:
			return startedOn(now) + ", and is ready"
		case started:
			return startedOn(now)
		case ready && !before.Seen.Ready:
			return "is ready"
		}
	case service.Restarting:
		if other || now.Restarts != before.Restarts {
			return orElse(gpu.Clean(now.Why), howEnded(now)+", and is started again")
		}
	case service.Done, service.Failed, service.Refused:
		if other || now.Fresh && !before.Fresh {
			return doing(now)
		}
	}
	return ""
}

// inVain reports whether an instance waits for one that has failed.
func inVain(row *services.Row) bool {
	return row.State == service.Waiting && !row.Kept && strings.Contains(row.Why, ", which ")
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

func waits(row *services.Row) string {
	why := gpu.Clean(row.Why)
	if strings.HasPrefix(why, "waits") {
		return why
	}
	return "waits: " + why
}

func startedOn(row *services.Row) string {
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
		text += ", " + plural(row.Restarts, "restart")
	}
	return text
}

func howEnded(row *services.Row) string {
	switch {
	case !row.Wanted: // we have ended it
	case row.Signal != "":
		return "ended by " + gpu.Clean(row.Signal)
	case row.Exit != nil:
		return fmt.Sprintf("ended with exit code %d", *row.Exit)
	}
	return "ended"
}
