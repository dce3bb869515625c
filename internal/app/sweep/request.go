// Package sweep runs one command many times, each time with other parameters and a lease of its own, on as many devices
// as there are. It says what the runs are; package runs starts them.
package sweep

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/judge"
	"gpuard/internal/app/machine"
	apprun "gpuard/internal/app/run"
	"gpuard/internal/app/runner"
	"gpuard/internal/core/batchlog"
	"gpuard/internal/core/grid"
	"gpuard/internal/core/job"
	"gpuard/internal/core/launchers"
	"gpuard/internal/core/prose"
	"gpuard/internal/host/files"
	"gpuard/internal/host/journal"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/sys"
)

// Request is what a sweep was asked for. It lies in the sweep's folder, so that resuming needs nothing else.
type Request struct {
	// "gpuard.sweep-question/1".
	Schema string    `json:"schema"`
	Grid   grid.Grid `json:"grid"`
	// Templates; empty where Grid has the commands.
	Command []string `json:"command"`
	// The folder in which the commands run.
	Folder string   `json:"workdir"`
	Spec   job.Spec `json:"spec"`
	// The runs go on the CPU where this machine can never give what Spec asks for.
	ElseCPU bool `json:"fallback_cpu,omitempty"`
	PerGPU  int  `json:"jobs_per_gpu,omitempty"`
	// Limit of runs at the same time; 0 as many as fit.
	Jobs    int            `json:"jobs,omitempty"`
	Retry   batchlog.Retry `json:"retry"`
	Machine string         `json:"machine,omitempty"`
	Private bool           `json:"private_state,omitempty"`
	// The time between the signal that asks a run to end and SIGKILL.
	Grace time.Duration `json:"grace_ns"`

	// The file of Grid's commands; "" not known.
	From string `json:"-"`

	// Who is told when it is over.
	Notify string `json:"notify,omitempty"`
	// How each run is looked after; nil: it is only started, and ended.
	Care      *job.Care         `json:"care,omitempty"`
	Oversight *apprun.Oversight `json:"oversight,omitempty"`
}

const requestSchema = "gpuard.sweep-question/1"

// hasSameRuns reports whether two questions make the same runs. Their number at the same time, and their devices, may
// differ.
func (q *Request) hasSameRuns(other *Request) bool {
	key := func(q *Request) []byte {
		b, _ := json.Marshal([]any{q.Grid, q.Command, q.Folder})
		return b
	}
	return bytes.Equal(key(q), key(other))
}

// Sweep is a question with its folder, which this process has locked.
type Sweep struct {
	*runner.Folder
	Request *Request
	// Something was done before.
	Resumed bool

	// The folder was made by this call.
	fresh   bool
	command *grid.Command
}

// Flag is the first argument of a sweep's runner; the sweep's folder follows.
const Flag = "__sweep"

// Files in the folder of a sweep.
const (
	requestFile = "sweep.json"
	journalFile = runner.JournalFile
	lockFile    = "lock"
)

// Begin opens the folder for a question, or a new one with a number where dir is "". A folder of the same question is
// resumed.
func Begin(host *machine.Host, q *Request, dir string, busy func()) (*Sweep, error) {
	q.Schema = requestSchema
	q.Machine = host.Machine
	if host.Machine != "" && host.Machine != "demo" && !strings.HasPrefix(host.Machine, "demo:") {
		q.Machine, _ = filepath.Abs(host.Machine)
	}

	q.Private = host.PrivateState
	var err error
	q.Folder, err = os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("cannot start anything: the folder that this is called in is gone: %w", err)
	}

	command, err := checkCommands(host, q)
	if err != nil {
		return nil, err
	}

	_, missing := os.Stat(dir)
	fresh := dir == "" || errors.Is(missing, os.ErrNotExist)
	dir, err = makeFolder(dir)
	if err != nil {
		return nil, err
	}

	return openSweep(host, q, command, dir, fresh, busy)
}

// Resume continues the sweep in a folder.
func Resume(host *machine.Host, dir string, busy func()) (*Sweep, error) {
	dir, err := ownFolder(dir, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, &exit.Usage{Text: fmt.Sprintf("cannot resume %s: there is no such folder; ls -d gpuard-sweep-* shows those of this folder", dir)}
	}
	if err != nil {
		return nil, err
	}

	q, err := readRequest(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, &exit.Usage{Text: fmt.Sprintf("cannot resume %s: it is no folder of a sweep, it has no %s", dir, requestFile)}
	}
	if err != nil {
		return nil, err
	}

	host.Machine, host.PrivateState = q.Machine, q.Private
	command, err := checkCommands(host, q)
	if err != nil {
		return nil, err
	}

	return openSweep(host, q, command, dir, false, busy)
}

