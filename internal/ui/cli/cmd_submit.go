package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/app/queue"
	"gpuard/internal/core/pick"
	record "gpuard/internal/core/runs"
)

type submitOptions struct {
	spec                          specFlags
	name, note, after, log, retry string
	timeout, time, array, notify  string
	nice                          int
	hold, json, quiet             bool
}

func (p *Program) submit() *cobra.Command {
	o := &submitOptions{}
	cmd := &cobra.Command{
		Use:   "submit [flags] [--] COMMAND [ARG...]",
		Short: "Hand in a job, which runs when a GPU is free, also after a logout",
		Long: `Puts COMMAND into your queue and returns. It will run in this folder, with the
environment that this shell has now, on a GPU that is leased for it. Its output
goes to the file that is named. Between users the line is that of gpuard run:
nobody gets ahead by handing in more jobs.

Exit codes: 0 the job is on the disk, 125 gpuard failed or was used wrongly, 126
not executable, 127 not found.`,
		Example: `  gpuard submit --gpus 2 -- python train.py
  gpuard submit --after 17 -- python eval.py     when job 17 has ended with 0
  gpuard submit --array 1-20%4 -- ./one.sh       20 jobs, 4 at a time; each has
                                                 its $GPUARD_ARRAY_TASK
  gpuard submit ./train.sh                       with lines "#GPUARD --gpus 2"
  id=$(gpuard submit -q -- ./train.sh)           only the number
  gpuard queue                                   what runs and what waits
  gpuard logs -f 17`,
		ValidArgsFunction: p.programs,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := p.submitWith(cmd, o, args)
			var own *failure
			if err == nil || errors.As(err, &own) {
				return err
			}
			return &failure{err, exit.Run(err)}
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	o.spec.add(p, cmd)
	f.StringVar(&o.name, "name", "", "`NAME` of the job in lists (default: that of the program)")
	f.StringVar(&o.note, "note", "", "`TEXT` for people")
	f.StringVar(&o.after, "after", "", "start when these jobs have ended with 0: `N[:any],...`; any: however they end")
	f.StringVar(&o.log, "log", "", "`FILE` for its output (default: one in the folder of the queue)")
	f.StringVar(&o.retry, "retry", "", "start it again up to `N[:any]` times after a fault of the machine; any: after every failure")
	f.StringVar(&o.timeout, "timeout", "", "end it, and everything that it started, after this `TIME`, such as 2h")
	f.StringVar(&o.time, "time", "", "your estimate of its run time, a `TIME` such as 2h: orders your own jobs, and ends nothing")
	f.StringVar(&o.array, "array", "", "one job for each of these `NUMBERS`, such as 1-20 or 1,5,9; 1-20%4: 4 at a time")
	f.StringVar(&o.notify, "notify", "", "`WHO` is told of its end: a shell command, a URL, or desktop")
	f.IntVar(&o.nice, "nice", 0, "of your own jobs, those with a lower `N` start first")
	f.BoolVar(&o.hold, "hold", false, "do not start it before gpuard queue unhold")
	f.BoolVar(&o.json, "json", false, "answer as one JSON object")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print only the number of the job")
	p.privateState(cmd)
	completeWords(cmd)
	for _, name := range []string{"name", "note", "after", "nice", "array"} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
	return cmd
}

// submitted is the JSON answer of submit.
type submitted struct {
	Schema string `json:"schema"` // "gpuard.submit/1"
	Job    int    `json:"job"`    // its number; of --array, that of the first
	Jobs   int    `json:"jobs"`   // how many they are; their numbers follow each other
	Log    string `json:"log"`    // file for the output of the first
}

func (p *Program) submitWith(cmd *cobra.Command, o *submitOptions, args []string) error {
	if len(args) == 0 {
		return usagef("cannot queue nothing: write a command, such as gpuard submit -- python train.py")
	}
	if err := p.scriptFlags(cmd, args[0]); err != nil {
		return asUsage(err)
	}
	if err := refuseEmpty(cmd, "name", "note", "after", "log", "retry", "timeout", "time", "array", "notify"); err != nil {
		return asUsage(err)
	}
	if err := p.fill(cmd); err != nil {
		return err
	}
	what, j, err := p.jobOf(cmd, o, args)
	if err != nil {
		return asUsage(p.atDefault(err))
	}
	tasks, most, err := arrayTasks(o.array, o.log)
	if err != nil {
		return asUsage(err)
	}
	if j.Path, err = queue.Program(args[0]); err != nil {
		return err
	}
	if err := p.mayQueue(cmd.Context(), j.Spec); err != nil {
		return err
	}
	q, err := queue.Open(p.Host, len(what.After) == 0)
	switch {
	case err != nil:
		return err
	case q == nil:
		return exit.Usagef("cannot wait for job %d: you have handed in none", what.After[0].Run+1)
	}
	defer q.Close()
	if err := p.queueRoom(q, max(1, len(tasks))); err != nil {
		return err
	}
	number, logs, err := q.Submit(what, j, p.Host.Env, tasks, most)
	if err == nil && !q.Kept() {
		err = q.Serve()
	}
	switch {
	case err != nil:
		return err
	case o.json:
		return writeJSON(p.Out, submitted{schema(cmd), number, len(logs), logs[0]})
	case o.quiet:
		_, err = fmt.Fprintln(p.Out, number)
		return err
	}
	if len(tasks) > 0 {
		fmt.Fprintf(p.Out, "jobs %d-%d are queued; the output of the first: %s\n", number, number+len(logs)-1, logs[0])
		return nil
	}
	fmt.Fprintf(p.Out, "job %d is queued; its output: %s\n", number, logs[0])
	return nil
}

// jobOf checks the flags and returns the job that they describe.
func (p *Program) jobOf(cmd *cobra.Command, o *submitOptions, args []string) (what record.Job, j queue.Job, err error) {
	spec, err := p.request(cmd, &o.spec, args)
	if err != nil {
		return what, j, err
	}
	if j.Folder, err = os.Getwd(); err != nil {
		return what, j, fmt.Errorf("cannot queue anything: the folder that this is called in is gone: %w", err)
	}
	if o.timeout != "" {
		if spec.Timeout, err = duration("timeout", o.timeout); err != nil {
			return what, j, err
		}
	}
	if o.time != "" {
		if what.Time, err = duration("time", o.time); err != nil {
			return what, j, err
		}
	}
	if err := queue.CanNotify(o.notify); err != nil {
		return what, j, err
	}
	if o.retry != "" {
		if what.Retry.Times, what.Retry.Any, err = retries(o.retry); err != nil {
			return what, j, err
		}
	}
	if o.log != "" {
		if j.Log, err = filepath.Abs(o.log); err != nil {
			return what, j, err
		}
		if info, serr := os.Stat(filepath.Dir(j.Log)); serr != nil || !info.IsDir() {
			return what, j, fmt.Errorf("cannot write --log %s: there is no folder %s", o.log, filepath.Dir(j.Log))
		}
	}
	if what.After, err = afters(o.after); err != nil {
		return what, j, err
	}
	spec.Name = o.name
	j.Command, j.Spec, j.Note, j.Notify, j.Private = args, spec, o.note, o.notify, p.Host.PrivateState
	j.Limits = queue.Limits()
	j.Umask = syscall.Umask(0)
	syscall.Umask(j.Umask)
	if j.Machine = p.Host.Machine; j.Machine != "" && j.Machine != "demo" && !strings.HasPrefix(j.Machine, "demo:") {
		if j.Machine, err = filepath.Abs(j.Machine); err != nil {
			return what, j, err
		}
	}
	what.Name, what.Nice, what.Held, what.Kind, what.GPUs = machine.JobName(spec), o.nice, o.hold, queue.Kind(args), pick.Need(spec)
	return what, j, nil
}

// afters reads "17,18:any".
func afters(text string) (list []record.After, err error) {
	if text == "" {
		return nil, nil
	}
	for word := range strings.SplitSeq(text, ",") {
		number, how, given := strings.Cut(word, ":")
		n, nerr := strconv.Atoi(number)
		if nerr != nil || n < 1 || given && how != "any" && how != "ok" {
			return nil, fmt.Errorf("cannot read --after %q: write the numbers of jobs, such as --after 17, or --after 17:any,18", text)
		}
		list = append(list, record.After{Run: n - 1, Any: how == "any"})
	}
	return list, nil
}
