package top

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"gpuard/internal/app/observe"
)

// question is asked before something is done.
type question struct {
	question, done string
	action         string
	words          []string
}

// input is text that is being typed.
type input struct {
	what string // "filter", "gpu"
	text string
}

func isQuitKey(key string) bool { return key == "q" || key == "ctrl+c" || key == "ctrl+d" }

// pressKey takes a key in.
func (m model) pressKey(key tea.KeyPressMsg) (tea.Model, tea.Cmd) {
	m.said = ""
	name := key.String()
	if name == "ctrl+c" {
		return m, tea.Quit
	}

	switch {
	case m.help && !isQuitKey(name):
		m.help = false
		return m, nil
	case m.log != nil:
		return m.scrollLog(name), nil
	case m.ask != nil:
		return m.confirmAction(name)
	case m.input != nil:
		return m.typeKey(key), nil
	}

	return m.applyKey(name)
}

func (m model) applyKey(key string) (tea.Model, tea.Cmd) {
	if isQuitKey(key) {
		return m, tea.Quit
	}

	rows := m.allRows()
	if at, moves := moveChoice(key, m.chosenPlace(rows), len(rows)); moves {
		if len(rows) > 0 {
			m.at = rows[at].id
		}
		return m, nil
	}

	switch key {
	case "?", "h":
		m.help = true
	case "s":
		m.by = (m.by + 1) % len(sortOrders())
	case "S":
		m.by = (m.by + len(sortOrders()) - 1) % len(sortOrders())
	case "R":
		m.backwards = !m.backwards
	case "/", "f":
		m.input = &input{what: "filter", text: m.filter}
	case "u":
		m.nextUser()
	case "esc":
		m.filter, m.user = "", ""
	case "t":
		m.tree = !m.tree
	case "c":
		m.byUser = !m.byUser
	case "T":
		m.nextTheme()
		m.said = m.say("theme: " + m.theme.name)
	case "-", "_":
		m.span = min(m.span+1, len(bandSpans())-1)
	case "+", "=":
		m.span = max(m.span-1, 0)
	case "o", "enter":
		return m.openRowLog(rows)
	case "x", "r", "e", "d":
		m.askAction(key, rows)
	}

	return m, nil
}

// moveChoice is where a key moves the choice to among n rows.
func moveChoice(key string, at, n int) (to int, moves bool) {
	switch key {
	case "up", "k":
		at--
	case "down", "j":
		at++
	case "pgup":
		at -= 10
	case "pgdown":
		at += 10
	case "home", "g":
		at = 0
	case "end", "G":
		at = n - 1
	default:
		return at, false
	}
	return max(0, min(at, n-1)), true
}

// nextUser shows only the rows of the next user: first one's own, then those of the others, then all.
func (m *model) nextUser() {
	var names []string
	running, waiting := m.newLister().runningRows(), m.newLister().waitingRows()
	for _, r := range append(running, waiting...) {
		if r.user != m.me && r.user != "" && r.user != "?" && !slices.Contains(names, r.user) {
			names = append(names, r.user)
		}
	}

	slices.Sort(names)
	names = append([]string{"", m.me}, names...)
	m.user = names[(slices.Index(names, m.user)+1)%len(names)]
}

// askAction asks whether something is to be done with the chosen row.
func (m *model) askAction(key string, rows []row) {
	if key == "d" {
		m.chooseDrain(rows)
		return
	}
	if len(rows) == 0 {
		m.said = m.say("there is nothing to choose")
		return
	}
	r := rows[m.chosenPlace(rows)]
	switch {
	case key == "x":
		m.askEnd(r)
	case key == "r" && r.kind == lease:
		m.ask = &question{fmt.Sprintf("release %s of %s?", r.name, r.user), "released " + r.name, "release", []string{r.name}}
	case key == "e" && r.kind == process:
		m.ask = &question{fmt.Sprintf("end process %s of %s?", r.name, r.user), "ended process " + r.name, "evict", []string{r.name}}
	default:
		m.said = m.say(map[string]string{"r": "r is for a lease: choose one", "e": "e is for a process without a lease, and for none of a display: choose one"}[key])
	}
}

