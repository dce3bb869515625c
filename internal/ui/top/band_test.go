package top

import (
	"errors"
	"fmt"
	"image/color"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/status"
	"gpuard/internal/core/trend"
)

// TestCells: a cell is the mean of what was read in it, a minute fills the cells that no reading fills, and the rest is not known.
func TestCells(t *testing.T) {
	w := windowOf(inventedNow, 10*time.Minute, 20) // of 30 s
	if w.step != 30*time.Second || w.cellAt(inventedNow) != 19 || w.cellAt(inventedNow.Add(-9*time.Minute-30*time.Second)) != 0 || w.cellAt(inventedNow.Add(-time.Hour)) >= 0 {
		t.Fatalf("%+v", w)
	}
	p := &deviceHistory{}
	for i, load := range []float64{0.2, 0.4, -1, 0.6} {
		p.addSample(loadSample{inventedNow.Add(time.Duration(i) * time.Second), load})
	}
	id := gpu.UUID("GPU-1")
	minutes := []trend.Minute{
		{At: inventedNow.Add(-2 * time.Minute), Devices: map[gpu.UUID]trend.Mean{id: {Load: new(0.9)}, "GPU-2": {Load: new(0.1)}}},
		{At: inventedNow.Add(-time.Minute), Devices: map[gpu.UUID]trend.Mean{id: {}}},
		{At: inventedNow, Devices: map[gpu.UUID]trend.Mean{id: {Load: new(0.0)}}}, // the readings count, not their minute
	}
	p.noteStay(leaseSpan{"k1", "zoe", "train", inventedNow.Add(-time.Hour), inventedNow.Add(-4 * time.Minute)})
	p.noteStay(leaseSpan{"k2", "bob", "eval", inventedNow.Add(-time.Minute), inventedNow.Add(-30 * time.Second)})
	p.noteStay(leaseSpan{"k2", "bob", "eval", inventedNow.Add(-time.Minute), inventedNow})
	p.noteStay(leaseSpan{"k3", "ann", "eval", inventedNow, inventedNow})
	var got []string
	for _, c := range p.windowCells(w, id, minutes, time.Minute) {
		text := strings.Join(c.users, "+")
		if c.load >= 0 {
			text += fmt.Sprintf("%.1f", c.load)
		}
		got = append(got, text)
	}
	want := strings.Repeat("zoe ", 12) + "   0.9 0.9 bob bob bob+ann0.4" // the three between the leases are not known
	if strings.Join(got, " ") != want {
		t.Errorf("%q", strings.Join(got, " "))
	}
	if p.dropBefore(inventedNow.Add(-2 * time.Minute)); len(p.stays) != 2 {
		t.Errorf("%+v", p.stays)
	}
	for i := range 2 * maxSamples {
		p.addSample(loadSample{inventedNow.Add(time.Duration(i) * time.Second), 0})
	}
	if len(p.samples) != maxSamples {
		t.Errorf("%d readings are kept", len(p.samples))
	}
}

// TestTicks: the times below a band are round, have room, and leave room for now.
func TestTicks(t *testing.T) {
	for _, span := range bandSpans() {
		for _, n := range []int{4, 30, 60, 116} {
			w := windowOf(inventedNow, span, n)
			last := -7
			for _, tick := range w.roundTicks(time.UTC) {
				minutes := 0
				if _, err := fmt.Sscanf(tick.text[3:], "%d", &minutes); err != nil || minutes%5 != 0 && span > 10*time.Minute {
					t.Errorf("%v in %d cells: %q is not round", span, n, tick.text)
				}
				if tick.place-last < 6 || tick.place+5 > n-4 {
					t.Errorf("%v in %d cells: %q at %d", span, n, tick.text, tick.place)
				}
				last = tick.place
			}
			if n >= 30 && last < 0 {
				t.Errorf("%v in %d cells: no time", span, n)
			}
		}
	}
}

// TestColours: a colour is never alone, and mono and NO_COLOR have none.
func TestColours(t *testing.T) {
	for _, name := range []string{"dark", "light", "mono"} {
		m := newModelOf(namedMachine("trouble"), 80, 24, nil)
		m.theme, _ = themeOf(name, false)
		screen := m.View().Content
		if coloured := strings.Contains(screen, "38;"); coloured != (name != "mono") {
			t.Errorf("%s: coloured %v", name, coloured)
		}
		for _, want := range []string{"93%", "unhealthy", "mallory!", "dave!", "busy", "1 GPU unhealthy: lost, 1 process of an intruder", "GPU is lost", "drained carol"} {
			if !strings.Contains(ansi.Strip(screen), want) {
				t.Errorf("%s: no word %q", name, want)
			}
		}
	}
	if chosen, asks := themeOf("auto", true); chosen.name != "mono" || asks {
		t.Error("NO_COLOR is not obeyed")
	}
	if chosen, asks := themeOf("light", true); chosen.name != "light" || asks {
		t.Error("who asks for a theme gets another one")
	}
	if chosen, asks := themeOf("auto", false); chosen.name != "dark" || !asks {
		t.Error("the terminal is not asked for its background")
	}
}

