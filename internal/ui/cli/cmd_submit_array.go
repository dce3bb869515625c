package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/app/queue"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// mostTasks is the size of an array.
const mostTasks = 10_000

// arrayTasks reads --array: "1-20", "1,5,9", "0-99%4".
func arrayTasks(text, log string) (tasks []int, most int, err error) {
	if text == "" {
		return nil, 0, nil
	}
	wrong := fmt.Errorf("cannot read --array %q: write numbers from 0, such as --array 1-20, --array 1,5,9, or --array 1-20%%4 for 4 at a time", text)
	list, limit, limited := strings.Cut(text, "%")
	if limited {
		if most, err = strconv.Atoi(limit); err != nil || most < 1 {
			return nil, 0, wrong
		}
	}
	if tasks, err = numbers(list, mostTasks); err != nil || len(tasks) == 0 {
		return nil, 0, wrong
	}
	if len(tasks) == mostTasks+1 {
		return nil, 0, fmt.Errorf("cannot queue --array %s: at most %d jobs at once; hand in several arrays", text, mostTasks)
	}
	if log != "" && !strings.Contains(log, "%a") {
		return nil, 0, fmt.Errorf("cannot use --log %s with --array: all jobs would write to one file; write %%a where the number of each is to stand, such as --log run-%%a.log", log)
	}
	return tasks, most, nil
}

// numbers reads "1-3,7". Of more than most it returns one more.
func numbers(text string, most int) (list []int, err error) {
	for word := range strings.SplitSeq(text, ",") {
		from, to, ranged := strings.Cut(word, "-")
		first, err := strconv.ParseUint(from, 10, 31)
		last := first
		if err == nil && ranged {
			last, err = strconv.ParseUint(to, 10, 31)
		}
		if err != nil || last < first {
			return nil, errors.New("no numbers")
		}
		for n := first; n <= last && len(list) <= most; n++ {
			list = append(list, int(n))
		}
	}
	return list, nil
}

// mayQueue refuses at once, and not when its turn has come, what this machine or its rules can never give.
func (p *Program) mayQueue(ctx context.Context, spec job.Spec) error {
	if _, err := p.Host.Limits(); err != nil || spec.CPU {
		return err
	}
	_, err := claim.Decide(ctx, p.Host, spec)
	var refusal *job.Refusal
	var usage *exit.Usage
	var unavailable *gpu.Unavailable
	if errors.As(err, &refusal) && refusal.Never || errors.As(err, &usage) || errors.As(err, &unavailable) {
		return err
	}
	return nil
}

// machineOf is --machine in a form that means the same in every folder.
func (p *Program) machineOf() (string, error) {
	name := p.Host.Machine
	if name == "" || name == "demo" || strings.HasPrefix(name, "demo:") {
		return name, nil
	}
	return filepath.Abs(name)
}

// writable is an error where the file of a flag, which its owner calls name, could not be written.
func writable(flag, path, name string) error {
	if err := machine.CanWrite(path); err != nil {
		return fmt.Errorf("cannot write --%s %s: %w; name a file in a folder of yours, such as %s", flag, name, err, example(flag))
	}
	return nil
}

// queueRoom refuses more jobs than a rule allows to wait.
func (p *Program) queueRoom(q *queue.Queue, more int) error {
	limits, err := p.Host.Limits()
	r := limits.Queue()
	if err != nil || r == nil {
		return err
	}
	state, err := q.Read()
	if err == nil && state.Count.Waiting+more > *r.Queue {
		err = &job.Refusal{Never: true, Summary: fmt.Sprintf("cannot queue the job: policy: %s lets %d of your jobs wait at the same time, and %d do", r, *r.Queue, state.Count.Waiting),
			Remedy: "hand it in when some have started; gpuard queue shows them"}
	}
	return err
}
