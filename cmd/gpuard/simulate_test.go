package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpuard/internal/gate"
	"gpuard/test/pace"
)

// jobTraceReader is a trace of many jobs that come within an hour, so that nearly all of them wait. It is never in memory as a whole.
type jobTraceReader struct {
	n, at int
	text  bytes.Buffer
}

func (l *jobTraceReader) Read(p []byte) (int, error) {
	if l.at == 0 {
		l.text.WriteString("timestamp,duration,num_gpus\n")
	}
	for ; l.text.Len() < len(p) && l.at < l.n; l.at++ {
		second := l.at * 3600 / l.n
		fmt.Fprintf(&l.text, "2026-01-31 08:%02d:%02d,%d,%d\n", second/60, second%60, 30+l.at%1000, 1<<(l.at%4))
	}
	if l.text.Len() == 0 {
		return 0, io.EOF
	}
	return l.text.Read(p)
}

// TestSimulateManyLines: what a line of a trace costs in memory and time does not depend on how many there are, of which
// nearly all wait. The trace comes through a pipe. A soak reads and replays ten million, the most there can be.
func TestSimulateManyLines(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector takes memory and time of its own")
	}
	traces := []struct {
		policy string
		lines  int
		each   time.Duration // of the processors, for one line
	}{{"fifo", gate.SoakCount(10_000_000, 20_000), 100 * time.Microsecond}, {"own", gate.SoakCount(1_000_000, 2_000), 500 * time.Microsecond}}
	for _, c := range traces {
		prepared := gpuardCommand(t, stateFolder(t), nil, "simulate", "--gpus", "8", "--policy", c.policy, "--json", "-")
		cmd := exec.CommandContext(t.Context(), prepared.Path) // ten million take longer than others may
		cmd.Args, cmd.Env, cmd.Stdin = prepared.Args, prepared.Env, &jobTraceReader{n: c.lines}
		speed := pace.Start(t)
		out, most := runForPeakMemory(t, cmd)
		var got struct {
			Results []struct {
				Jobs int `json:"jobs"`
			} `json:"results"`
		}
		if err := json.Unmarshal(out, &got); err != nil || len(got.Results) != 1 || got.Results[0].Jobs != c.lines {
			t.Fatalf("%v, %.300s", err, out)
		}
		took := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		t.Logf("%s: %d lines take %d MB and %v of the processors", c.policy, c.lines, most>>20, took.Round(time.Millisecond))
		if limit := 64<<20 + 250*c.lines; most > limit {
			t.Errorf("%s: %d lines take %d MB, at most %d MB", c.policy, c.lines, most>>20, limit>>20)
		}
		if took > speed.ScaleCPU(time.Duration(c.lines)*c.each) {
			t.Errorf("%s: %d lines take %v of the processors, at most %v each", c.policy, c.lines, took, c.each)
		}
	}
}

// runForPeakMemory runs the command, and returns what it printed and its highest resident memory. That of wait4 would count this
// test process before the program was executed.
func runForPeakMemory(t *testing.T, cmd *exec.Cmd) (out []byte, most int) {
	t.Helper()
	var text, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		select {
		case err := <-ended:
			if tick.Stop(); err != nil || most == 0 {
				t.Fatalf("%v, %d bytes, %s", err, most, errs.String())
			}
			return text.Bytes(), most
		case <-tick.C:
			status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
			_, rest, _ := strings.Cut(string(status), "VmHWM:")
			var kilobytes int
			_, _ = fmt.Sscan(rest, &kilobytes)
			most = max(most, kilobytes<<10)
		}
	}
}

// TestSimulateBadTraces: jobs that cannot be are counted, and a trace that is none is an error with its line.
func TestSimulateBadTraces(t *testing.T) {
	state := stateFolder(t)
	ask := func(text string) runResult {
		cmd := gpuardCommand(t, state, nil, "simulate", "--gpus", "2", "--json", "-")
		cmd.Stdin = strings.NewReader(text)
		return runCommand(t, cmd)
	}
	const head, good = "timestamp,duration,num_gpus\n", "2026-01-31 08:00:00,60,1\n"
	got := ask(head + good + "2026-01-31 07:00:00,60,1\n2026-01-31 08:00:00,60,0\n2026-01-31 08:00:00,-60,1\n2026-01-31 08:00:00,60,16\n")
	checkEqual(t, "code", got.code, 0)
	checkContains(t, got.out, "1 jobs came earlier than the line before them", "1 jobs without a GPU are left out", "1 jobs that end before they start are left out", `"too_large": 1`)
	for text, want := range map[string]string{
		"timestamp,duration\n" + good:              "line 1: the column num_gpus is missing",
		head + good + "2026-01-31 08:00:00\n":      "line 3: it has 1 columns",
		head + "2026-01-31 08:00:00,60,0\n":        "it has no job on a GPU: 1 jobs without a GPU are left out",
		head + "2026-01-31 08:00:00,60,-1\n":       "line 2: -1 GPUs are outside",
		head + "2026-01-31 08:00:00,1:00:00,1\n":   `line 2: duration \"1:00:00\" is not a number of seconds`,
		head + "2026-01-31 08:00:00,60m,1\n":       `line 2: duration \"60m\" is not a number of seconds`,
		head + "2026-01-31 08:00:00,60,1" + "\x00": `line 2: num_gpus \"1\\x00\" is not a whole number`,
	} {
		got := ask(text)
		checkEqual(t, "code of "+want, got.code, 2)
		checkContains(t, got.out, `"error": "cannot read the trace -: `+want)
	}
}

// TestSimulateSpeed: the 16,091 jobs of the public trace are replayed by the own rule in at most five times what the same jobs take
// in order of their arrival, which needs hardly more than to read them. Another machine, or one that does other things
// beside it, is slower at both; the best of three tries counts.
func TestSimulateSpeed(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector takes time of its own")
	}
	trace := filepath.Join(gate.TracesFolder(t), "philly_11cb48.csv.gz")
	state := stateFolder(t)
	replay := func(policy string) time.Duration {
		cmd := gpuardCommand(t, state, nil, "simulate", "--gpus", "16", "--time-guess", "rough", "--place", "packed", "--policy", policy, "--json", trace)
		got := runCommand(t, cmd)
		checkEqual(t, "code", got.code, 0)
		checkContains(t, got.out, `"jobs": 16091`)
		return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	const most = 5
	best := math.Inf(1)
	for range 3 {
		arrival, own := replay("fifo"), replay("own")
		t.Logf("16,091 jobs take %v of the processors, in order of their arrival %v", own, arrival)
		if best = min(best, own.Seconds()/arrival.Seconds()); best <= most {
			return
		}
	}
	t.Errorf("16,091 jobs take %.1f times what they take in order of their arrival, at most %d", best, most)
}
