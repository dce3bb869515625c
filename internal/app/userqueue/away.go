package userqueue

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/app/remote"
	"gpuard/internal/app/runner"
	"gpuard/internal/core/batchlog"
	"gpuard/internal/core/handoff"
	"gpuard/internal/core/job"
	"gpuard/internal/host/sys"
)

// Jobs of another scheduler have numbers of the same counter as those of this machine. A job is written down before it
// is handed in, with a mark that the scheduler shows beside it: one whose hand-in was interrupted is found by that.

// What was handed in, in the folder of the job.
const scriptFile = "script"

// HandIn hands a job to another scheduler, or an array, and returns the number of the first, and the log of each.
func (q *Queue) HandIn(ctx context.Context, s *remote.Scheduler, w handoff.Work, j Job, kind uint32) (number int, logs []string, out handoff.Output, err error) {
	err = q.resolveAfterIDs(s, w.After)
	if err != nil {
		return 0, nil, out, err
	}

	w.ID = randomID()
	out, err = s.Write(ctx, w)
	if err != nil {
		// Before it has a number.
		return 0, nil, out, err
	}

	err = q.journal.AppendLocked(func(size int64) ([]byte, error) {
		n, err := q.countJobs(size)
		if err != nil {
			return nil, err
		}

		number = n + 1
		out, err = q.writeScript(ctx, s, w, n)
		if err != nil {
			return nil, err
		}

		var lines []byte
		lines, logs, err = q.awayLines(s, w, j, kind, n)

		return lines, err
	})

	if err != nil {
		return 0, nil, out, err
	}

	err = q.journal.Sync()
	if err != nil {
		return 0, nil, out, err
	}

	id, place, err := s.Submit(ctx, q.scriptPath(number-1))
	if errors.Is(err, remote.ErrUnsure) {
		// It stays without an ID, and is looked for by its mark.
		return 0, nil, out, fmt.Errorf("cannot say whether job %d was handed to %s: %w; gpuard queue looks for it there", number, s.Title, err)
	}

	for i := range logs {
		told := batchlog.Away{State: batchlog.Queued, ID: id, Place: place}
		if err != nil {
			told = batchlog.Away{State: batchlog.Refused, Why: err.Error()}
		} else if len(w.Array.Tasks) > 0 {
			told.ID += "_" + strconv.Itoa(w.Array.Tasks[i])
		}
		if terr := q.recordAway(number-1+i, remote.ReportedJob{Away: told}); terr != nil {
			err = errors.Join(err, terr)
		}
	}

	if err != nil {
		var refusal *job.Refusal
		if errors.As(err, &refusal) {
			return 0, nil, out, err
		}
		return 0, nil, out, fmt.Errorf("cannot hand the job to %s: %w", s.Title, err)
	}

	return number, logs, out, q.journal.Sync()
}

func randomID() string {
	random := make([]byte, 5)
	_, _ = rand.Read(random)
	return hex.EncodeToString(random)
}

// resolveAfterIDs gives the jobs that come first the names that the scheduler has for them.
func (q *Queue) resolveAfterIDs(s *remote.Scheduler, after []handoff.After) error {
	state, err := q.Read()
	for i := range after {
		n, _ := strconv.Atoi(after[i].ID)
		switch {
		case err != nil:
			return err
		case n < 1 || n > len(state.Runs):
			return exit.Usagef("cannot wait for job %s: there is none of that number; see: gpuard queue", after[i].ID)
		case state.Runs[n-1].Away == nil || state.Runs[n-1].Away.Engine != s.Name:
			return exit.Usagef("cannot wait for job %d: %s does not have it, and starts nothing after what runs elsewhere", n, s.Title)
		case state.Runs[n-1].Away.ID == "":
			return exit.Usagef("cannot wait for job %d: %s has not taken it yet; see: gpuard queue", n, s.Title)
		}
		after[i].ID = state.Runs[n-1].Away.ID
	}
	return err
}

