package batchcmd

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/runner"
	sweeper "gpuard/internal/app/sweep"
	"gpuard/internal/core/grid"
	"gpuard/internal/core/prose"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/console"
	"gpuard/internal/ui/failure"
)

// sweepShow shows the progress of a sweep: on a terminal by redrawing one line, elsewhere by a line from time to time.
type sweepShow struct {
	p     *cli.Program
	quiet bool
	live  bool
	mu    sync.Mutex
	line  cli.LiveLine
	// When progress was last shown.
	last time.Time
	// Tenths of the runs that were done then.
	part int
	now  runner.Progress
}

func newSweepShow(p *cli.Program, o *sweepOptions) *sweepShow {
	s := &sweepShow{p: p, line: cli.LiveLine{P: p}, quiet: o.quiet || o.json, live: p.Term(p.Err).TTY}
	switch {
	case o.json:
	case o.quiet:
		p.Host.Say = func(string) {}
	default:
		p.Host.Say = s.sayAbove
	}
	return s
}

// sayAbove prints a line above the progress line.
func (s *sweepShow) sayAbove(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line.Wipe()
	fmt.Fprintln(s.p.Err, "gpuard: "+text)
}

// sayBusy reports that another gpuard has the sweep.
func (s *sweepShow) sayBusy() {
	s.p.Host.Say("another gpuard has this sweep, or its runs have not ended: waiting")
}

// showProgress is called several times a second.
func (s *sweepShow) showProgress(now runner.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = now

	switch {
	case s.quiet:
	case s.live && cli.OnScreen(s.p):
		if time.Since(s.last) < 200*time.Millisecond {
			return
		}
		s.last = time.Now()
		s.line.Draw(func(width int) string { return sweepLine(now, s.last, width) })
	case !s.live:
		part := 10 * now.Count.CountDone() / max(now.Count.All, 1)
		if s.last.IsZero() {
			s.last, s.part = time.Now(), part
		}
		if part > s.part && part < 10 || time.Since(s.last) > time.Minute {
			s.last, s.part = time.Now(), part
			fmt.Fprintln(s.p.Err, "gpuard: "+sweepLine(now, time.Now(), 0))
		}
	}
}

// sweepAnswer is the JSON answer of a sweep.
type sweepAnswer struct {
	Schema string `json:"schema"` // "gpuard.sweep/1"
	Dir    string `json:"dir"`    // its folder
	Runs   int    `json:"runs"`   // how many there are
	OK     int    `json:"ok"`     // ended with 0
	Failed int    `json:"failed"` // ended otherwise
	// Not done yet: gpuard sweep --resume DIR.
	NotDone int `json:"not_done"`
	// Duration of this call.
	Seconds float64 `json:"seconds"`
	// The first of those that failed.
	Failures []grid.Result `json:"failures"`
	// The table of all runs, CSV; results.json in the same folder has the same data.
	Results string   `json:"results"`
	Notes   []string `json:"notes"` // remarks
}

// conductSweep runs a sweep and reports its result.
func conductSweep(p *cli.Program, cmd *cobra.Command, s *sweeper.Sweep, o *sweepOptions, show *sweepShow, err error) error {
	if err != nil {
		return err
	}

	defer s.Close()
	if text := unusedText(s.UnusedParameters()); text != "" {
		p.Host.Say(text)
	}

	began := time.Now()
	if c := s.Count(); s.Resumed {
		p.Host.Say(fmt.Sprintf("%s in %s, %d done before", prose.CountNoun(c.All, "run"), prose.Clean(s.Dir), c.CountDone()))
	} else {
		p.Host.Say(fmt.Sprintf("%s in %s", prose.CountNoun(c.All, "run"), prose.Clean(s.Dir)))
	}

	out, err := s.Conduct(cmd.Context(), show.showProgress)
	show.mu.Lock()
	show.line.Wipe()
	show.mu.Unlock()
	if err != nil {
		if !out.Nothing && out.Count.Running+out.Count.Waiting > 0 {
			err = &failure.CodedError{Err: fmt.Errorf("%w; what was done is kept: %s", err, resumeCommand(s.Dir)), Code: exit.RunCode(err)}
		}
		return err
	}

	if err := showSwept(p, s, o, out, time.Since(began)); err != nil {
		return err
	}

	if out.Interrupted != nil {
		s.Close()
		runner.DieBySignal(out.Interrupted)
	}

	if out.Count.Failed > 0 {
		return &failure.CodedError{Err: &failure.ShownError{Err: errors.New("some runs failed")}, Code: 1}
	}

	return nil
}

func resumeCommand(dir string) string {
	return "gpuard sweep --resume " + console.CommandText([]string{dir})
}

// showSwept writes the summary.
func showSwept(p *cli.Program, s *sweeper.Sweep, o *sweepOptions, out *sweeper.Outcome, spent time.Duration) error {
	c := out.Count
	results := s.Dir + "/results.csv"
	left := c.Waiting + c.Running
	if o.json {
		return cli.WriteJSON(p.Out, sweepAnswer{"gpuard.sweep/1", s.Dir, c.All, c.OK, c.Failed, left, float64(spent.Milliseconds()) / 1000, append([]grid.Result{}, out.Failures...), results, append([]string{}, p.Remarks...)})
	}
	if o.quiet && c.Failed == 0 && left == 0 {
		return nil
	}

	w := p.Out
	if out.Interrupted != nil {
		w = p.Err
	}

	text := fmt.Sprintf("%d of %s ok", c.OK, prose.CountNoun(c.All, "run"))
	if c.Failed > 0 {
		text += fmt.Sprintf(", %d failed", c.Failed)
	}

	if left > 0 {
		text += fmt.Sprintf(", %d not done", left)
	}

	fmt.Fprintf(w, "%s, in %s; results: %s\n", text, console.ElapsedText(spent), prose.Clean(results))

	for _, r := range out.Failures {
		fmt.Fprintln(w, "  "+failedRun(r, s.Request.Grid.Names, s.Dir))
	}

	if more := c.Failed - len(out.Failures); more > 0 {
		fmt.Fprintf(w, "  and %d more\n", more)
	}

	switch {
	case left > 0:
		fmt.Fprintln(w, "to continue: "+resumeCommand(s.Dir))
	case c.Failed > 0:
		fmt.Fprintln(w, "to repeat the failed runs: "+resumeCommand(s.Dir)+" --failed")
	}

	return nil
}

// failedRun is "run 17 (lr=0.1 seed=3): exit 1, /…/runs/0017/log".
func failedRun(r grid.Result, names []string, dir string) string {
	text := fmt.Sprintf("run %d", r.Run)
	if len(r.Parameters) > 0 {
		pairs := []string{}
		for _, name := range names {
			pairs = append(pairs, name+"="+prose.Brief(r.Parameters[name]))
		}
		text += " (" + strings.Join(pairs, " ") + ")"
	}

	how := r.Signal
	if how == "" && r.Exit != nil {
		how = fmt.Sprintf("exit %d", *r.Exit)
	}

	if r.Problem != "" {
		how += ", " + r.Problem
	}

	return prose.Clean(text + ": " + how + "; " + dir + string(os.PathSeparator) + r.Log)
}
