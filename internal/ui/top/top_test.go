package top

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"gpuard/internal/app/observe"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
	"gpuard/internal/core/status"
)

// newBusyModel is a screen with two devices, three rows and a request.
func newBusyModel(width, height int, done *[]string) model {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	hour, total, used, load, degrees := now.Add(-time.Hour), gpu.Bytes(80<<30), gpu.Bytes(20<<30), 0.5, 64
	device := func(index int, use status.Use) status.Device {
		return status.Device{Index: index, UUID: gpu.UUID(fmt.Sprint("GPU-", index)), Name: "NVIDIA A100-SXM4-80GB", Use: use, Health: "ok", MemoryTotal: &total, MemoryUsed: &used, Utilization: &load, Temperature: &degrees}
	}
	s := status.Report{Now: now, Taken: now, Driver: "550.54", Devices: []status.Device{device(0, status.Leased), device(1, status.Busy)}}
	s.Devices[0].Leases = []status.Lease{{ID: "k3f9", User: "zoe", Command: "train.py", Since: &hour, Memory: &used}}
	s.Devices[1].Processes = []status.Process{{PID: 4242, User: "bob", Command: "x\x1b[2J", Foreign: true}}
	s.Devices[1].Throttled = []string{"hw_thermal_slowdown"}
	s.Waiting = []status.Waiting{{Place: 1, ID: "t1", User: "ann", Command: "eval.py", Count: 2, Since: &hour}}
	m := model{ctx: context.Background(), width: width, height: height}
	m.theme, m.me = darkTheme, "zoe"
	for _, name := range []string{"release", "evict", "drain"} {
		m.actions = append(m.actions, observe.Action{Name: name, Do: func(_ context.Context, words []string) error {
			*done = append(*done, name+" "+strings.Join(words, " "))
			if name == "evict" {
				return errors.New("cannot evict 4242: it belongs to bob")
			}
			return nil
		}})
	}
	for i := range 5 {
		s.Taken = now.Add(time.Duration(i) * time.Second)
		m.applyReading(observe.Snapshot{Report: s, At: s.Taken})
	}
	return m
}

// pressKeys presses keys one after the other, and does what they ask for.
func pressKeys(m model, keys ...string) model {
	for _, key := range keys {
		press := tea.KeyPressMsg{Code: []rune(key)[0], Text: key}
		switch key {
		case "down":
			press = tea.KeyPressMsg{Code: tea.KeyDown}
		case "end":
			press = tea.KeyPressMsg{Code: tea.KeyEnd}
		case "enter":
			press = tea.KeyPressMsg{Code: tea.KeyEnter}
		case "esc":
			press = tea.KeyPressMsg{Code: tea.KeyEscape}
		}
		next, cmd := m.Update(press)
		m = next.(model)
		if cmd != nil {
			if answer, ok := cmd().(outcome); ok {
				next, _ = m.Update(answer)
				m = next.(model)
			}
		}
	}
	return m
}

