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
func (v *frame) renderScreen() string {
	bottom := v.bottomLines()
	room := max(0, v.height-len(bottom))
	lines := v.bodyLines(room)
	for len(lines) < room {
		lines = append(lines, "")
	}

	lines = append(lines[:room], bottom...)
	for i := range lines {
		lines[i] = ansi.Truncate(lines[i], v.width, "…")
	}

	return strings.Join(lines, "\n")
}

// bodyLines has so many lines at most: the first line, the devices, what uses them, and what waits. What has no room is counted.
func (v *frame) bodyLines(room int) []string {
	switch {
	case v.help:
		return v.helpLines()
	case v.log != nil:
		return v.logLines(room)
	}

	lines := v.head()
	running, waiting := v.listRows()
	if v.seen.At.IsZero() {
		return lines
	}

	below := 1 + min(3, max(1, len(running)))
	if len(waiting) > 0 {
		below += 2
	}

	all := 2 + max(1, len(running)) + len(waiting)
	lines = append(lines, v.deviceLines(max(1, room-len(lines)-below), room-len(lines)-all)...)

	return append(lines, newTables(v.model, running, waiting).drawTables(max(1, room-len(lines)))...)
}

// head is the first line; it continues below where it is too long.
func (v *frame) head() []string {
	if v.seen.At.IsZero() {
		return []string{boldText(v.say("the machine is being read"))}
	}

	clock := v.seen.Report.Taken.Local().Format("15:04:05")
	if whole := v.computerText(); whole != "" && v.width >= 120 {
		clock = whole + "  " + clock
	}

	lines := v.headLines()
	for i := range lines {
		// Where there is room for it.
		gap := v.width - ansi.StringWidth(lines[i]) - ansi.StringWidth(clock)
		if gap >= 2 {
			lines[i] += strings.Repeat(" ", gap) + v.theme.dimText(clock)
			break
		}
	}

	if v.seen.Trouble != "" {
		lines = append(lines, v.theme.paintText("! "+v.say(v.seen.Trouble), v.theme.bad))
	}

	return lines
}

// headLines are the parts of the first line, in as many lines as they need: a part goes below where it has no room, and troubles stay
// together.
func (v *frame) headLines() (lines []string) {
	comma := v.language.Join(", ", "", "")
	line, width := "", 0
	for i, group := range v.answer.Groups() {
		whole := ansi.StringWidth(v.language.Join(", ", group...))
		stays := i < 2 || whole > v.width || width+3+whole <= v.width
		for k, part := range group {
			between := comma
			if k == 0 {
				between = " · "
			}

			part = v.say(part)
			w, gap, follows := ansi.StringWidth(part), ansi.StringWidth(between), 0
			if k+1 < len(group) {
				follows = ansi.StringWidth(comma)
			}

			switch {
			case line == "":
				line, width = v.headPart(i, part), w
			case width+gap+w+follows <= v.width && (stays || k > 0):
				line, width = line+between+v.headPart(i, part), width+gap+w
			default:
				line += strings.TrimSuffix(strings.TrimRight(between, " "), " ·")
				lines = append(lines, strings.Split(ansi.Wrap(line, v.width, ""), "\n")...)
				line, width = v.headPart(i, part), w
			}
		}
	}

	return append(lines, strings.Split(ansi.Wrap(line, v.width, ""), "\n")...)
}

// computerText is what the whole computer uses beside its devices; "" where that is not known.
func (v *frame) computerText() string {
	c := &v.whole
	if c.Processors == 0 || c.Memory == 0 || v.busy < 0 {
		return ""
	}
	return fmt.Sprintf("CPU %.1f/%d  %s %s/%s", v.busy, c.Processors, v.say("RAM"), formatSize(c.Use), formatSize(c.Memory))
}

// headPart colours a part of a group of the first line.
func (v *frame) headPart(group int, text string) string {
	switch {
	case group == 0 && v.answer.Free.Count > 0:
		return boldText(v.theme.paintText(text, v.theme.good))
	case group == 2 && v.answer.Troubles[0].Grave:
		return boldText(v.theme.paintText(text, v.theme.bad))
	case group == 2 && v.answer.Troubles[0].Key != glance.Well:
		return v.theme.paintText(text, v.theme.warn)
	}
	return boldText(text)
}

