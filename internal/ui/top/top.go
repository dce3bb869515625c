// Package top is the full screen of gpuard top: devices with their last seconds, who has them, and what waits. It shows
// what app/observe sees, and does what the command line would do, after a question.
package top

import (
	"context"
	"fmt"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"gpuard/internal/app/observe"
	"gpuard/internal/core/status"
)

// Run is gpuard top: it shows the screen until q or Ctrl-C.
func Run(ctx context.Context, view observe.View) error {
	quiet := *view.Host
	quiet.Say = func(string) {} // the screen is not for lines of text
	observer, err := observe.New(&quiet, "")
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	go observer.Run(ctx)
	changed, leave := observer.Listen()
	defer leave()
	m := model{observer: observer, changed: changed, actions: view.Actions(observer.Host), loads: map[string][]float64{}, width: 80, height: 24, ctx: ctx}
	m.seen = observer.Now()
	if _, err := tea.NewProgram(m, tea.WithContext(ctx)).Run(); err != nil {
		return fmt.Errorf("cannot show the screen: %w; gpuard status shows it once", err)
	}
	return nil
}

// model is what the screen shows; update makes the next one of it.
type model struct {
	ctx      context.Context
	observer *observe.Observer
	changed  <-chan struct{}
	actions  []observe.Action

	seen          observe.Seen
	loads         map[string][]float64 // of the last readings by UUID; -1 not read
	width, height int
	by            int // index of the order
	filter        string
	typing        bool
	at            string // row that is chosen
	said          string // last answer, until the next key, or for a while
	saidAt        time.Time
	help          bool // the keys are shown, until the next one
	ask           *question
}

// question is asked before something is done.
type question struct {
	question, done string
	action         string
	words          []string
}

// Messages of our own.
type (
	reading struct{}
	outcome string
)

const (
	seconds = 120              // of load that are kept for the curves
	stays   = 15 * time.Second // how long an answer is shown
)

// Init waits for the first reading.
func (m model) Init() tea.Cmd { return m.await() }

func (m model) await() tea.Cmd {
	return func() tea.Msg {
		select {
		case <-m.changed:
			return reading{}
		case <-m.ctx.Done():
			return tea.QuitMsg{}
		}
	}
}

// Update takes a key, a size or a reading in.
func (m model) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	next, cmd := m.update(message)
	if n, ok := next.(model); ok && n.said != m.said {
		n.saidAt = n.seen.At
		return n, cmd
	}
	return next, cmd
}

func (m model) update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch x := message.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = max(20, x.Width), max(6, x.Height)
	case reading:
		m.take(m.observer.Now())
		return m, m.await()
	case outcome:
		m.said = string(x)
	case tea.KeyPressMsg:
		m.said = ""
		if m.help && !leaves(x.String()) {
			m.help = false
			return m, nil
		}
		switch {
		case m.ask != nil:
			return m.answer(x.String())
		case m.typing:
			return m.write(x), nil
		}
		return m.key(x.String())
	}
	return m, nil
}

// View is the whole screen.
func (m model) View() tea.View {
	v := tea.NewView(m.screen())
	v.AltScreen = true
	v.WindowTitle = "gpuard top"
	return v
}

// take takes a reading in.
func (m *model) take(seen observe.Seen) {
	fresh := seen.At.After(m.seen.At)
	m.seen = seen
	if !fresh {
		return
	}
	if seen.At.Sub(m.saidAt) >= stays {
		m.said = ""
	}
	for _, d := range seen.Report.Devices {
		load := -1.0
		if d.Utilization != nil {
			load = *d.Utilization
		}
		list := append(m.loads[string(d.UUID)], load)
		m.loads[string(d.UUID)] = list[max(0, len(list)-seconds):]
	}
}

func (m model) order() string { return orders()[m.by] }

func (m model) rows() []row { return sorted(rowsOf(&m.seen.Report), m.order(), m.filter) }