// writeScript writes what is handed in, with its log where the owner named none.
func (q *Queue) writeScript(ctx context.Context, s *remote.Scheduler, w handoff.Work, n int) (out handoff.Output, err error) {
	folder := filepath.Join(q.Dir, batchlog.JobFolder(n))
	if w.Care.Log == "" && s.Logs == nil {
		w.Care.Log = filepath.Join(folder, "log")
		if len(w.Array.Tasks) > 0 {
			w.Care.Log += "-%a"
		}
	}

	out, err = s.Write(ctx, w)
	if err != nil {
		return out, err
	}

	err = sys.MkdirAll(folder, 0o700)
	if err != nil {
		return out, fmt.Errorf("cannot hand in the job: %w", err)
	}

	err = machine.WriteFile(q.scriptPath(n), []byte(out.Text), 0o600)
	if err != nil {
		return out, fmt.Errorf("cannot hand in the job: %w", err)
	}

	return out, nil
}

func (q *Queue) scriptPath(run int) string {
	return filepath.Join(q.Dir, batchlog.JobFolder(run), scriptFile)
}

// awayLines are the lines of the journal for a job, or for each task of an array.
func (q *Queue) awayLines(s *remote.Scheduler, w handoff.Work, j Job, kind uint32, n int) (text []byte, logs []string, err error) {
	what := batchlog.Job{Name: j.Spec.Name, Time: w.Spec.Time, Kind: kind}
	tasks := w.Array.Tasks
	if len(tasks) == 0 {
		tasks = []int{-1}
	}

	for i, task := range tasks {
		away := batchlog.Away{Engine: s.Name, Mark: "gpuard-" + w.ID, State: batchlog.Queued}
		one := what
		j.Log = w.Care.Log
		if j.Log == "" {
			j.Log = filepath.Join(q.Dir, batchlog.JobFolder(n), "log")
		}

		if task >= 0 {
			away.Task, j.Task = strconv.Itoa(task), &task
			one.Name = fmt.Sprintf("%s[%d]", what.Name, task)
			if w.Care.Log == "" {
				j.Log += "-%a"
			}
			j.Log = strings.ReplaceAll(j.Log, "%a", away.Task)
		}

		one.Away = &away
		next, err := submitLine(n+i, one, j)
		if err != nil {
			return nil, nil, err
		}

		logs = append(logs, j.Log)
		if i > 0 {
			text = append(text, '\n')
		}

		text = append(text, next...)
	}

	return text, logs, nil
}

// recordAway writes down what a scheduler said of a job.
func (q *Queue) recordAway(run int, t remote.ReportedJob) error {
	e := batchlog.Event{Kind: batchlog.Tell, Run: run, At: time.Now().Truncate(time.Millisecond), Told: &t.Away}
	if t.State.Over() {
		e.Exit, e.Signal = t.Exit, t.Signal
		if t.Signal != "" {
			e.Exit = -1
		}
		if t.Ended != nil {
			e.At = *t.Ended
		}
		if t.Began != nil {
			e.Seconds = max(0, e.At.Sub(*t.Began).Seconds())
		}
	}

	return runner.AppendEvent(q.journal, e)
}

// Trouble is a scheduler that did not answer.
type Trouble struct {
	Engine string `json:"engine"` // "slurm"
	// Why, in one sentence.
	Problem string `json:"problem"`
}

// RefreshAway asks the other schedulers where their jobs are, and writes down what has changed. A scheduler that does
// not answer hides nothing: its jobs stay where they were last.
func (q *Queue) RefreshAway(ctx context.Context) ([]Trouble, error) {
	state, err := q.Read()
	if err != nil {
		return nil, err
	}

	troubles := []Trouble{}
	open := map[string][]int{}
	for run := range state.Runs {
		if state.Runs[run].Phase == batchlog.Elsewhere {
			open[state.Runs[run].Away.Engine] = append(open[state.Runs[run].Away.Engine], run)
		}
	}

	for _, name := range remote.EngineNames() {
		if len(open[name]) == 0 {
			continue
		}
		if err := q.refreshEngine(ctx, name, state, open[name]); err != nil {
			troubles = append(troubles, Trouble{name, err.Error()})
		}
	}

	_, err = q.Read()

	return troubles, err
}

