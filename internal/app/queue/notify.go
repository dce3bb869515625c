package queue

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"

	"gpuard/internal/app/exit"
	"gpuard/internal/core/prose"
	record "gpuard/internal/core/runs"
	"gpuard/internal/host/batch"
	"gpuard/internal/host/journal"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/limits"
	"gpuard/internal/host/sys"
)

// Kind is the same number for the same command.
func Kind(command []string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(strings.Join(command, "\x00")))
	return h.Sum32()
}

// Limits are those that a job has if it is handed in now: the caller's.
func Limits() string { return limits.OfCaller() }

// desktop is the value of --notify for the desktop.
const desktop = "desktop"

func isURL(who string) bool {
	return strings.HasPrefix(who, "http://") || strings.HasPrefix(who, "https://")
}

// CanNotify is an error where the program is missing that tells who.
func CanNotify(who string) error {
	if strings.Contains(who, "@") && !strings.ContainsAny(who, " \t:/") {
		return exit.Usagef("cannot use --notify %s: an address is no command; write one that sends mail, such as --notify 'echo \"$GPUARD_JOB_TEXT\" | mail -s gpuard %[1]s'", who)
	}
	for program, need := range map[string]bool{"curl": isURL(who), "notify-send": who == desktop} {
		if !need {
			continue
		}
		if _, err := launch.Find(program); err != nil {
			return exit.Usagef("cannot use --notify %s: it needs %s, which is not installed; write a shell command, such as --notify 'mail -s \"$GPUARD_JOB_TEXT\" me </dev/null'", who, program)
		}
	}
	return nil
}

// notify tells who of the end of a job. What does that is the user's own, in the environment and the folder of the job.
func notify(dir string, lines *journal.Journal, all *record.State, run int) error {
	j, err := jobAt(lines, all, run)
	if err != nil || j.Notify == "" {
		return err
	}
	state, last := stateOf(all, run), all.Runs[run].Last()
	e := Entry{Number: run + 1, Name: all.Runs[run].Name, State: state, Exit: &last.Exit, Signal: last.Signal, Starts: all.Runs[run].Starts}
	text := fmt.Sprintf("job %d (%s): %s", e.Number, prose.Clean(e.Name), e.Ending())
	env, err := environment(filepath.Join(dir, envFolder), j.Env)
	if err != nil {
		return err
	}
	folder := filepath.Join(dir, record.JobFolder(run))
	vars := []string{"GPUARD_JOB=" + fmt.Sprint(e.Number), "GPUARD_JOB_NAME=" + e.Name, "GPUARD_JOB_STATE=" + string(state), fmt.Sprintf("GPUARD_JOB_EXIT=%d", last.Exit),
		"GPUARD_JOB_LOG=" + (&Queue{Dir: dir}).logPath(run, j), "GPUARD_JOB_TEXT=" + text}
	argv, input := []string{"/bin/sh", "-c", j.Notify}, ""
	switch {
	case isURL(j.Notify):
		body, err := json.Marshal(map[string]any{"job": e.Number, "name": e.Name, "state": state, "exit": last.Exit, "text": text})
		if err != nil {
			return err
		}
		argv = []string{"curl", "-fsS", "-m", "30", "-H", "Content-Type: application/json", "-K", "-"} // the URL may be a secret, and all users see argv
		quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
		input = fmt.Sprintf("url = \"%s\"\ndata-raw = \"%s\"\n", quoted.Replace(j.Notify), quoted.Replace(string(body)))
	case j.Notify == desktop:
		argv = []string{"notify-send", "gpuard", text}
	}
	path, err := launch.Find(argv[0])
	if err != nil {
		return err
	}
	if err := sys.MkdirAll(folder, 0o700); err != nil { // a job that did not run has none
		return err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()                //nolint:errcheck // the command has its own
	_, err = write.WriteString(input) // shorter than a pipe has room for
	if cerr := write.Close(); err == nil {
		err = cerr
	}
	if err != nil {
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
	_, err = batch.Start(batch.Command{Path: path, Dir: folder, Argv: argv, Env: append(vars, env...), Log: log}, read)
	return err
}

// Ending is how a job ended, in a word or two.
func (e *Entry) Ending() string {
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
