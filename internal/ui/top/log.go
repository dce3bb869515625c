package top

import (
	"context"
	"strconv"
	"time"

	tea "charm.land/bubbletea/v2"
)

// logPane shows the last lines of what a job has written, in place of the lists.
type logPane struct {
	name  string // what was asked for
	title string
	lines []string
	// How many lines the view is above the last ones.
	up int
}

// logRead is an answer about a log.
type logRead struct {
	name, title string
	// It was asked for by a key: else it is shown only while its pane is there.
	opens bool
	lines []string
	err   error
}

const (
	maxLogLines = 2000
	logTimeout  = 10 * time.Second
)

// openRowLog opens the log of the chosen row.
func (m model) openRowLog(rows []row) (tea.Model, tea.Cmd) {
	if len(rows) == 0 {
		m.said = m.say("there is nothing to choose")
		return m, nil
	}

	r := rows[m.chosenPlace(rows)]
	switch {
	case r.kind == process || r.kind == spared:
		m.said = m.say("a process without a lease has no log here")
		return m, nil
	case r.user != m.me:
		m.said = m.say("o is for your own jobs; this one belongs to " + r.user)
		return m, nil
	case r.kind.isWaiting():
		m.said = m.say("it waits, and has written nothing yet")
		return m, nil
	}

	name := r.name
	if r.job > 0 {
		name = strconv.Itoa(r.job)
	}

	return m, m.readLog(name, true)
}

func (m *model) readLog(name string, opens bool) tea.Cmd {
	if m.openLog == nil {
		return nil
	}
	ctx, open := m.ctx, m.openLog
	return func() tea.Msg {
		ctx, end := context.WithTimeout(ctx, logTimeout)
		defer end()
		title, lines, err := open(ctx, name, maxLogLines)

		return logRead{name, title, opens, lines, err}
	}
}

// refreshLog reads the log again that is shown, with each reading of the machine.
func (m *model) refreshLog() tea.Cmd {
	if m.log == nil {
		return nil
	}
	return m.readLog(m.log.name, false)
}

// showLog shows what was read. What is above stays where it is while lines are added below.
func (m *model) showLog(x logRead) {
	switch {
	case !x.opens && (m.log == nil || m.log.name != x.name):
		return
	case x.err != nil && m.log == nil:
		m.said = m.say(x.err.Error())
		return
	case x.err != nil:
		// Its job has ended: what was read stays.
		return
	}
	next := logPane{name: x.name, title: x.title, lines: x.lines}
	if m.log != nil && m.log.name == x.name && m.log.up > 0 {
		next.up = m.log.up + max(0, len(x.lines)-len(m.log.lines))
	}
	m.log = &next
}

// scrollLog takes a key in while a log is shown.
func (m model) scrollLog(key string) tea.Model {
	if key == "q" || key == "esc" || key == "o" || key == "enter" {
		m.log = nil
		return m
	}

	pane := *m.log
	room := max(1, m.height-2)
	switch key {
	case "up", "k":
		pane.up++
	case "down", "j":
		pane.up--
	case "pgup", "b":
		pane.up += room
	case "pgdown", "space":
		pane.up -= room
	case "home", "g":
		pane.up = len(pane.lines)
	case "end", "G":
		pane.up = 0
	}

	pane.up = max(0, min(pane.up, len(pane.lines)-room))
	m.log = &pane

	return m
}