func (q *Queue) refreshEngine(ctx context.Context, name string, state *batchlog.State, list []int) error {
	s, err := remote.Open(q.host, name)
	if err != nil {
		return err
	}

	var asked []remote.AskedJob
	for _, run := range list {
		asked = append(asked, remote.AskedJob{Away: *state.Runs[run].Away, Submitted: state.Runs[run].Submitted})
	}

	told, problem := s.Look(ctx, asked)
	if len(told) == 0 {
		return problem
	}

	for i, run := range list {
		if told[i].State == "" {
			// Of a place that did not answer.
			continue
		}
		if was := asked[i].Away; told[i].State != was.State || told[i].ID != was.ID || told[i].Node != was.Node && told[i].Node != "" || told[i].Why != was.Why {
			if err := q.recordAway(run, told[i]); err != nil {
				return err
			}
		}
	}

	return problem
}

// splitByEngine parts numbers of jobs into those of this machine, and those of each other scheduler.
func (q *Queue) splitByEngine(numbers []int) (own []int, away map[string][]int, err error) {
	state, err := q.Read()
	away = map[string][]int{}
	for _, n := range numbers {
		if n < 1 || n > len(state.Runs) || state.Runs[n-1].Away == nil {
			own = append(own, n)
		} else {
			away[state.Runs[n-1].Away.Engine] = append(away[state.Runs[n-1].Away.Engine], n)
		}
	}

	return own, away, err
}

// askAway has the other schedulers do what the owner wants of their jobs.
func (q *Queue) askAway(ctx context.Context, kind batchlog.Kind, name string, numbers []int) error {
	s, err := remote.Open(q.host, name)
	if err != nil {
		return err
	}

	var jobs []batchlog.Away
	for _, n := range numbers {
		a := *q.state.Runs[n-1].Away
		if a.ID == "" {
			return fmt.Errorf("cannot %s job %d: %s has not said that it has it; try again: gpuard queue", kind, n, s.Title)
		}
		jobs = append(jobs, a)
	}

	if err := q.refusePartOfArray(s, kind, numbers); err != nil {
		return err
	}

	if kind == batchlog.Cancel {
		if err := s.Cancel(ctx, jobs); err != nil {
			return fmt.Errorf("cannot cancel the jobs of %s: %w", s.Title, err)
		}
		for i := 0; s.Ends && i < len(jobs); i++ {
			if err := q.recordAway(numbers[i]-1, remote.ReportedJob{Away: batchlog.Away{State: batchlog.Ended}}); err != nil {
				return err
			}
		}
		return nil
	}

	for i, a := range jobs {
		if err := s.Hold(ctx, a, kind == batchlog.Hold); err != nil {
			return fmt.Errorf("cannot %s job %d: %w", kind, numbers[i], err)
		}
	}

	return nil
}

// refusePartOfArray refuses what concerns some jobs of an array where the scheduler has one object for all of them.
func (q *Queue) refusePartOfArray(s *remote.Scheduler, kind batchlog.Kind, numbers []int) error {
	marks := map[string]int{}
	for _, n := range numbers {
		marks[q.state.Runs[n-1].Away.Mark] = n
	}
	for run := range q.state.Runs {
		a := q.state.Runs[run].Away
		if !s.Ends || a == nil || a.State.Over() || slices.Contains(numbers, run+1) {
			continue
		}
		if n, ours := marks[a.Mark]; ours {
			return exit.Usagef("cannot %s job %d alone: %s has the array as one object, and job %d is in it; name all of its jobs", kind, n, s.Title, run+1)
		}
	}

	return nil
}