// bottomLines is the last answer or the whole of the chosen row, in as many lines as that needs, and what can be typed.
func (v *frame) bottomLines() []string {
	foot := v.footText()
	if v.help || v.log != nil {
		return []string{foot}
	}

	text := v.said
	if text == "" {
		text = v.detailText()
	}

	if text == "" || v.height < 10 && v.said == "" {
		return []string{foot}
	}

	lines := strings.Split(ansi.Wrap(text, v.width, ""), "\n")
	most := max(1, v.height/2)
	if v.said == "" {
		most = 1 + v.height/40
		for i := range lines {
			lines[i] = v.theme.dimText(lines[i])
		}
	}

	if len(lines) > most {
		lines = lines[:most]
		lines[most-1] = ansi.Truncate(lines[most-1], v.width-1, "") + "…"
	}

	return append(lines, foot)
}

// detailText says what has no room in the chosen row.
func (v *frame) detailText() string {
	rows := v.allRows()
	if len(rows) == 0 {
		return ""
	}

	r := rows[v.chosenPlace(rows)]
	var parts []string
	if r.kind == lease {
		parts = append(parts, r.name, v.say("GPU "+r.where))
	} else if r.kind != worker && r.kind != request && r.kind != queued {
		parts = append(parts, "PID "+r.name)
	}

	if r.remark != "" {
		parts = append(parts, v.say(r.remark))
	}

	if r.line != "" && r.line != r.command {
		parts = append(parts, r.line)
	}

	return strings.Join(parts, " · ")
}

// footText says what can be typed.
func (v *frame) footText() string {
	switch {
	case v.ask != nil:
		return invertText(" " + v.say(v.ask.question) + " y/n ")
	case v.input != nil && v.input.what == "filter":
		return v.say("filter:") + " " + v.input.text + "▏ " + v.say("Enter keeps it, Esc clears it")
	case v.input != nil:
		return v.say("which GPU, by its number:") + " " + v.input.text + "▏ " + v.say("Enter goes on, Esc goes back")
	case v.log != nil:
		return v.theme.dimText("↑↓ PgUp PgDn  g G  q " + v.say("back"))
	case v.help:
		return v.theme.dimText(v.say("any key goes back"))
	case v.width < 48:
		return v.theme.dimText("? " + v.say("keys") + "  q " + v.say("quit"))
	}

	parts := v.footKeys()
	last := "? " + v.say("keys") + "  q"
	line := strings.Join(parts, "  ")
	for ansi.StringWidth(line)+2+ansi.StringWidth(last) > v.width && len(parts) > 1 {
		parts = parts[:len(parts)-1]
		line = strings.Join(parts, "  ")
	}

	return v.theme.dimText(line + "  " + last)
}

// footKeys are the keys of the foot, those that help with the chosen row among the first.
func (v *frame) footKeys() []string {
	show := everybody
	if v.user != "" {
		show = v.user
	}

	filter := v.say("filter")
	if v.filter != "" {
		filter = v.filter
	}

	end := "x " + v.say("end")
	rows := v.allRows()
	if len(rows) > 0 {
		switch r := rows[v.chosenPlace(rows)]; {
		case r.kind == process:
			end = "e " + v.say("evict")
		case r.kind == lease && r.end == "ended":
			end = "r " + v.say("release")
		}
	}

	parts := []string{"s " + v.say("sort") + ":" + v.currentOrder() + map[bool]string{true: "↑"}[v.backwards], "u " + v.sayWord(show), "/ " + filter, "t " + v.say("tree"), end, "o " + v.say("log"), "d " + v.say("drain"), "+- " + spanText(bandSpans()[v.span])}
	if v.width >= 100 {
		parts = append([]string{"↑↓ " + v.say("choose")}, parts...)
		parts = append(parts, "c "+v.say("colours"), "T "+v.say("theme"))
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