// checkCommands finds out before anything is leased whether the commands can be made and are there.
func checkCommands(host *machine.Host, q *Request) (*grid.Command, error) {
	command, err := grid.ParseCommand(q.Command, &q.Grid)
	if err != nil {
		return nil, err
	}

	for _, name := range command.Programs() {
		if q.Spec.StartsTorchrun() {
			break
		}

		err := checkProgram(q, name)
		if err != nil {
			first := slices.IndexFunc(q.Grid.Commands, func(words []string) bool { return words[0] == name })
			return nil, q.inLine(first, err)
		}
	}

	return command, judgeRuns(host, q, command)
}

func checkProgram(q *Request, name string) error {
	err := refuseAssignment(name)
	if err != nil {
		return err
	}

	_, err = findProgram(q, name)

	return err
}

// judgeRuns refuses what surely does not use the GPUs that its run is given, and says once what may not.
func judgeRuns(host *machine.Host, q *Request, command *grid.Command) error {
	runs := q.Grid.Len()
	if len(q.Command) > 0 {
		// One command for all.
		runs = min(runs, 1)
	}

	var said []string
	for i := range runs {
		words, err := command.Words(i)
		if err != nil {
			return q.inLine(i, err)
		}

		remarks, err := judge.Command(host, q.Spec, words, judge.Place{Many: true})
		if err != nil {
			return q.inLine(i, err)
		}

		for _, r := range remarks {
			if slices.Contains(said, r) {
				continue
			}
			said = append(said, r)
			if where := q.line(i); where != "" {
				r = where + ": " + r
			}
			host.Say(r)
		}
	}

	return nil
}

// line is where a run stands in the file of commands: "line 3 of runs.txt"; "" for others.
func (q *Request) line(run int) string {
	if q.From == "" || run < 0 || run >= len(q.Grid.Lines) {
		return ""
	}
	return fmt.Sprintf("line %d of %s", q.Grid.Lines[run], prose.Clean(q.From))
}

// inLine is a refusal of a run with its place.
func (q *Request) inLine(run int, err error) error {
	where := q.line(run)
	if where == "" {
		return err
	}
	return fmt.Errorf("cannot run %s: %w", where, err)
}

// refuseAssignment refuses a variable in the place of a program, as a line for a shell begins with.
func refuseAssignment(word string) error {
	name, _, assigned := strings.Cut(word, "=")
	switch {
	case !assigned || strings.ContainsAny(name, "/.-"):
		return nil
	case slices.Contains(launchers.MaskVariables(), name):
		return exit.Usagef("cannot run %q: a variable in front of a command is for a shell, and each run of a sweep gets a GPU of its own; leave it out", word)
	}
	return exit.Usagef("cannot run %q: a variable in front of a command is for a shell; write: env %s …", word, word)
}

// findProgram is the program of a command, which runs in the sweep's own folder.
func findProgram(q *Request, name string) (string, error) {
	if strings.Contains(name, "/") && !filepath.IsAbs(name) {
		path, err := launch.FindCommand(filepath.Join(q.Folder, name))
		return path, err
	}
	return launch.FindCommand(name)
}

// isProgram reports whether a program is still where it was found.
func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// makeFolder makes the folder of a sweep.
func makeFolder(dir string) (string, error) {
	if dir != "" {
		return ownFolder(dir, 0o700)
	}

	const cannot = "cannot make a folder for the sweep: %w; name one that you can write: --dir DIR"
	here, err := os.Getwd()
	above, openErr := sys.FollowDir(".")
	err = errors.Join(err, openErr)
	if err != nil {
		return "", fmt.Errorf(cannot, err)
	}

	defer above.Close() //nolint:errcheck // nothing is written through it
	for n := 1; ; n++ {
		name := fmt.Sprintf("gpuard-sweep-%d", n)
		dir = filepath.Join(here, name)
		err = above.Mkdir(name, 0o700)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf(cannot, err)
		}

		err = checkOwn(dir, 0)
		if err != nil {
			_ = above.Rmdir(name)
			return "", err
		}

		return dir, nil
	}
}

// ownFolder returns the absolute path of a folder as checkOwn wants it.
func ownFolder(dir string, mode uint32) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return dir, err
	}

	return dir, checkOwn(dir, mode)
}