// askEnd asks whether a job is to be ended.
func (m *model) askEnd(r row) {
	what, word := r.command, r.name
	if r.job > 0 {
		what, word = fmt.Sprintf("job %d, %s", r.job, r.command), strconv.Itoa(r.job)
	}

	if r.kind == worker {
		m.said = m.say("x ends a whole job: choose its row, not that of one of its processes")
		return
	}

	running := ""
	if r.since != nil {
		running = ", running " + briefDuration(m.seen.Report.Now.Sub(*r.since))
	}

	switch {
	case r.kind == process || r.kind == spared:
		m.said = m.say("x is for a job with a lease; e ends a process without one")
	case r.user != m.me:
		m.said = m.say("x is for your own jobs; this one belongs to " + r.user)
	case r.kind.isWaiting() && r.job == 0:
		m.said = m.say("it waits in a terminal: press Ctrl-C there")
	case r.kind.isWaiting():
		m.ask = &question{fmt.Sprintf("cancel %s, which waits?", what), "cancelled " + what, "cancel", []string{word}}
	default:
		m.ask = &question{fmt.Sprintf("end %s of %s on GPU %s%s?", what, r.user, r.where, running), "asked " + what + " to end", "cancel", []string{word}}
	}
}

// chooseDrain asks about the device of the chosen row, or which one is meant.
func (m *model) chooseDrain(rows []row) {
	var devices []int
	if len(rows) > 0 {
		devices = rows[m.chosenPlace(rows)].devices
	}

	if len(m.seen.Report.Devices) == 1 {
		devices = []int{0}
	}

	if len(devices) == 1 {
		m.askDrain(devices[0])
		return
	}

	m.input = &input{what: "gpu"}
}

// askDrain asks whether a device is taken out of use, or is put into use again.
func (m *model) askDrain(place int) {
	d := &m.seen.Report.Devices[place]
	if d.Drained != "" {
		m.ask = &question{fmt.Sprintf("put GPU %d into use again?", d.Index), fmt.Sprintf("GPU %d is in use again", d.Index), "undrain", []string{string(d.UUID)}}
		return
	}
	m.ask = &question{fmt.Sprintf("take GPU %d out of use?", d.Index), fmt.Sprintf("GPU %d gets no new lease", d.Index), "drain", []string{string(d.UUID)}}
}

// confirmAction does what was asked for, or not.
func (m model) confirmAction(key string) (tea.Model, tea.Cmd) {
	ask := m.ask
	m.ask = nil
	if key != "y" && key != "Y" {
		m.said = m.say("nothing was done")
		return m, nil
	}

	i := slices.IndexFunc(m.actions, func(a observe.Action) bool { return a.Name == ask.action })
	if i < 0 {
		m.said = "cannot " + ask.action
		return m, nil
	}

	ctx, action, say := m.ctx, m.actions[i], m.say

	return m, func() tea.Msg {
		ctx, end := context.WithTimeout(ctx, time.Minute)
		defer end()
		err := action.Do(ctx, ask.words)
		if err != nil {
			return outcome(say(err.Error()))
		}

		return outcome(say(ask.done))
	}
}

// typeKey takes a key of what is typed in.
func (m model) typeKey(key tea.KeyPressMsg) tea.Model {
	typed := *m.input
	switch key.String() {
	case "enter":
		m.input = nil
		if typed.what == "gpu" {
			m.askDrainNumber(typed.text)
		}
		return m
	case "esc":
		m.input = nil
		if typed.what == "filter" {
			m.filter = ""
		}
		return m
	case "backspace":
		if runes := []rune(typed.text); len(runes) > 0 {
			typed.text = string(runes[:len(runes)-1])
		}
	default:
		typed.text += key.Key().Text
	}

	m.input = &typed
	if typed.what == "filter" {
		m.filter = typed.text
	}

	return m
}

// askDrainNumber asks about the device with a number.
func (m *model) askDrainNumber(text string) {
	for i := range m.seen.Report.Devices {
		if fmt.Sprint(m.seen.Report.Devices[i].Index) == strings.TrimSpace(text) {
			m.askDrain(i)
			return
		}
	}
	m.said = m.say("nothing was done")
}
