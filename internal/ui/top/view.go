package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"gpuard/internal/core/glance"
)

// frame draws one screen.
type frame struct{ *model }

// renderScreen is everything on it, in height lines of at most width columns.
func (f *frame) renderScreen() string {
	bottom := f.bottomLines()
	room := max(0, f.height-len(bottom))
	lines := f.bodyLines(room)
	for len(lines) < room {
		lines = append(lines, "")
	}

	lines = append(lines[:room], bottom...)
	for i := range lines {
		lines[i] = ansi.Truncate(lines[i], f.width, "…")
	}

	return strings.Join(lines, "\n")
}

// bodyLines has so many lines at most: the first line, the devices, what uses them, and what waits. What has no room is counted.
func (f *frame) bodyLines(room int) []string {
	switch {
	case f.help:
		return f.helpLines()
	case f.log != nil:
		return f.logLines(room)
	}

	lines := f.head()
	running, waiting := f.listRows()
	if f.seen.At.IsZero() {
		return lines
	}

	below := 1 + min(3, max(1, len(running)))
	if len(waiting) > 0 {
		below += 2
	}

	all := 2 + max(1, len(running)) + len(waiting)
	lines = append(lines, f.deviceLines(max(1, room-len(lines)-below), room-len(lines)-all)...)

	return append(lines, newTables(f.model, running, waiting).drawTables(max(1, room-len(lines)))...)
}

// head is the first line; it continues below where it is too long.
func (f *frame) head() []string {
	if f.seen.At.IsZero() {
		return []string{boldText(f.say("the machine is being read"))}
	}

	clock := f.seen.Report.Taken.Local().Format("15:04:05")
	if whole := f.computerText(); whole != "" && f.width >= 120 {
		clock = whole + "  " + clock
	}

	lines := f.headLines()
	for i := range lines {
		// Where there is room for it.
		gap := f.width - ansi.StringWidth(lines[i]) - ansi.StringWidth(clock)
		if gap >= 2 {
			lines[i] += strings.Repeat(" ", gap) + f.theme.dimText(clock)
			break
		}
	}

	if f.seen.Trouble != "" {
		lines = append(lines, f.theme.paintText("! "+f.say(f.seen.Trouble), f.theme.bad))
	}

	return lines
}

// headLines are the parts of the first line, in as many lines as they need: a part goes below where it has no room, and troubles stay
// together.
func (f *frame) headLines() (lines []string) {
	comma := f.language.Join(", ", "", "")
	line, width := "", 0
	for i, group := range f.answer.Groups() {
		whole := ansi.StringWidth(f.language.Join(", ", group...))
		stays := i < 2 || whole > f.width || width+3+whole <= f.width
		for k, part := range group {
			between := comma
			if k == 0 {
				between = " · "
			}

			part = f.say(part)
			w, gap, follows := ansi.StringWidth(part), ansi.StringWidth(between), 0
			if k+1 < len(group) {
				follows = ansi.StringWidth(comma)
			}

			switch {
			case line == "":
				line, width = f.headPart(i, part), w
			case width+gap+w+follows <= f.width && (stays || k > 0):
				line, width = line+between+f.headPart(i, part), width+gap+w
			default:
				line += strings.TrimSuffix(strings.TrimRight(between, " "), " ·")
				lines = append(lines, strings.Split(ansi.Wrap(line, f.width, ""), "\n")...)
				line, width = f.headPart(i, part), w
			}
		}
	}

	return append(lines, strings.Split(ansi.Wrap(line, f.width, ""), "\n")...)
}

// computerText is what the whole computer uses beside its devices; "" where that is not known.
func (f *frame) computerText() string {
	c := &f.whole
	if c.Processors == 0 || c.Memory == 0 || f.busy < 0 {
		return ""
	}
	return fmt.Sprintf("CPU %.1f/%d  %s %s/%s", f.busy, c.Processors, f.say("RAM"), formatSize(c.Use), formatSize(c.Memory))
}

// headPart colours a part of a group of the first line.
func (f *frame) headPart(group int, text string) string {
	switch {
	case group == 0 && f.answer.Free.Count > 0:
		return boldText(f.theme.paintText(text, f.theme.good))
	case group == 2 && f.answer.Troubles[0].Grave:
		return boldText(f.theme.paintText(text, f.theme.bad))
	case group == 2 && f.answer.Troubles[0].Key != glance.Well:
		return f.theme.paintText(text, f.theme.warn)
	}
	return boldText(text)
}