// checkOwn refuses a folder that belongs to another user, or that another user could exchange: its commands are run.
// With a mode it is made where it is missing.
func checkOwn(dir string, mode uint32) error {
	own, err := sys.OpenOwnFolder(dir, mode)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return err
	case errors.Is(err, syscall.ENOTDIR):
		return &exit.Usage{Text: fmt.Sprintf("cannot use %s for a sweep: it is not a folder", dir)}
	case err != nil:
		return &exit.Usage{Text: fmt.Sprintf("cannot use %s for a sweep: %v; name a folder of your own: --dir DIR", dir, err)}
	}
	return own.Close()
}

func readRequest(dir string) (*Request, error) {
	data, err := files.ReadNamed(filepath.Join(dir, requestFile), 8*maxRunsFile)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", filepath.Join(dir, requestFile), err)
	}

	q := &Request{}
	if err := json.Unmarshal(data, q); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", filepath.Join(dir, requestFile), err)
	}
	if q.Schema != requestSchema {
		return nil, fmt.Errorf("cannot read %s: it is of another gpuard (schema %q, not %q)", filepath.Join(dir, requestFile), q.Schema, requestSchema)
	}

	return q, nil
}

// openSweep locks the folder and reads what was done.
func openSweep(host *machine.Host, q *Request, command *grid.Command, dir string, fresh bool, busy func()) (*Sweep, error) {
	s := &Sweep{Folder: q.folderIn(dir, host), Request: q, fresh: fresh, command: command}
	if err := s.takeFolder(busy); err != nil {
		s.Close()
		return nil, err
	}
	return s, s.readHistory()
}

// folderIn is the folder of a sweep for its conductor and its runner.
func (q *Request) folderIn(dir string, host *machine.Host) *runner.Folder {
	return &runner.Folder{Dir: dir, Host: host, State: batchlog.NewState(q.Grid.Len(), q.Retry), Flag: Flag, Mark: machine.SweepFolder, Work: q.Folder, Grace: q.Grace}
}

func (s *Sweep) takeFolder(busy func()) (err error) {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return err
	}

	old, err := readRequest(s.Dir)
	switch {
	case errors.Is(err, os.ErrNotExist) && hasForeignFiles(entries):
		return &exit.Usage{Text: fmt.Sprintf("cannot use %s for a sweep: it has other files; name a new folder", s.Dir)}
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	case err == nil && !old.hasSameRuns(s.Request):
		return &exit.Usage{Text: fmt.Sprintf("cannot use %s: it is of another sweep (%s); name another folder, or resume that one: gpuard sweep --resume %[1]s", s.Dir, old.requestText())}
	}

	if err := s.takeHost(); err != nil {
		return err
	}

	s.Lock, err = journal.Lock(filepath.Join(s.Dir, lockFile), busy)
	if err != nil {
		return err
	}
	if err := sys.MkdirAll(filepath.Join(s.Dir, "runs"), 0o700); err != nil {
		return fmt.Errorf("cannot use %s for a sweep: %w", s.Dir, err)
	}

	return journal.ReplaceFile(filepath.Join(s.Dir, requestFile), func(w io.Writer) error { return json.NewEncoder(w).Encode(s.Request) })
}

// hasForeignFiles: a folder that a sweep made has its host and its lock first.
func hasForeignFiles(entries []os.DirEntry) bool {
	for _, e := range entries {
		if e.Name() != lockFile && e.Name() != hostFile && e.Name() != "runs" && !strings.HasPrefix(e.Name(), "."+requestFile) {
			return true
		}
	}
	return false
}

// requestText is a question for people.
func (q *Request) requestText() string {
	text := fmt.Sprintf("%d runs", q.Grid.Len())
	if len(q.Command) > 0 {
		text += " of " + strings.Join(q.Command, " ")
	}
	return text + " in " + q.Folder
}

// readHistory reads what was done. After an error the sweep is closed.
func (s *Sweep) readHistory() error {
	err := s.readJournal()
	if err != nil {
		s.Close()
		return err
	}

	s.Resumed = s.Journal.Offset() > 0

	return nil
}

func (s *Sweep) readJournal() (err error) {
	s.Journal, err = journal.Open(filepath.Join(s.Dir, journalFile))
	if err != nil {
		return err
	}

	err = s.Journal.TruncatePartial()
	if err != nil {
		return err
	}

	return s.CatchUp()
}

// Count is how many runs are where.
func (s *Sweep) Count() batchlog.Count { return s.State.Count }

// UnusedParameters are the parameters that no word of the command asks for.
func (s *Sweep) UnusedParameters() []string { return s.command.Unused }

// RetryFailed asks for those that failed once more.
func (s *Sweep) RetryFailed() error {
	for _, run := range s.State.RunsIn(batchlog.Failed) {
		if err := s.Add(batchlog.Event{Kind: batchlog.Again, Run: run, At: time.Now()}); err != nil {
			return err
		}
	}
	return nil
}
