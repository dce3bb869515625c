// Package userqueue keeps the jobs that a user has handed in, and has them run while nobody looks. The jobs of a user
// lie in a journal in a folder of the user's own. Two processes of that user run them, which are there while there is
// work: the keeper, and the runner that it starts (package runs). Every gpuard submit and gpuard queue starts the
// keeper where it is missing.
package userqueue

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	apprun "gpuard/internal/app/run"
	"gpuard/internal/app/runner"
	"gpuard/internal/core/batchlog"
	"gpuard/internal/core/job"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/daemonize"
	"gpuard/internal/host/journal"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/sys"
)

// Job is what a job of the queue is started with.
type Job struct {
	Command []string `json:"command"`
	Path    string   `json:"path"`   // of its program
	Folder  string   `json:"folder"` // in which it runs
	// Name of the file with its environment.
	Env   string   `json:"env"`
	Umask int      `json:"umask"` // of its files
	Spec  job.Spec `json:"spec"`  // what it is given
	// File for its output; "" log in its own folder.
	Log  string `json:"log"`
	Task *int   `json:"task,omitempty"` // of an array
	// Name of the file with the limits of its processes (host/limits); for Submit the limits themselves.
	Limits string `json:"limits,omitempty"`
	// Who is told of its end.
	Notify  string `json:"notify,omitempty"`
	Note    string `json:"note,omitempty"` // for people
	Private bool   `json:"private_state,omitempty"`
	// --machine; "" for the hardware.
	Machine string `json:"machine,omitempty"`

	// What is tried in place of waiting: job.Waiting.
	Fallback []string `json:"fallback,omitempty"`
	// How it is looked after; nil, with Oversight: it is only started, and ended.
	Care      *job.Care         `json:"care,omitempty"`
	Oversight *apprun.Oversight `json:"oversight,omitempty"`
}

// Queue is the folder of a user's jobs.
type Queue struct {
	Dir string

	host    *machine.Host
	journal *journal.Journal
	state   *batchlog.State
	written chan struct{}
	odd     []batchlog.OddLine // that Submit found
	// That Jobs has read, by run: what waits for them looks at them again and again.
	asked map[int]Job
}

// Files in the folder.
const (
	journalFile = runner.JournalFile
	lockFile    = "lock"
	// How many jobs were submitted up to which size of the journal.
	countFile = "count"
	errorFile = "errors"
	envFolder = "env"
)

// Folder is where the queue of this user is. In a job of another scheduler it is one of that job on this node: what
// runs its jobs is inside of the allocation then, and ends with it.
func Folder(host *machine.Host) (string, error) {
	return host.DurablePath(queueFolder + allocationSuffix(host.Env))
}

// queueFolder begins the name of the folder of a queue (machine.DurablePath).
const queueFolder = "queue"

// Open opens the queue of this user. Without create, nil and no error means that there is none.
func Open(host *machine.Host, create bool) (*Queue, error) {
	dir, err := Folder(host)
	if err != nil {
		return nil, err
	}

	name := filepath.Base(dir)
	get := host.OpenDurable
	if create {
		get = host.MakeDurable
	}

	_, err = get(name)
	if err == nil && create {
		_, err = get(filepath.Join(name, envFolder))
	}

	switch {
	case errors.Is(err, os.ErrNotExist) && !create:
		return nil, nil //nolint:nilnil // an empty queue
	case err != nil:
		return nil, exit.Usagef("cannot use %s for the queue: %v; its jobs are run, so it has to be yours alone", dir, host.AdviseOwn(err))
	}

	if create && allocationSuffix(host.Env) != "" {
		removeOld(dir)
	}

	q := &Queue{Dir: dir, host: host, state: batchlog.NewQueue()}
	q.journal, err = journal.Open(filepath.Join(dir, journalFile))
	if err != nil {
		return nil, err
	}

	return q, nil
}

// Close lets the queue go; its jobs go on.
func (q *Queue) Close() { _ = q.journal.Close() }

// Read returns the state of all jobs. A job's number is one more than its run's.
func (q *Queue) Read() (*batchlog.State, error) {
	return q.state, q.journal.EachNewLine(func(line []byte) error { return q.state.ReadLine(line, q.journal.Offset()) })
}

// Changes has a value after something was written since it was read last.
func (q *Queue) Changes() <-chan struct{} {
	if q.written == nil {
		q.written = make(chan struct{}, 1)

		// The first time it only begins to watch.
		q.journal.WaitForWrite()
		go func() {
			for {
				q.journal.WaitForWrite()
				select {
				case q.written <- struct{}{}:
				default:
				}
			}
		}()
	}
	return q.written
}

// Ended is closed when no keeper is there any more.
func (q *Queue) Ended() <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		journal.WaitUntilFree(filepath.Join(q.Dir, lockFile))
		close(ended)
	}()
	return ended
}

