package top

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"gpuard/internal/core/status"
	"gpuard/internal/gate"
	"gpuard/test/golden"
)

// showVariable is the variable that makes this test program show a situation on its terminal.
const showVariable = "GPUARD_TEST_SHOW"

// TestShow is the program in tmux: the real loop of keys and frames, over readings that do not change.
func TestShow(t *testing.T) {
	name := os.Getenv(showVariable)
	if name == "" {
		t.Skip("TestInTmux starts it")
	}
	time.Local = time.UTC
	l := namedMachine(name)
	m := newModelOf(l, 80, 24, nil)
	m.openLog = func(_ context.Context, name string, _ int) (string, []string, error) {
		var lines []string
		for i := range 100 {
			lines = append(lines, fmt.Sprintf("epoch %d", i))
		}
		return "log of " + name, lines, nil
	}
	if _, err := tea.NewProgram(m).Run(); err != nil {
		t.Fatal(err)
	}
	fmt.Println("it has left")
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// tmuxPane is a terminal in tmux.
type tmuxPane struct {
	t      *testing.T
	socket string
}

// startPane starts the program in a terminal of that size.
func startPane(t *testing.T, situation string, width, height int, env ...string) *tmuxPane {
	t.Helper()
	p := &tmuxPane{t, filepath.Join(t.TempDir(), "tmux")}
	args := []string{"new-session", "-d", "-x", fmt.Sprint(width), "-y", fmt.Sprint(height), "env", "TZ=UTC", "LC_ALL=C.UTF-8", showVariable + "=" + situation}
	args = append(append(args, env...), os.Args[0], "-test.run=^TestShow$")
	p.runTmux(args...)
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", p.socket, "kill-server").Run() })
	return p
}

func (p *tmuxPane) runTmux(args ...string) string {
	p.t.Helper()
	cmd := exec.Command("tmux", append([]string{"-S", p.socket, "-f", "/dev/null"}, args...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "TERM=xterm-256color")
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return string(out)
}

// waitForScreen waits for a screen that is as wanted.
func (p *tmuxPane) waitForScreen(what string, wanted func(screen string) bool, flags ...string) string {
	p.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		screen := p.runTmux(append([]string{"capture-pane", "-p"}, flags...)...)
		if wanted(screen) {
			return screen
		}
		if time.Now().After(end) {
			p.t.Fatalf("no %s on the screen:\n%s", what, screen)
		}
	}
}

func (p *tmuxPane) waitForText(text string) string {
	p.t.Helper()
	return p.waitForScreen(text, func(screen string) bool { return strings.Contains(screen, text) })
}

// sendKeys types keys by their names in tmux.
func (p *tmuxPane) sendKeys(keys ...string) {
	p.t.Helper()
	p.runTmux(append([]string{"send-keys"}, keys...)...)
}

// compareScreen waits until the screen is that of the file: a terminal is drawn bit by bit.
func (p *tmuxPane) compareScreen(name, says string) {
	p.t.Helper()
	want, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
	screen := ""
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		screen = p.runTmux("capture-pane", "-p")
		switch {
		case *golden.Update || err != nil:
			time.Sleep(time.Second)
			golden.Compare(p.t, name, p.waitForText(says))
			return
		case screen == string(want):
			return
		}
	}
	golden.Compare(p.t, name, screen)
}

// screenSizes are those that a screen is made for.
func screenSizes() [][2]int { return [][2]int{{80, 24}, {200, 60}} }

// TestInTmux: what a terminal shows of each situation, at both sizes.
func TestInTmux(t *testing.T) {
	gate.Need(t, "tmux")
	for _, name := range []string{"idle", "day", "crowd", "trouble", "laptop"} {
		for _, size := range screenSizes() {
			t.Run(fmt.Sprintf("%s-%dx%d", name, size[0], size[1]), func(t *testing.T) {
				p := startPane(t, name, size[0], size[1])
				p.compareScreen(fmt.Sprintf("screen-%s-%dx%d", name, size[0], size[1]), "? keys")
			})
		}
	}
}

// TestOtherScreensInTmux: the keys, a log, the tree and a longer time.
func TestOtherScreensInTmux(t *testing.T) {
	gate.Need(t, "tmux")
	for _, test := range []struct {
		name, says string
		keys       []string
	}{
		{"keys", "any key goes back", []string{"?"}},
		{"log", "epoch 99", []string{"u", "o"}},
		{"tree", "└ ", []string{"t"}},
		{"hours", "+- 6 h", []string{"-"}},
	} {
		for _, size := range screenSizes() {
			t.Run(fmt.Sprintf("%s-%dx%d", test.name, size[0], size[1]), func(t *testing.T) {
				p := startPane(t, "day", size[0], size[1])
				p.waitForText("? keys")
				for _, key := range test.keys {
					p.sendKeys(key)
				}
				p.compareScreen(fmt.Sprintf("screen-%s-%dx%d", test.name, size[0], size[1]), test.says)
			})
		}
	}
}