// bottomLines is the last answer or the whole of the chosen row, in as many lines as that needs, and what can be typed.
func (f *frame) bottomLines() []string {
	foot := f.footText()
	if f.help || f.log != nil {
		return []string{foot}
	}

	text := f.said
	if text == "" {
		text = f.detailText()
	}

	if text == "" || f.height < 10 && f.said == "" {
		return []string{foot}
	}

	lines := strings.Split(ansi.Wrap(text, f.width, ""), "\n")
	most := max(1, f.height/2)
	if f.said == "" {
		most = 1 + f.height/40
		for i := range lines {
			lines[i] = f.theme.dimText(lines[i])
		}
	}

	if len(lines) > most {
		lines = lines[:most]
		lines[most-1] = ansi.Truncate(lines[most-1], f.width-1, "") + "…"
	}

	return append(lines, foot)
}

// detailText says what has no room in the chosen row.
func (f *frame) detailText() string {
	rows := f.allRows()
	if len(rows) == 0 {
		return ""
	}

	r := rows[f.chosenPlace(rows)]
	var parts []string
	if r.kind == lease {
		parts = append(parts, r.name, f.say("GPU "+r.where))
	} else if r.kind != worker && r.kind != request && r.kind != queued {
		parts = append(parts, "PID "+r.name)
	}

	if r.remark != "" {
		parts = append(parts, f.say(r.remark))
	}

	if r.line != "" && r.line != r.command {
		parts = append(parts, r.line)
	}

	return strings.Join(parts, " · ")
}

// footText says what can be typed.
func (f *frame) footText() string {
	switch {
	case f.ask != nil:
		return invertText(" " + f.say(f.ask.question) + " y/n ")
	case f.input != nil && f.input.what == "filter":
		return f.say("filter:") + " " + f.input.text + "▏ " + f.say("Enter keeps it, Esc clears it")
	case f.input != nil:
		return f.say("which GPU, by its number:") + " " + f.input.text + "▏ " + f.say("Enter goes on, Esc goes back")
	case f.log != nil:
		return f.theme.dimText("↑↓ PgUp PgDn  g G  q " + f.say("back"))
	case f.help:
		return f.theme.dimText(f.say("any key goes back"))
	case f.width < 48:
		return f.theme.dimText("? " + f.say("keys") + "  q " + f.say("quit"))
	}

	parts := f.footKeys()
	last := "? " + f.say("keys") + "  q"
	line := strings.Join(parts, "  ")
	for ansi.StringWidth(line)+2+ansi.StringWidth(last) > f.width && len(parts) > 1 {
		parts = parts[:len(parts)-1]
		line = strings.Join(parts, "  ")
	}

	return f.theme.dimText(line + "  " + last)
}

// footKeys are the keys of the foot, those that help with the chosen row among the first.
func (f *frame) footKeys() []string {
	show := everybody
	if f.user != "" {
		show = f.user
	}

	filter := f.say("filter")
	if f.filter != "" {
		filter = f.filter
	}

	end := "x " + f.say("end")
	rows := f.allRows()
	if len(rows) > 0 {
		switch r := rows[f.chosenPlace(rows)]; {
		case r.kind == process:
			end = "e " + f.say("evict")
		case r.kind == lease && r.end == "ended":
			end = "r " + f.say("release")
		}
	}

	parts := []string{"s " + f.say("sort") + ":" + f.currentOrder() + map[bool]string{true: "↑"}[f.backwards], "u " + f.sayWord(show), "/ " + filter, "t " + f.say("tree"), end, "o " + f.say("log"), "d " + f.say("drain"), "+- " + spanText(bandSpans()[f.span])}
	if f.width >= 100 {
		parts = append([]string{"↑↓ " + f.say("choose")}, parts...)
		parts = append(parts, "c "+f.say("colours"), "T "+f.say("theme"))
	}

	return parts
}

// padRight makes text exactly as wide.
func padRight(text string, width int) string {
	text = ansi.Truncate(text, width, "…")
	return text + strings.Repeat(" ", max(0, width-ansi.StringWidth(text)))
}

// padLeft is pad with the text at the right.
func padLeft(text string, width int) string {
	text = ansi.Truncate(text, width, "…")
	return strings.Repeat(" ", max(0, width-ansi.StringWidth(text))) + text
}

func formatUnit[T ~int64 | ~uint64](form string, n T, unit float64) string {
	return fmt.Sprintf(form, float64(n)/unit)
}

// briefDuration is a duration in few columns: "5m", "3h", "12d".
func briefDuration(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%.0fs", max(0, d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0fm", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0fh", d.Hours())
	}
	return fmt.Sprintf("%.0fd", d.Hours()/24)
}

// spanText is the time that the bands show.
func spanText(d time.Duration) string {
	if d < time.Hour {
		return fmt.Sprintf("%.0f min", d.Minutes())
	}
	return fmt.Sprintf("%.0f h", d.Hours())
}
