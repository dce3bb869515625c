// Package top is the full screen of gpuard top: what is free, a band of the last minutes or hours of each device, who has them, and what
// waits. It shows what app/observe sees, and does what the command line would do, after a question.
package top

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"gpuard/internal/app/observe"
	"gpuard/internal/core/glance"
	"gpuard/internal/ui/translate"
)

// Run is gpuard top: it shows the screen until q or Ctrl-C.
func Run(ctx context.Context, view observe.View) error {
	quiet := *view.Host

	// The screen is not for lines of text.
	quiet.Say = func(string) {}
	observer, err := observe.New(&quiet, "")
	if err != nil {
		return err
	}

	ctx, end := context.WithCancel(ctx)
	defer end()
	go observer.Run(ctx)
	changed, leave := observer.Listen()
	defer leave()
	_, colourless := view.Host.Env.Lookup("NO_COLOR")
	m := model{ctx: ctx, actions: view.Actions(observer.Host), width: 80, height: 24}
	m.theme, m.asks = themeOf(view.Theme, colourless)
	m.language, m.me = translate.ChooseLanguage(view.Host.Env), nameOfMe()
	w := &watcher{ctx: ctx, observer: observer, changed: changed, sources: view.Sources(observer.Host), me: m.me}
	m.await = w.awaitNews
	if view.Log != nil {
		m.openLog = view.Log(observer.Host)
	}

	m.before = observe.PastMinutes(observer.Host)
	if len(m.before) > 0 {
		// There is an hour to show.
		m.span = 1
	}

	m.seen = observer.Now()
	ended, err := observe.EndedLeases(ctx, observer.Host)
	if err == nil {
		// Without it the bands begin with the leases of now.
		m.addEndedLeases(ended, time.Now())
		for i := range ended {
			m.meetUser(ended[i].User)
		}
	}

	if _, err := tea.NewProgram(m, tea.WithContext(ctx)).Run(); err != nil {
		return fmt.Errorf("cannot show the screen: %w; gpuard status shows it once", err)
	}

	return nil
}

// nameOfMe is the user who looks.
func nameOfMe() string {
	u, err := user.LookupId(fmt.Sprint(os.Geteuid()))
	if err != nil {
		return ""
	}
	return u.Username
}

// watcher waits for news, and reads beside them what the observer does not.
type watcher struct {
	ctx      context.Context
	observer *observe.Observer
	changed  <-chan struct{}
	sources  []observe.Source
	me       string

	last     time.Time // when that was read
	workers  map[string][]observe.Worker
	computer observe.Computer
	queue    queueSeen
}

// besideInterval is the time between two readings of the processes and the queue.
const besideInterval = 2 * time.Second

func (w *watcher) awaitNews() tea.Msg {
	select {
	case <-w.changed:
	case <-w.ctx.Done():
		return tea.QuitMsg{}
	}
	seen := w.observer.Now()
	if now := time.Now(); now.Sub(w.last) >= besideInterval {
		w.last = now
		w.workers = observe.Workers(w.observer.Host, &seen.Report)
		w.computer = observe.ReadComputer(w.observer.Host)
		w.queue = readQueue(w.ctx, w.sources, w.me)
	}

	return screenReading{seen, w.workers, w.computer, w.queue, w.last}
}

// model is what the screen shows; update makes the next one of it.
type model struct {
	ctx     context.Context
	await   tea.Cmd
	actions []observe.Action
	openLog observe.LogReader

	screenStyle
	readingHistory

	seen   observe.Snapshot
	answer glance.Answer
	starts []time.Time
	queue  queueSeen

	width, height int
	by            int // index of the order
	backwards     bool
	// Index of the time of the bands.
	span         int
	byUser       bool
	tree         bool
	filter, user string
	input        *input
	at           string // row that is chosen
	// Last answer, until the next key, or for a while.
	said   string
	saidAt time.Time
	// The keys are shown, until the next one.
	help bool
	ask  *question
	log  *logPane
}

// Messages of our own.
type (
	screenReading struct {
		seen     observe.Snapshot
		workers  map[string][]observe.Worker
		computer observe.Computer
		queue    queueSeen
		// The time of what was read beside it.
		at time.Time
	}
	outcome string
)

// answerDuration is how long an answer is shown.
const answerDuration = 15 * time.Second

// Init waits for the first reading, and asks the terminal for its background.
func (m model) Init() tea.Cmd {
	if m.asks {
		return tea.Batch(m.await, tea.RequestBackgroundColor)
	}
	return m.await
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
	case tea.BackgroundColorMsg:
		if m.asks && !isDark(x) {
			m.theme = lightTheme
		}
	case screenReading:
		m.applyReading(x.seen)
		m.countProcesses(x.workers, x.computer, x.at)
		m.queue = x.queue

		return m, tea.Batch(m.await, m.refreshLog())
	case logRead:
		m.showLog(x)
	case outcome:
		m.said = string(x)
	case tea.KeyPressMsg:
		return m.pressKey(x)
	}
	return m, nil
}

// View is the whole screen.
func (m model) View() tea.View {
	v := tea.NewView((&frame{&m}).renderScreen())
	v.AltScreen = true
	v.WindowTitle = "gpuard top"
	if !m.seen.At.IsZero() {
		v.WindowTitle = "gpuard: " + m.answer.Title()
	}

	return v
}

func (m *model) currentOrder() string { return sortOrders()[m.by] }

// listRows are the rows of what runs and of what waits.
func (m *model) listRows() (running, waiting []row) {
	running = filterAndSort(m.newLister().runningRows(), m.currentOrder(), m.filter, m.user)
	if m.backwards {
		slices.Reverse(running)
	}

	if m.tree {
		running = treeOf(running, m.workers, m.processorRate)
	}

	waiting = m.newLister().waitingRows()
	waiting = slices.DeleteFunc(waiting, func(r row) bool { return len(filterAndSort([]row{r}, "GPU", m.filter, m.user)) == 0 })

	return running, waiting
}

func (m *model) newLister() *rowBuilder {
	return &rowBuilder{&m.seen.Report, m.works, &m.queue, m.starts, m.me}
}

func (m *model) allRows() []row {
	running, waiting := m.listRows()
	return append(running, waiting...)
}

// chosenPlace is the place of the chosen row; the first one if that is gone.
func (m *model) chosenPlace(rows []row) int {
	return max(0, slices.IndexFunc(rows, func(r row) bool { return r.id == m.at }))
}