// ReadJob is what a job is started with.
func (q *Queue) ReadJob(run int) (Job, error) { return jobAt(q.journal, q.state, run) }

func jobAt(j *journal.Journal, state *batchlog.State, run int) (Job, error) {
	got, err := readJobLine(j, state.Runs[run].Offset, run)
	if err != nil {
		return got, fmt.Errorf("cannot read job %d: %w", run+1, err)
	}

	return got, nil
}

func readJobLine(j *journal.Journal, offset int64, run int) (got Job, err error) {
	line, err := j.Line(offset)
	if err != nil {
		return got, err
	}

	var e batchlog.Event
	err = json.Unmarshal(line, &e)
	if err != nil {
		return got, err
	}
	if e.Kind != batchlog.Submit || e.Run != run || e.Job == nil {
		return got, errors.New("the journal has another line there")
	}

	err = json.Unmarshal(e.Job.Data, &got)

	return got, err
}

// LogPath is the file that a job writes to.
func (q *Queue) LogPath(run int, j Job) string { return q.logPath(run, j) }

// FindProgram is the path of the program of a command.
func FindProgram(command string) (string, error) {
	path, err := launch.FindCommand(command)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// Submit adds a job, or one for each task of an array, of which most run at the same time; 0 any number. When it
// returns, they are on the disk. It returns the number of the first, and the log of each.
func (q *Queue) Submit(what batchlog.Job, j Job, env visible.Env, tasks []int, most int) (number int, logs []string, err error) {
	if len(what.After) > 0 {
		if _, err := q.Read(); err != nil {
			return 0, nil, err
		}
	}

	err = q.journal.AppendLocked(func(size int64) ([]byte, error) {
		n, err := q.countJobs(size)
		if err != nil {
			return nil, err
		}

		for _, a := range what.After {
			switch {
			case a.Run >= n:
				return nil, exit.Usagef("cannot wait for job %d: there is none of that number; see: gpuard queue", a.Run+1)
			case a.Run < len(q.state.Runs) && q.state.Runs[a.Run].Away != nil:
				return nil, exit.Usagef("cannot wait for job %d: %s has it, and nobody asks that before a job of this machine starts; hand this one in there, too: --engine %[2]s", a.Run+1, q.state.Runs[a.Run].Away.Engine)
			}
		}

		dir := filepath.Join(q.Dir, envFolder)
		j.Env, err = storeByHash(dir, strings.Join(withoutLeaseVars(env), "\x00"))
		if err == nil && j.Limits != "" {
			j.Limits, err = storeByHash(dir, j.Limits)
		}

		if err != nil {
			return nil, err
		}

		number = n + 1
		if len(tasks) == 0 {
			logs = []string{q.logPath(n, j)}
			return submitLine(n, what, j)
		}

		var text []byte
		name, log := what.Name, j.Log
		what.Array = &batchlog.Array{First: n, Most: most}

		for i, task := range tasks {
			what.Name, j.Task, j.Log = fmt.Sprintf("%s[%d]", name, task), &task, strings.ReplaceAll(log, "%a", strconv.Itoa(task))
			one, err := submitLine(n+i, what, j)
			if err != nil {
				return nil, err
			}

			logs = append(logs, q.logPath(n+i, j))
			text = append(append(text, one...), '\n')
		}

		return text[:len(text)-1], nil
	})

	if err == nil {
		err = q.journal.Sync()
	}

	var usage *exit.Usage
	switch {
	case errors.As(err, &usage):
		return 0, nil, err
	case err != nil:
		return 0, nil, fmt.Errorf("cannot queue the job: %w", err)
	}

	return number, logs, nil
}

// submitLine is the line of the journal of a job that is submitted.
func submitLine(run int, what batchlog.Job, j Job) (text []byte, err error) {
	what.Data, err = json.Marshal(j)
	if err != nil {
		return nil, err
	}
	return json.Marshal(batchlog.Event{Kind: batchlog.Submit, Run: run, At: time.Now().Truncate(time.Millisecond), Job: &what})
}

func (q *Queue) logPath(run int, j Job) string {
	if j.Log != "" {
		return j.Log
	}
	return filepath.Join(q.Dir, batchlog.JobFolder(run), "log")
}

// Pause lets nothing start, or again what may.
func (q *Queue) Pause(on bool) error {
	kind := batchlog.Resume
	if on {
		kind = batchlog.Pause
	}

	err := runner.AppendEvent(q.journal, batchlog.Event{Kind: kind, At: time.Now().Truncate(time.Millisecond)})
	if err != nil {
		return err
	}

	return q.journal.Sync()
}

// CheckRequest is why a job cannot be asked for that; nil where it can.
func (q *Queue) CheckRequest(kind batchlog.Kind, number int) error {
	state, err := q.Read()
	if err != nil {
		return err
	}

	return checkRequest(state, kind, number)
}

// Ask records what the owner wants of jobs, and tells the schedulers that have some of them. Of those that it cannot be
// asked of, the error names the first; nothing is asked then.
func (q *Queue) Ask(ctx context.Context, kind batchlog.Kind, numbers ...int) error {
	own, away, err := q.splitByEngine(numbers)
	if err == nil && len(away) > 0 {
		// One may have ended meanwhile; jobs of this machine wait for nobody.
		_, err = q.RefreshAway(ctx)
	}

	if err != nil {
		return err
	}

	for _, n := range numbers {
		if err := checkRequest(q.state, kind, n); err != nil {
			return err
		}
	}

	for name, list := range away {
		if err := q.askAway(ctx, kind, name, list); err != nil {
			return err
		}
	}

	if len(own) == 0 {
		return q.journal.Sync()
	}

	err = q.journal.AppendLocked(func(int64) ([]byte, error) {
		// Nobody else asks between the check and the lines.
		state, err := q.Read()
		if err != nil {
			return nil, err
		}

		var lines [][]byte
		for _, n := range own {
			if err := checkRequest(state, kind, n); err != nil {
				return nil, err
			}
			line, err := json.Marshal(batchlog.Event{Kind: kind, Run: n - 1, At: time.Now().Truncate(time.Millisecond)})
			if err != nil {
				return nil, err
			}
			lines = append(lines, line)
		}

		return bytes.Join(lines, []byte("\n")), nil
	})

	if err != nil {
		return err
	}

	return q.journal.Sync()
}

// checkRequest is an error where a job cannot be asked for that.
func checkRequest(state *batchlog.State, kind batchlog.Kind, n int) error {
	if n < 1 || n > len(state.Runs) {
		return exit.Usagef("cannot find job %d: the last one is job %d; see: gpuard queue", n, len(state.Runs))
	}

	phase := state.Runs[n-1].Phase
	over := phase >= batchlog.OK
	switch {
	case kind == batchlog.Again && state.Runs[n-1].Unread:
		return exit.Usagef("cannot queue job %d again: %s", n, state.Runs[n-1].LastEvent().Problem)
	case kind == batchlog.Again && state.Runs[n-1].Away != nil:
		return exit.Usagef("cannot queue job %d again: %s has it; hand it in again: gpuard submit --engine %[2]s", n, state.Runs[n-1].Away.Engine)
	case kind == batchlog.Again && (!over || phase == batchlog.OK):
		return exit.Usagef("cannot queue job %d again: %s", n, map[bool]string{true: "it ended well; hand it in again: gpuard submit", false: "it has not ended"}[over])
	case kind != batchlog.Again && over:
		return exit.Usagef("cannot %s job %d: it has ended; see: gpuard history", kind, n)
	case (kind == batchlog.Hold || kind == batchlog.Unhold) && phase != batchlog.Waiting && phase != batchlog.Elsewhere:
		return exit.Usagef("cannot %s job %d: it runs already; end it: gpuard cancel %d", kind, n, n)
	}

	return nil
}

// StartKeeper starts the keeper, if there is none and some job may start.
func (q *Queue) StartKeeper() error {
	path := filepath.Join(q.Dir, errorFile)
	errs, err := sys.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("cannot start the queue: %w", err)
	}

	defer errs.Close() //nolint:errcheck // the keeper has it
	process, err := daemonize.StartBackground(q.host.Name, q.host.Env, errs, Flag, q.Dir)
	if err != nil {
		return err
	}

	return process.Release()
}

// mostDying is how long a killed keeper or runner may have its lock still.
const mostDying = time.Second

// HasKeeper reports whether a process is there that starts the jobs. A killed one has its lock until the kernel has
// closed its files. Who believed that lock would start no other, and what was just handed in would not run.
func (q *Queue) HasKeeper() bool {
	path := filepath.Join(q.Dir, lockFile)
	for end := time.Now().Add(mostDying); journal.IsLocked(path); time.Sleep(time.Millisecond) {
		alive := func(o journal.LockOwner) bool { return !q.host.Proc.IsEnding(o.PID, o.Start) }
		if slices.ContainsFunc(journal.LockOwners(path), alive) || time.Now().After(end) {
			return true
		}
	}
	return false
}

// Problem is what the last keeper said before it ended; "" nothing.
func (q *Queue) Problem() string {
	text, _ := os.ReadFile(filepath.Join(q.Dir, errorFile))
	return strings.TrimSpace(strings.TrimPrefix(string(text), "gpuard: "))
}

// IsRunner reports whether a process is the runner of this queue.
func (q *Queue) IsRunner(pid int) bool {
	return strings.Contains(q.host.Proc.DescribeProcess(pid).Command, RunnerFlag+" "+q.Dir)
}
