package userqueue

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"

	apprun "gpuard/internal/app/run"
	"gpuard/internal/app/runner"
	"gpuard/internal/core/batchlog"
	"gpuard/internal/core/prose"
	"gpuard/internal/host/limits"
	"gpuard/internal/host/sys"
)

// CommandHash is the same number for the same command.
func CommandHash(command []string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(strings.Join(command, "\x00")))
	return h.Sum32()
}

// CallerLimits are those that a job has if it is handed in now: the caller's.
func CallerLimits() string { return limits.CallerLimits() }

// notifyEnd tells who of the end of a job. What does that is the user's own, in the environment and the folder of the
// job.
func notifyEnd(f *runner.Folder, run int) error {
	dir, all := f.Dir, f.State
	j, err := jobAt(f.Journal, all, run)
	if err != nil || j.Notify == "" {
		return err
	}

	state, last := stateOf(all, run), all.Runs[run].LastEvent()
	e := Entry{Number: run + 1, Name: all.Runs[run].Name, State: state, Exit: &last.Exit, Signal: last.Signal, Starts: all.Runs[run].Starts}
	env, err := readEnvironment(filepath.Join(dir, envFolder), j.Env)
	if err != nil {
		return err
	}

	folder := filepath.Join(dir, batchlog.JobFolder(run))
	if err := sys.MkdirAll(folder, 0o700); err != nil {
		// A job that did not run has none.
		return err
	}

	log, err := sys.OpenFile(filepath.Join(folder, "notify.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}

	defer log.Close() //nolint:errcheck // the command has its own
	if info, err := os.Stat(j.Folder); err == nil && info.IsDir() {
		folder = j.Folder
	}

	return apprun.Notice{
		Number: e.Number, Name: e.Name, State: string(state), Exit: last.Exit, Log: (&Queue{Dir: dir}).logPath(run, j),
		Text: fmt.Sprintf("job %d (%s): %s", e.Number, prose.Clean(e.Name), e.EndText()),
	}.Send(j.Notify, env, folder, log, false)
}

// EndText is how a job ended, in a word or two.
func (e *Entry) EndText() string {
	switch {
	case e.State == Failed && e.Starts == 0:
		return "not run"
	case e.State == Failed && e.Signal != "":
		return e.Signal
	case e.State == Failed && e.Exit != nil:
		return fmt.Sprintf("exit %d", *e.Exit)
	}
	return string(e.State)
}
