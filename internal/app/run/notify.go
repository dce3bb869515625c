package run

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/batch"
	"gpuard/internal/host/launch"
)

// notifyDesktop is the value of --notify for the desktop.
const notifyDesktop = "desktop"

func isURL(who string) bool {
	return strings.HasPrefix(who, "http://") || strings.HasPrefix(who, "https://")
}

// CheckNotify is an error where the program is missing that tells who.
func CheckNotify(who string) error {
	if strings.Contains(who, "@") && !strings.ContainsAny(who, " \t:/") {
		return exit.Usagef("cannot use --notify %s: an address is no command; write one that sends mail, such as --notify 'echo \"$GPUARD_JOB_TEXT\" | mail -s gpuard %[1]s'", who)
	}
	for program, need := range map[string]bool{"curl": isURL(who), "notify-send": who == notifyDesktop} {
		if !need {
			continue
		}
		if _, err := launch.FindCommand(program); err != nil {
			return exit.Usagef("cannot use --notify %s: it needs %s, which is not installed; write a shell command, such as --notify 'mail -s \"$GPUARD_JOB_TEXT\" me </dev/null'", who, program)
		}
	}
	return nil
}

// notifyTimeout is how long what tells of an end is waited for.
const notifyTimeout = 30 * time.Second

// Notice is what is told of the end of a job.
type Notice struct {
	// The number in the queue; 0 it was not in one.
	Number int
	Name   string
	State  string // "done", "failed"
	Exit   int
	// File with its output; "" none.
	Log string
	// All of it, in one line.
	Text string
}

// Send tells who (--notify) of the end: by a shell command, which is the user's own and gets GPUARD_JOB and the like,
// by a POST, or on the desktop. With wait it waits for that, because the end of this process may be the end of that,
// too, in a job of a scheduler or a container. out gets what the command prints.
func (n Notice) Send(who string, env visible.Env, folder string, out *os.File, wait bool) error {
	vars := []string{fmt.Sprint("GPUARD_JOB=", n.Number), "GPUARD_JOB_NAME=" + n.Name, "GPUARD_JOB_STATE=" + n.State, fmt.Sprint("GPUARD_JOB_EXIT=", n.Exit), "GPUARD_JOB_LOG=" + n.Log, "GPUARD_JOB_TEXT=" + n.Text}
	argv, input := []string{"/bin/sh", "-c", who}, ""
	switch {
	case isURL(who):
		body, err := json.Marshal(map[string]any{"job": n.Number, "name": n.Name, "state": n.State, "exit": n.Exit, "text": n.Text})
		if err != nil {
			return err
		}

		// The URL may be a secret, and all users see argv.
		argv = []string{"curl", "-fsS", "-m", "30", "-H", "Content-Type: application/json", "-K", "-"}
		quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
		input = fmt.Sprintf("url = \"%s\"\ndata-raw = \"%s\"\n", quoted.Replace(who), quoted.Replace(string(body)))
	case who == notifyDesktop:
		argv = []string{"notify-send", "gpuard", n.Text}
	}

	path, err := launch.FindCommand(argv[0])
	if err != nil {
		return err
	}

	read, err := batch.InputFile([]byte(input))
	if err != nil {
		return err
	}

	defer read.Close() //nolint:errcheck // the command has its own
	pid, err := batch.StartCommand(batch.Command{Path: path, Dir: folder, Argv: argv, Env: append(vars, env...), Log: out}, read)
	if err != nil || !wait {
		return err
	}

	over := make(chan struct{})
	go func() {
		_, _ = batch.AwaitChild(pid)
		batch.ReapChild(pid)
		close(over)
	}()

	select {
	case <-over:
	case <-time.After(notifyTimeout):
	}

	return nil
}

// tellEnd tells whoever is to be told (--notify) how the command ended.
func (s *supervision) tellEnd() {
	if s.care.Notify == "" || s.done.Asked {
		return
	}

	n := Notice{Name: machine.JobName(s.spec), State: "done", Exit: s.done.Code, Log: s.care.Log}
	how := n.State
	if s.done.Code != 0 || s.done.Signal != "" || s.done.TimedOut {
		n.State, how = "failed", s.last.EndText()
	}

	if s.done.TimedOut {
		n.Exit, how = exit.TimedOut, "its time was over"
	}

	n.Text = fmt.Sprintf("%s: %s after %s", prose.Clean(n.Name), how, s.done.Ran.Round(time.Second))
	folder, err := os.Getwd()
	if err == nil {
		err = n.Send(s.care.Notify, s.host.Env, folder, os.Stderr, true)
	}

	if err != nil {
		s.host.Say(fmt.Sprintf("cannot tell of the end of the command (--notify): %v", err))
	}
}