// TestScreen: it fits, whatever the size of the terminal, and shows what there is.
func TestScreen(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {50, 20}, {30, 8}, {200, 60}, {20, 6}} {
		text := ansi.Strip(newBusyModel(size[0], size[1], &[]string{}).View().Content)
		lines := strings.Split(text, "\n")
		if len(lines) != size[1] {
			t.Errorf("%v: %d lines", size, len(lines))
		}
		for _, l := range lines {
			if ansi.StringWidth(l) > size[0] {
				t.Errorf("%v: %q is too wide", size, l)
			}
		}
	}
	for _, width := range []int{80, 50} {
		text := ansi.Strip(newBusyModel(width, 24, &[]string{}).View().Content)
		for _, want := range []string{"0 of 2 free", "1 waits", "the next waits", "50%", "20.0", "leased zoe", "busy bob", "zoe──", "train.py", "k3f9", "bob", "ann", "eval.py", "2 GPU", "#1", "hw_thermal_slowdown", "60m"} {
			if !strings.Contains(text, want) {
				t.Errorf("%d columns: no %q in\n%s", width, want, text)
			}
		}
	}
	text := ansi.Strip(newBusyModel(160, 30, &[]string{}).View().Content)
	for _, want := range []string{"20.0G/80.0G", "64C", "A100-SXM4-80GB", "zoe─", "4242", "no lease", "k3f9"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// TestLostIsNotFree: a GPU that is lost is no free one, in the head and in its row.
func TestLostIsNotFree(t *testing.T) {
	m := newBusyModel(80, 24, &[]string{})
	m.seen.Report.Devices[0].Use, m.seen.Report.Devices[0].Health = status.Free, "unhealthy"
	m.seen.Report.Devices[0].Leases = nil
	text := ansi.Strip(m.View().Content)
	if !strings.Contains(text, "0 of 2 free") || !strings.Contains(text, "unhealthy") || strings.Contains(text, "free unh") {
		t.Errorf("%s", text)
	}
}

// TestSickAndLeased: that a leased GPU is not well is said once, where it is not cut off.
func TestSickAndLeased(t *testing.T) {
	m := newBusyModel(80, 24, &[]string{})
	m.seen.Report.Devices[0].Health, m.seen.Report.Devices[0].Why = health.Unhealthy, []string{"unhealthy: XID 79, it has fallen off the bus"}
	if text := ansi.Strip(m.View().Content); strings.Contains(text, "unhealthy: XID 79, it has fallen off the bus") == false || !strings.Contains(text, "XID 79, it has fallen off the bus") {
		t.Errorf("%s", text)
	}
}

// TestEndedProcess: a process that has ended, of which the driver still has memory, is no empty row.
func TestEndedProcess(t *testing.T) {
	m := newBusyModel(80, 24, &[]string{})
	m.seen.Report.Devices[1].Processes = []status.Process{{PID: 4242, Foreign: true, Ended: true}}
	if text := ansi.Strip(m.View().Content); !strings.Contains(text, "(it has ended") {
		t.Errorf("%s", text)
	}
}

// TestKeys: what the keys do, each after a question.
func TestKeys(t *testing.T) {
	for _, test := range []struct {
		keys []string
		done string
		says string
	}{
		{[]string{"r"}, "", "release k3f9 of zoe? y/n"},
		{[]string{"r", "n"}, "", "nothing was done"},
		{[]string{"r", "y"}, "release k3f9", "released k3f9"},
		{[]string{"down", "r"}, "", "r is for a lease"},
		{[]string{"e"}, "", "e is for a process"},
		{[]string{"down", "e", "y"}, "evict 4242", "cannot evict 4242: it belongs to bob"},
		{[]string{"down", "d", "y"}, "drain GPU-1", "GPU 1 gets no new lease"},
		{[]string{"down", "down", "d"}, "", "which GPU, by its number"},
		{[]string{"down", "down", "d", "1", "enter", "y"}, "drain GPU-1", "GPU 1 gets no new lease"},
		{[]string{"down", "down", "d", "9", "enter"}, "", "nothing was done"},
		{[]string{"down", "down", "d", "1", "esc"}, "", "s sort:GPU"},
		{[]string{"s"}, "", "s sort:user"},
		{[]string{"/", "z", "o"}, "", "filter: zo"},
		{[]string{"/", "b", "o", "b", "enter", "e", "y"}, "evict 4242", "cannot evict"},
		{[]string{"/", "n", "o", "n", "e", "enter", "r"}, "", "there is nothing to choose"},
		{[]string{"/", "x", "esc"}, "", "/ filter  t tree"},
	} {
		var done []string
		m := pressKeys(newBusyModel(80, 24, &done), test.keys...)
		if text := ansi.Strip(m.View().Content); strings.Join(done, ";") != test.done || !strings.Contains(text, test.says) {
			t.Errorf("%q: did %q, want %q; says not %q:\n%s", test.keys, done, test.done, test.says, text)
		}
	}
	if _, cmd := newBusyModel(80, 24, nil).Update(tea.KeyPressMsg{Code: 'q', Text: "q"}); cmd == nil {
		t.Error("q does not leave")
	}
}

// TestSorted: by device, user, memory or age; what is not known comes last.
func TestSorted(t *testing.T) {
	m := newBusyModel(80, 24, nil)
	rows := m.newLister().runningRows()
	for order, want := range map[string]string{"GPU": "zoe bob", "user": "bob zoe", "load": "zoe bob", "memory": "zoe bob", "CPU": "zoe bob", "age": "zoe bob"} {
		var got []string
		for _, r := range filterAndSort(rows, order, "", "") {
			got = append(got, r.user)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("by %s: %q, want %s", order, got, want)
		}
	}
}

// TestSparedProcess: what may serve a display, and what is not known here, is shown and cannot be chosen to be ended.
func TestSparedProcess(t *testing.T) {
	var done []string
	m := newBusyModel(100, 30, &done)
	m.seen.Report.Devices[0].Leases = nil
	m.seen.Report.Devices[1].Processes = []status.Process{
		{PID: 1500, User: "ann", Command: "gnome-shell", Foreign: true, Display: true, Spared: true},
		{Outside: 8123, Foreign: true, Spared: true},
	}
	view := ansi.Strip(fmt.Sprint(m.View().Content))
	for _, want := range []string{"display", "(another PID namespace)", "PID 8123 there"} {
		if !strings.Contains(view+ansi.Strip(pressKeys(m, "down").View().Content), want) {
			t.Errorf("%q is missing:\n%s", want, view)
		}
	}
	for _, keys := range [][]string{{"e", "y"}, {"down", "e", "y"}} {
		if pressKeys(m, keys...); len(done) > 0 {
			t.Errorf("%q: %q", keys, done)
		}
	}
}