// TestRowOfSeveralDevices: a job on several devices is one row, with their memory in sum and their mean load.
func TestRowOfSeveralDevices(t *testing.T) {
	l := newObservedMachine(3, "NVIDIA A100-SXM4-80GB", 80*gpu.GiB)
	l.addLease("zoe", "train.py", 60, 0.5, 0.25, 0, 2)
	l.report.Devices[2].Utilization = new(0.9)
	m := newModelOf(l, 80, 24, nil)
	rows := m.allRows()
	if len(rows) != 1 || rows[0].where != "0, 2" || *rows[0].memory != 40*gpu.GiB || *rows[0].room != 160*gpu.GiB || *rows[0].load != 0.7 {
		t.Errorf("%+v", rows)
	}
	l.report.Devices[0].Utilization = nil
	m = newModelOf(l, 80, 24, nil)
	if rows := m.allRows(); rows[0].load != nil {
		t.Errorf("the load of one is not known: %v", *rows[0].load)
	}
}

// TestQueueRows: what waits in the own queue is there once: with its place in the line where it has one.
func TestQueueRows(t *testing.T) {
	l := namedMachine("day")
	l.report.Waiting[0].Command = "eval.py"
	l.queue = queueSeen{read: true, Jobs: []jobSeen{
		{Number: 7, Name: "eval.py", State: "waiting", Asks: "1 GPU", Submitted: inventedNow},
		{Number: 8, Name: "eval.py", State: "waiting", Asks: "1 GPU", Submitted: inventedNow, Why: "others of yours are ahead of it"},
		{Number: 5, Name: "train.py", State: "running", PID: l.report.Devices[3].Leases[0].PID},
		{Number: 4, Name: "old", State: "done"},
	}}
	l.queue.Others = append(l.queue.Others, struct {
		ID string `json:"id"`
	}{"t001"})
	var done []string
	m := newModelOf(l, 200, 60, &done)
	var got []string
	for _, r := range m.allRows() {
		if r.job > 0 {
			got = append(got, fmt.Sprint(r.kind, " ", r.job))
		}
	}
	if strings.Join(got, ", ") != fmt.Sprintf("%d 5, %d 7, %d 8", lease, request, queued) {
		t.Errorf("%q", got)
	}
	if pressKeys(m, "end", "x", "y"); strings.Join(done, ";") != "cancel [8]" {
		t.Errorf("%q", done)
	}
}

// TestFairWords: what a request may not start for is said in its row.
func TestFairWords(t *testing.T) {
	l := namedMachine("day")
	l.report.Waiting[0].Stopped, l.report.Waiting[1].Most = true, 2
	m := newModelOf(l, 200, 60, nil)
	rows := m.allRows()
	n := len(rows)
	if rows[n-3].end != "stopped" || rows[n-2].end != "rule" || !strings.Contains(rows[n-3].remark, "kill -CONT") {
		t.Errorf("%+v", rows[n-3:])
	}
}

// TestSlices: a split GPU says how many of its slices are free and who has the others; each lease names its slice.
func TestSlices(t *testing.T) {
	l := newObservedMachine(1, "NVIDIA A100-SXM4-80GB", 80*gpu.GiB)
	d := &l.report.Devices[0]
	for i := range 3 {
		d.MIG = append(d.MIG, status.Device{Index: i, UUID: gpu.UUID(fmt.Sprint("MIG-", i)), Profile: "2g.20gb", Use: status.Free, Health: "ok", MemoryTotal: new(20 * gpu.GiB)})
	}
	began := inventedNow.Add(-time.Hour)
	d.MIG[1].Use = status.Leased
	d.MIG[1].Leases = []status.Lease{{ID: "k1", User: "zoe", Command: "train.py", PID: 1, Since: &began}}
	m := newModelOf(l, 80, 24, nil)
	text := ansi.Strip(m.View().Content)
	for _, want := range []string{"2 of 3 free", "split 2 free zoe", "0:1   zoe", "zoe───"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// TestBackground: a terminal that tells a light background gets the light theme, unless another one was asked for.
func TestBackground(t *testing.T) {
	for _, asks := range []bool{true, false} {
		m := newModelOf(namedMachine("laptop"), 80, 24, nil)
		m.asks = asks
		next, _ := m.Update(tea.BackgroundColorMsg{Color: color.White})
		if got := next.(model).theme.name; (got == "light") != asks {
			t.Errorf("asks %v: %s", asks, got)
		}
		next, _ = m.Update(tea.BackgroundColorMsg{Color: color.Black})
		if got := next.(model).theme.name; got != "dark" {
			t.Errorf("asks %v: %s", asks, got)
		}
	}
}

// TestLogStaysClosed: an answer that comes after its log was closed does not open it again; lines that are added do not move what is read
// above them; and what was read stays when the job has ended.
func TestLogStaysClosed(t *testing.T) {
	m := newModelOf(namedMachine("day"), 80, 24, nil)
	lines := strings.Split(strings.Repeat("line\n", 99)+"last", "\n")
	m.showLog(logRead{name: "7", title: "job 7", lines: lines})
	if m.log != nil {
		t.Fatal("it was opened by a late answer")
	}
	m.showLog(logRead{name: "7", title: "job 7", opens: true, lines: lines})
	m = pressKeys(m, "k", "k")
	if m.log == nil || m.log.up != 2 {
		t.Fatalf("%+v", m.log)
	}
	m.showLog(logRead{name: "7", title: "job 7", lines: append(lines, "more")})
	m.showLog(logRead{name: "7", err: errors.New("it has ended")})
	if m.log == nil || m.log.up != 3 || len(m.log.lines) != 101 {
		t.Errorf("%d above the end of %d lines", m.log.up, len(m.log.lines))
	}
	m.showLog(logRead{name: "8", lines: lines})
	if m.log.name != "7" {
		t.Error("another log is shown")
	}
}
