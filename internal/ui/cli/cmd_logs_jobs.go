package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"gpuard/internal/app/queue"
	"gpuard/internal/app/remote"
	"gpuard/internal/app/services"
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
func (p *Program) jobLogs(ctx context.Context, args []string, last int, follow, asJSON bool) error {
	numbers, err := jobNumbers(args)
	if err != nil {
		return err
	}
	q, err := p.openQueue()
	if err != nil {
		return err
	}
	defer q.Close()
	if err := p.revive(q); err != nil {
		return err
	}
	list, err := q.Jobs(numbers)
	if err != nil {
		return err
	}
	p.inTurns()
	fetch, err := q.Copier(list)
	if err != nil {
		return err
	}
	if err := fetch(ctx, false); err != nil && !follow {
		p.Host.Say(err.Error())
	}
	p.sayMissing(list)
	out := p.newPrinter()
	out.json, out.alone = asJSON, len(numbers) == 1
	logs := services.NewLogs()
	defer logs.Close()
	for _, e := range list {
		row := services.Row{Log: e.Log}
		row.Name = fmt.Sprint("job-", e.Number)
		out.name(row.Name)
		logs.Add(row, last)
	}
	if !follow {
		err := out.rest(logs, true)
		p.sayUnstarted(list)
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
	err = p.followJobs(ctx, q, numbers, &out, logs, fetched)
	stop()
	<-fetched
	return err
}

// sayMissing says of jobs that have run elsewhere that their output is not on this machine.
func (p *Program) sayMissing(list []queue.Entry) {
	for i := range list {
		e := &list[i]
		if _, err := os.Stat(e.Log); e.Engine == "" || e.Started == nil || !errors.Is(err, os.ErrNotExist) {
			continue
		}
		if s, err := remote.Open(p.Host, e.Engine); err != nil || s.Logs != nil { // it is copied, and who copies says why not
			continue
		}
		p.Host.Say(fmt.Sprintf("cannot see the output of job %d here: %s of %s writes it to %s; with --log it goes to a folder that this machine has, too", e.Number, orElse(e.Node, "a node"), e.Engine, e.Log))
	}
}

// sayUnstarted says why a log is empty.
func (p *Program) sayUnstarted(list []queue.Entry) {
	for i := range list {
		switch e := &list[i]; {
		case e.Starts == 0 && e.State.Over():
			_ = p.tell(endText(e))
		case e.Starts == 0 && e.Engine == "":
			_ = p.tell(fmt.Sprintf("job %d has not started; why: gpuard queue", e.Number))
		}
	}
}

// inTurns lets several goroutines speak.
func (p *Program) inTurns() {
	var turn sync.Mutex
	say := p.Host.Say
	p.Host.Say = func(line string) {
		turn.Lock()
		defer turn.Unlock()
		say(line)
	}
}

func (p *Program) followJobs(ctx context.Context, q *queue.Queue, numbers []int, out *printer, logs *services.Logs, fetched <-chan struct{}) error {
	f := following{p: p, q: q}
	for {
		list, err := f.jobs(ctx, numbers)
		if err != nil {
			return err
		}
		_, open := parted(list)
		if len(open) == 0 {
			<-fetched // all that they have printed
		}
		logs.Look()
		if err := out.rest(logs, len(open) == 0); err != nil || len(open) == 0 {
			return err
		}
		wait, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			_ = logs.Wait(wait)
			close(ended)
		}()
		err = f.next(ctx, open, ended)
		stop()
		<-ended
		if err != nil || ctx.Err() != nil { // Ctrl-C just ends it
			return err
		}
	}
}
