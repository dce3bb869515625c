package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"gpuard/internal/app/remote"
	"gpuard/internal/app/services"
	"gpuard/internal/app/userqueue"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/cli/batchcmd"
)

// areJobs reports whether all words are numbers of jobs. No service is called so: a name begins with a letter.
func areJobs(names []string) bool {
	for _, name := range names {
		if strings.Trim(name, "0123456789") != "" {
			return false
		}
	}
	return len(names) > 0
}

// jobLogs shows what jobs of the queue have written, and with follow what they write until they have ended.
func jobLogs(ctx context.Context, p *cli.Program, args []string, last int, follow, asJSON bool) error {
	numbers, err := batchcmd.JobNumbers(args)
	if err != nil {
		return err
	}

	q, err := batchcmd.OpenQueue(p)
	if err != nil {
		return err
	}

	defer q.Close()
	if err := batchcmd.ReviveQueue(p, q); err != nil {
		return err
	}

	list, err := q.Jobs(numbers)
	if err != nil {
		return err
	}

	serializeSay(p)
	fetch, err := q.Copier(list)
	if err != nil {
		return err
	}

	if err := fetch(ctx, false); err != nil && !follow {
		p.Host.Say(err.Error())
	}

	sayMissing(p, list)
	out := p.NewPrinter()
	out.JSON, out.Alone = asJSON, len(numbers) == 1
	logs := services.NewLogs()
	defer logs.Close()

	for _, e := range list {
		row := services.Row{Log: e.Log}
		row.Name = fmt.Sprint("job-", e.Number)
		out.Name(row.Name)
		logs.Add(row, last)
	}

	if !follow {
		err := writeRemaining(&out, logs, true)
		sayUnstarted(p, list)
		return err
	}

	ctx, stop := context.WithCancel(ctx)
	fetched := make(chan struct{})
	go func() {
		defer close(fetched)
		if err := fetch(ctx, true); err != nil {
			p.Host.Say(err.Error())
		}
	}()

	err = followJobs(ctx, p, q, numbers, &out, logs, fetched)
	stop()
	<-fetched

	return err
}

// sayMissing says of jobs that have run elsewhere that their output is not on this machine.
func sayMissing(p *cli.Program, list []userqueue.Entry) {
	for i := range list {
		e := &list[i]
		if _, err := os.Stat(e.Log); e.Engine == "" || e.Started == nil || !errors.Is(err, os.ErrNotExist) {
			continue
		}
		if s, err := remote.Open(p.Host, e.Engine); err != nil || s.Logs != nil {
			// It is copied, and who copies says why not.
			continue
		}
		p.Host.Say(fmt.Sprintf("cannot see the output of job %d here: %s of %s writes it to %s; with --log it goes to a folder that this machine has, too", e.Number, cmp.Or(e.Node, "a node"), e.Engine, e.Log))
	}
}

// sayUnstarted says why a log is empty.
func sayUnstarted(p *cli.Program, list []userqueue.Entry) {
	for i := range list {
		switch e := &list[i]; {
		case e.Starts == 0 && e.State.Over():
			_ = p.PrintMessage(batchcmd.EndText(e))
		case e.Starts == 0 && e.Engine == "":
			_ = p.PrintMessage(fmt.Sprintf("job %d has not started; why: gpuard queue", e.Number))
		}
	}
}

// serializeSay lets several goroutines speak.
func serializeSay(p *cli.Program) {
	var turn sync.Mutex
	say := p.Host.Say
	p.Host.Say = func(line string) {
		turn.Lock()
		defer turn.Unlock()
		say(line)
	}
}

func followJobs(ctx context.Context, p *cli.Program, q *userqueue.Queue, numbers []int, out *cli.Printer, logs *services.Logs, fetched <-chan struct{}) error {
	f := batchcmd.Follower{P: p, Q: q}
	for {
		list, err := f.Jobs(ctx, numbers)
		if err != nil {
			return err
		}

		_, open := batchcmd.SplitEnded(list)
		if len(open) == 0 {
			// All that they have printed.
			<-fetched
		}

		logs.Refresh()
		if err := writeRemaining(out, logs, len(open) == 0); err != nil || len(open) == 0 {
			return err
		}

		wait, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			_ = logs.Wait(wait)
			close(ended)
		}()

		err = f.AwaitChange(ctx, open, ended)
		stop()
		<-ended
		if err != nil || ctx.Err() != nil {
			// Ctrl-C just ends it.
			return err
		}
	}
}
