package sweep

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/machine"
	apprun "gpuard/internal/app/run"
	"gpuard/internal/app/runner"
	"gpuard/internal/core/batchlog"
	"gpuard/internal/core/grid"
	"gpuard/internal/core/prose"
	"gpuard/internal/host/journal"
)

// Outcome is how a sweep ended.
type Outcome struct {
	Count batchlog.Count
	// The first of those that failed.
	Failures []grid.Result
	// That ended it; nil none.
	Interrupted os.Signal
	// Was done, and the folder is gone again.
	Nothing bool
}

// shownFailures is how many failures are shown on the terminal.
const shownFailures = 5

// Conduct runs what is to be done. show is called at each change, and every now and then. The tables of results are
// written in any case.
func (s *Sweep) Conduct(ctx context.Context, show func(runner.Progress)) (*Outcome, error) {
	heard, err := s.Folder.Conduct(ctx, show)
	out := &Outcome{Count: s.State.Count, Interrupted: heard}
	out.Nothing = err != nil && s.fresh && out.Count.Waiting == out.Count.All
	if out.Nothing {
		// What can never be is no sweep.
		s.discardFolder()
		return out, err
	}

	err = cmp.Or(err, s.writeTables())
	s.tellEnd(out, err)

	for _, run := range s.State.RunsIn(batchlog.Failed) {
		if len(out.Failures) < shownFailures {
			out.Failures = append(out.Failures, grid.ResultOf(s.State, &s.Request.Grid, run))
		}
	}

	return out, err
}

// tellEnd tells whoever is to be told that the sweep is over.
func (s *Sweep) tellEnd(out *Outcome, err error) {
	if s.Request.Notify == "" || out.Interrupted != nil {
		return
	}

	c := out.Count
	n := apprun.Notice{Name: filepath.Base(s.Dir), State: "done", Log: filepath.Join(s.Dir, "results.csv")}
	n.Text = fmt.Sprintf("sweep %s: %d of %d runs are done", prose.Clean(n.Name), c.CountDone(), c.All)
	if c.Failed > 0 {
		n.State, n.Exit = "failed", 1
		n.Text += fmt.Sprintf(", %d failed", c.Failed)
	}

	if err != nil {
		n.State, n.Exit, n.Text = "failed", 1, fmt.Sprintf("sweep %s: %v", prose.Clean(n.Name), err)
	}

	if err := n.Send(s.Request.Notify, s.Host.Env, s.Request.Folder, os.Stderr, true); err != nil {
		s.Host.Say(fmt.Sprintf("cannot tell of the end of the sweep (--notify): %v", err))
	}
}

// writeTables writes the results of all runs.
func (s *Sweep) writeTables() error {
	err := journal.ReplaceFile(filepath.Join(s.Dir, "results.csv"), func(w io.Writer) error { return grid.WriteCSV(w, s.State, &s.Request.Grid) })
	if err != nil {
		return err
	}

	return journal.ReplaceFile(filepath.Join(s.Dir, "results.json"), func(w io.Writer) error { return grid.WriteJSON(w, s.State, &s.Request.Grid) })
}

// RunnerWork is what the runner of the sweep in a folder does.
func RunnerWork(ctx context.Context, host *machine.Host, dir string) (*runner.FolderWork, error) {
	// Much may have happened since the sweep was begun.
	err := checkOwn(dir, 0)
	if err != nil {
		return nil, err
	}

	q, err := readRequest(dir)
	if err != nil {
		return nil, err
	}

	host.Machine, host.PrivateState = q.Machine, q.Private
	command, err := grid.ParseCommand(q.Command, &q.Grid)
	if err != nil {
		return nil, err
	}

	w := &runner.FolderWork{Folder: q.folderIn(dir, host), AtOnce: q.Jobs}
	err = w.Open()
	if err != nil {
		return nil, err
	}

	desk, err := q.openAllocator(ctx, host, w)
	if err != nil {
		return nil, err
	}

	ofAll := func(context.Context) (*claim.Allocator, error) { return desk, nil }

	// Of the last run.
	name, path := "", ""
	w.Prepare = func(run int) (runner.StartOptions, error) {
		words, err := command.Words(run)
		if err == nil && !q.Spec.StartsTorchrun() && (words[0] != name || !isProgram(path)) {
			name = words[0]
			path, err = findProgram(q, name)
		}

		log := filepath.Join(w.Path(run), "log")

		return runner.StartOptions{Desk: ofAll, Path: path, Argv: words, Folder: q.Folder, Env: []string{"GPUARD_SWEEP_RUN=" + fmt.Sprint(run), w.Tag(run)},
			Log: log, Timeout: q.Spec.Timeout, Task: apprun.TaskOf(desk.Spec(), q.Care, q.Oversight, log)}, err
	}

	return w, nil
}

// openAllocator is where all runs get their leases.
func (q *Request) openAllocator(ctx context.Context, host *machine.Host, w *runner.FolderWork) (*claim.Allocator, error) {
	spec := q.Spec
	var err error
	if q.ElseCPU {
		spec, err = claim.CPUIfImpossible(ctx, host, spec)
		if err != nil {
			return nil, err
		}
	}

	if w.AtOnce == 0 && spec.CPU {
		w.AtOnce = runtime.NumCPU()
	}

	if q.PerGPU > 1 && !spec.CPU {
		spec.Share, err = claim.EqualShare(ctx, host, spec, q.PerGPU)
		if err != nil {
			return nil, err
		}
		host.Say(fmt.Sprintf("%d runs share a GPU: each has %s", q.PerGPU, spec.Share))
	}

	spec.Grace = q.Grace

	return claim.OpenAllocator(ctx, host, spec)
}
