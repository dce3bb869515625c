package planview

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuard/internal/core/pick"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/status"
	"gpuard/internal/ui/console"
	"gpuard/internal/ui/translate"
)

// StandingLine is the line in a language: place, next job, and the holders with their devices and times. If width is
// not 0 it leaves out details until the first holder fits in width cells, and cuts the rest.
func StandingLine(s status.Standing, now time.Time, l translate.Language, width int) string {
	text := ""
	holders := joinHolders(s.Holders)
	for brevity := range 4 {
		parts := []string{placeText(s, brevity)}
		if s.Ahead != "" {
			parts = append(parts, s.Ahead+" is next")
		}

		if s.Stuck {
			parts = append(parts, "a user has to act")
		}

		least := min(len(parts)+1, len(parts)+len(holders))

		for _, h := range holders {
			parts = append(parts, holderText(h, now, brevity))
		}

		text = l.Join("; ", parts...)
		if width <= 0 || console.CellWidth(l.Join("; ", parts[:least]...)) <= width {
			break
		}
	}

	if width > 0 {
		text = console.Cut(text, width, "...")
	}

	return text
}

// joinHolders joins the devices that the same job or obstacle keeps: it is named once, for "GPU 0, 2".
func joinHolders(holders []status.Holder) (joined []status.Holder) {
	for _, h := range holders {
		i := slices.IndexFunc(joined, func(o status.Holder) bool {
			o.Device = h.Device
			return o == h
		})
		if i >= 0 && h.Device != "" {
			joined[i].Device += ", " + strings.TrimPrefix(h.Device, "GPU ")
			continue
		}
		joined = append(joined, h)
	}
	return joined
}

// placeText is the beginning of the line.
func placeText(s status.Standing, brevity int) string {
	if s.Place == 0 {
		return "waiting for " + s.Want
	}
	at := fmt.Sprintf("%s of %d", prose.Ordinal(s.Place), s.Of)
	if brevity > 2 {
		return at
	}

	return "waiting for " + s.Want + ", " + at
}

// holderText is "GPU 2: python of alice (PID 4242) since 14:02". With more brevity it leaves out the PID, then the
// time.
func holderText(h status.Holder, now time.Time, brevity int) string {
	text := h.Device + ": "
	switch {
	case h.Device == "":
		return h.Text
	case h.Text != "":
		return text + h.Text
	case h.User == "":
		text += h.Command
	case h.Command == "":
		text += h.User
	default:
		text += h.Command + " of " + h.User
	}

	if h.PID > 0 && brevity < 1 {
		text += " (" + pick.PIDText(h.PID, h.Apart) + ")"
	}

	switch {
	case !h.Awaited.IsZero():
		text += " has ended, kept for its next start until " + h.Awaited.In(now.Location()).Format(time.TimeOnly)
	case h.Keeper != "":
		text += " has ended, still held by " + h.Keeper
	case !h.Since.IsZero() && brevity < 2:
		text += " since " + prose.ClockTime(h.Since, now)
	}

	if !h.Until.IsZero() && h.Awaited.IsZero() && h.Keeper == "" {
		// What a person who waits wants to know.
		text += " " + prose.EndTime(h.Until, now, h.Guess)
	}

	return text
}

// WantedText is what a request waits for, in a few words.
func WantedText(w *status.Waiting) string {
	text := fmt.Sprintf("%d GPUs", w.Count)
	if w.Count == 1 {
		text = "1 GPU"
	}

	switch {
	case w.Share > 0:
		text += fmt.Sprintf(", share %s", w.Share)
	case w.Memory > 0:
		text += fmt.Sprintf(", %s", w.Memory)
	}

	return text
}