// TestEveryKeyInTmux: each key does what the help says, typed into a terminal.
func TestEveryKeyInTmux(t *testing.T) {
	gate.Need(t, "tmux")
	t.Parallel()
	p := startPane(t, "trouble", 200, 60)
	p.waitForText("ka40 · GPU 0, 1")
	for _, step := range []struct {
		keys []string
		says string
	}{
		{[]string{"Down"}, "kb35 · GPU 2"},
		{[]string{"j"}, "kc75 · GPU 3"},
		{[]string{"Up"}, "kb35 · GPU 2"},
		{[]string{"k"}, "ka40 · GPU 0, 1"},
		// The reason of the last request is cut in its line, and whole below.
		{[]string{"G"}, "(train.py, PID 4000); and 6 more"},
		{[]string{"g"}, "ka40 · GPU 0, 1"},
		{[]string{"End", "Home"}, "ka40 · GPU 0, 1"},
		{[]string{"NPage"}, "(train.py, PID 4000); and 6 more"},
		{[]string{"PPage"}, "ka40 · GPU 0, 1"},
		{[]string{"s"}, "s sort:user"},
		{[]string{"s", "s"}, "s sort:memory"},
		{[]string{"S", "S", "S"}, "s sort:GPU"},
		{[]string{"R"}, "s sort:GPU↑"},
		{[]string{"g"}, "PID 8123"},
		{[]string{"R", "g"}, "ka40 · GPU 0, 1"},
		{[]string{"/", "v", "l", "l"}, "filter: vll"},
		{[]string{"BSpace", "Enter"}, "/ vl"},
		{[]string{"Escape"}, "/ filter"},
		{[]string{"f", "x"}, "filter: x"},
		{[]string{"Escape"}, "/ filter"},
		{[]string{"u"}, "u zoe"},
		{[]string{"u"}, "u alice"},
		{[]string{"Escape"}, "u all"},
		{[]string{"t"}, "└ 4001 pt_data_worker"},
		{[]string{"t"}, "t tree"},
		{[]string{"+"}, "+- 10 min"},
		{[]string{"-", "-"}, "+- 6 h"},
		{[]string{"-"}, "+- 24 h"},
		{[]string{"-"}, "+- 24 h"},
		{[]string{"=", "="}, "+- 1 h"},
		{[]string{"_", "="}, "+- 1 h"},
		{[]string{"T"}, "theme: light"},
		{[]string{"T"}, "theme: mono"},
		{[]string{"T"}, "theme: dark"},
		{[]string{"x"}, "x is for your own jobs; this one belongs to alice"},
		{[]string{"o"}, "o is for your own jobs; this one belongs to alice"},
		{[]string{"e"}, "e is for a process without a lease"},
		{[]string{"d"}, "which GPU, by its number:"},
		{[]string{"Escape"}, "? keys"},
		{[]string{"d", "4", "Enter"}, "put GPU 4 into use again? y/n"},
		{[]string{"y"}, "GPU 4 is in use again"},
		{[]string{"Down", "d"}, "take GPU 2 out of use? y/n"},
		{[]string{"n"}, "nothing was done"},
		{[]string{"d", "Y"}, "GPU 2 gets no new lease"},
		{[]string{"r"}, "release kb35 of bob? y/n"},
		{[]string{"y"}, "released kb35"},
		{[]string{"Down", "x"}, "end train.py of zoe on GPU 3, running 75m? y/n"},
		{[]string{"n"}, "nothing was done"},
		{[]string{"x", "y"}, "asked train.py to end"},
		{[]string{"o"}, "log of kc75"},
		{[]string{"k"}, "1 lines below"},
		{[]string{"PPage", "g"}, "epoch 0"},
		{[]string{"NPage", "G"}, "epoch 99"},
		{[]string{"q"}, "? keys"},
		{[]string{"Enter"}, "log of kc75"},
		{[]string{"Escape"}, "? keys"},
		{[]string{"Down", "e"}, "end process 7777 of mallory? y/n"},
		{[]string{"y"}, "ended process 7777"},
		{[]string{"?"}, "any key goes back"},
		{[]string{"x"}, "? keys"},
		{[]string{"h"}, "any key goes back"},
		{[]string{"h"}, "? keys"},
	} {
		p.sendKeys(step.keys...)
		p.waitForText(step.says)
	}
	before := p.runTmux("capture-pane", "-p", "-e")
	p.sendKeys("c")
	p.waitForScreen("other colour of the bands", func(screen string) bool { return screen != before }, "-e")
	p.sendKeys("q")
	p.waitForText("it has left")
}

// TestLeavesInTmux: Ctrl-C and Ctrl-D leave, too, and the terminal is as it was.
func TestLeavesInTmux(t *testing.T) {
	gate.Need(t, "tmux")
	for _, key := range []string{"C-c", "C-d"} {
		p := startPane(t, "laptop", 80, 24)
		p.waitForText("? keys")
		p.sendKeys(key)
		screen := p.waitForText("it has left")
		if strings.Contains(screen, "? keys") {
			t.Errorf("%s: the screen is still there:\n%s", key, screen)
		}
	}
}

// TestOfSituations: what a person reads off the first line is what the report says.
func TestOfSituations(t *testing.T) {
	for name, want := range map[string]string{
		"idle":    "8 of 8 free · nothing waits · nothing is broken",
		"day":     "2 of 8 free · 3 wait, your eval.py gets GPU 0/1 at about 14:20 (end of bert-large) · nothing is broken",
		"crowd":   "2 of 8 free, kept for those who wait · 103 wait, your eval.py gets GPU 0/1 at about 14:20 (end of bert-large) · nothing is broken",
		"trouble": "0 of 8 free · 3 wait, your eval.py gets GPU 0/1 at about 14:20 (end of bert-large) · 1 GPU unhealthy: lost, 1 process of an intruder, 1 job over its share, 1 GPU degraded: hot, 1 GPU busy without a lease, 1 GPU drained",
		"laptop":  "0 of 1 free · nothing waits · nothing is broken",
	} {
		l := namedMachine(name)
		m := newModelOf(l, 200, 60, nil)
		if got := m.answer.Text(); got != want {
			t.Errorf("%s: %s", name, got)
		}
		free := 0
		for i := range l.report.Devices {
			if l.report.Devices[i].State() == string(status.Free) {
				free++
			}
		}
		if free != m.answer.Free.Count {
			t.Errorf("%s: %d", name, free)
		}
	}
}
