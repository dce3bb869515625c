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
	list, err := q.List(func(queue.State) bool { return true })
	if err != nil {
		return err
	}
	var chosen []queue.Entry
	for _, n := range numbers {
		if n > len(list) {
			return usagef("cannot find job %d: there are %d; see: gpuard queue", n, len(list))
		}
		chosen = append(chosen, list[n-1])
	}
	p.inTurns()
	fetch, err := q.Copier(chosen)
	if err != nil {
		return err
	}
	if err := fetch(ctx, false); err != nil && !follow {
		p.Host.Say(err.Error())
	}
	p.sayMissing(chosen)
	out := p.newPrinter()
	out.json, out.alone = asJSON, len(numbers) == 1
	logs := services.NewLogs()
	defer logs.Close()
	for _, n := range numbers {
		row := services.Row{Log: list[n-1].Log}
		row.Name = fmt.Sprint("job-", n)
		out.name(row.Name)
		logs.Add(row, last)
	}
	if !follow {
		return out.rest(logs, true)
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
	changes, alive, asked := p.follow(q), true, p.askEngines(q)
	for {
		list, err := asked(ctx)
		if err != nil {
			return err
		}
		over := true
		for _, n := range numbers {
			over = over && list[n-1].State.Over()
		}
		if over {
			<-fetched // all that they have printed
		}
		logs.Look()
		poll := p.polled(list, numbers)
		if err := out.rest(logs, over || !alive && poll == nil); err != nil || over {
			return err
		}
		if !alive && poll == nil {
			return fmt.Errorf("cannot follow any longer: nothing runs the queue; see: gpuard queue")
		}
		wait, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			_ = logs.Wait(wait)
			close(ended)
		}()
		select {
		case _, alive = <-changes:
			changes = whileAlive(changes, alive)
		case <-ended:
		case <-poll:
		}
		stop()
		<-ended
		if ctx.Err() != nil {
			return nil //nolint:nilerr // Ctrl-C just ends it
		}
	}
}
