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

func leaves(key string) bool { return key == "q" || key == "ctrl+c" || key == "ctrl+d" }

// press takes a key in.
func (m model) press(key tea.KeyPressMsg) (tea.Model, tea.Cmd) {
	m.said = ""
	name := key.String()
	if name == "ctrl+c" {
		return m, tea.Quit
	}
	switch {
	case m.help && !leaves(name):
		m.help = false
		return m, nil
	case m.log != nil:
		return m.turnLog(name), nil
	case m.ask != nil:
		return m.confirm(name)
	case m.input != nil:
		return m.write(key), nil
	}
	return m.key(name)
}

func (m model) key(key string) (tea.Model, tea.Cmd) {
	if leaves(key) {
		return m, tea.Quit
	}
	rows := m.rows()
	if at, moves := moved(key, m.chosen(rows), len(rows)); moves {
		if len(rows) > 0 {
			m.at = rows[at].id
		}
		return m, nil
	}
	switch key {
	case "?", "h":
		m.help = true
	case "s":
		m.by = (m.by + 1) % len(orders())
	case "S":
		m.by = (m.by + len(orders()) - 1) % len(orders())
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
		m.span = min(m.span+1, len(spans())-1)
	case "+", "=":
		m.span = max(m.span-1, 0)
	case "o", "enter":
		return m.open(rows)
	case "x", "r", "e", "d":
		m.begin(key, rows)
	}
	return m, nil
}

// moved is where a key moves the choice to among n rows.
func moved(key string, at, n int) (to int, moves bool) {
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
	running, waiting := m.lister().running(), m.lister().waiting()
	for _, r := range append(running, waiting...) {
		if r.user != m.me && r.user != "" && r.user != "?" && !slices.Contains(names, r.user) {
			names = append(names, r.user)
		}
	}
	slices.Sort(names)
	names = append([]string{"", m.me}, names...)
	m.user = names[(slices.Index(names, m.user)+1)%len(names)]
}

// begin asks whether something is to be done with the chosen row.
func (m *model) begin(key string, rows []row) {
	if key == "d" {
		m.beginDrain(rows)
		return
	}
	if len(rows) == 0 {
		m.said = m.say("there is nothing to choose")
		return
	}
	r := rows[m.chosen(rows)]
	switch {
	case key == "x":
		m.beginEnd(r)
	case key == "r" && r.kind == lease:
		m.ask = &question{fmt.Sprintf("release %s of %s?", r.name, r.user), "released " + r.name, "release", []string{r.name}}
	case key == "e" && r.kind == process:
		m.ask = &question{fmt.Sprintf("end process %s of %s?", r.name, r.user), "ended process " + r.name, "evict", []string{r.name}}
	default:
		m.said = m.say(map[string]string{"r": "r is for a lease: choose one", "e": "e is for a process without a lease, and for none of a display: choose one"}[key])
	}
}

// beginEnd asks whether a job is to be ended.
func (m *model) beginEnd(r row) {
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
		running = ", running " + brief(m.seen.Report.Now.Sub(*r.since))
	}
	switch {
	case r.kind == process || r.kind == spared:
		m.said = m.say("x is for a job with a lease; e ends a process without one")
	case r.user != m.me:
		m.said = m.say("x is for your own jobs; this one belongs to " + r.user)
	case r.kind.waits() && r.job == 0:
		m.said = m.say("it waits in a terminal: press Ctrl-C there")
	case r.kind.waits():
		m.ask = &question{fmt.Sprintf("cancel %s, which waits?", what), "cancelled " + what, "cancel", []string{word}}
	default:
		m.ask = &question{fmt.Sprintf("end %s of %s on GPU %s%s?", what, r.user, r.where, running), "asked " + what + " to end", "cancel", []string{word}}
	}
}

// beginDrain asks about the device of the chosen row, or which one is meant.
func (m *model) beginDrain(rows []row) {
	var devices []int
	if len(rows) > 0 {
		devices = rows[m.chosen(rows)].devices
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

// confirm does what was asked for, or not.
func (m model) confirm(key string) (tea.Model, tea.Cmd) {
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

// write takes a key of what is typed in.
func (m model) write(key tea.KeyPressMsg) tea.Model {
	typed := *m.input
	switch key.String() {
	case "enter":
		m.input = nil
		if typed.what == "gpu" {
			m.drainNamed(typed.text)
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

// drainNamed asks about the device with a number.
func (m *model) drainNamed(text string) {
	for i := range m.seen.Report.Devices {
		if fmt.Sprint(m.seen.Report.Devices[i].Index) == strings.TrimSpace(text) {
			m.askDrain(i)
			return
		}
	}
	m.said = m.say("nothing was done")
}