// chosen is the place of the chosen row; the first one if that is gone.
func (m model) chosen(rows []row) int {
	return max(0, slices.IndexFunc(rows, func(r row) bool { return r.id == m.at }))
}

func leaves(key string) bool { return key == "q" || key == "ctrl+c" || key == "ctrl+d" }

func (m model) key(key string) (tea.Model, tea.Cmd) {
	rows := m.rows()
	at := m.chosen(rows)
	if leaves(key) {
		return m, tea.Quit
	}
	switch key {
	case "?", "h":
		m.help = true
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
		at = len(rows) - 1
	case "s":
		m.by = (m.by + 1) % len(orders())
	case "/", "f":
		m.typing = true
	case "esc":
		m.filter = ""
	case "r", "e", "d":
		m.begin(key, rows)
		return m, nil
	}
	if len(rows) > 0 {
		m.at = rows[max(0, min(at, len(rows)-1))].id
	}
	return m, nil
}

// begin asks whether something is to be done with the chosen row.
func (m *model) begin(key string, rows []row) {
	if len(rows) == 0 && key != "d" {
		m.said = "there is nothing to choose"
		return
	}
	var r row
	if len(rows) > 0 {
		r = rows[m.chosen(rows)]
	}
	switch {
	case key == "r" && r.kind == lease:
		m.ask = &question{fmt.Sprintf("release %s of %s?", r.name, r.user), "released " + r.name, "release", []string{r.name}}
	case key == "e" && r.kind == process:
		m.ask = &question{fmt.Sprintf("end process %s of %s?", r.name, r.user), "ended process " + r.name, "evict", []string{r.name}}
	case key == "d":
		m.askDrain(r)
	default:
		m.said = map[string]string{"r": "r is for a lease: choose one", "e": "e is for a process without a lease, and for none of a display: choose one"}[key]
	}
}

// askDrain asks about the device of the row.
func (m *model) askDrain(r row) {
	devices := m.seen.Report.Devices
	i := slices.IndexFunc(devices, func(d status.Device) bool { return string(d.UUID) == r.device })
	if i < 0 && len(devices) == 1 {
		i = 0
	}
	if i < 0 {
		m.said = "choose a row with a GPU, or use gpuard drain"
		return
	}
	d := &devices[i]
	if d.Drained != "" {
		m.ask = &question{fmt.Sprintf("put GPU %d into use again?", d.Index), fmt.Sprintf("GPU %d is in use again", d.Index), "undrain", []string{string(d.UUID)}}
		return
	}
	m.ask = &question{fmt.Sprintf("take GPU %d out of use?", d.Index), fmt.Sprintf("GPU %d gets no new lease", d.Index), "drain", []string{string(d.UUID)}}
}

// answer does what was asked for, or not.
func (m model) answer(key string) (tea.Model, tea.Cmd) {
	ask := m.ask
	m.ask = nil
	if key != "y" && key != "Y" {
		m.said = "nothing was done"
		return m, nil
	}
	i := slices.IndexFunc(m.actions, func(a observe.Action) bool { return a.Name == ask.action })
	if i < 0 {
		m.said = "cannot " + ask.action
		return m, nil
	}
	ctx, action := m.ctx, m.actions[i]
	return m, func() tea.Msg {
		ctx, end := context.WithTimeout(ctx, time.Minute)
		defer end()
		if err := action.Do(ctx, ask.words); err != nil {
			return outcome(err.Error())
		}
		return outcome(ask.done)
	}
}

// write takes a key of the filter in.
func (m model) write(key tea.KeyPressMsg) tea.Model {
	switch key.String() {
	case "enter":
		m.typing = false
	case "esc", "ctrl+c":
		m.typing, m.filter = false, ""
	case "backspace":
		if runes := []rune(m.filter); len(runes) > 0 {
			m.filter = string(runes[:len(runes)-1])
		}
	default:
		m.filter += key.Key().Text
	}
	return m
}
