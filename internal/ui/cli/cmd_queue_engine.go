package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"gpuard/internal/app/queue"
)

// askEngines returns what lists all jobs, and asks the other schedulers before; of one that does not answer it says so
// once.
func (p *Program) askEngines(q *queue.Queue) func(ctx context.Context) ([]queue.Entry, error) {
	said := map[string]bool{}
	var asked time.Time
	return func(ctx context.Context) ([]queue.Entry, error) {
		if time.Since(asked) >= p.pollEvery() {
			troubles, err := q.Catch(ctx)
			if err != nil {
				return nil, err
			}
			for _, t := range troubles {
				if !said[t.Engine] {
					p.sayTroubles([]queue.Trouble{t})
				}
				said[t.Engine] = true
			}
			if len(troubles) == 0 {
				clear(said)
			}
			asked = time.Now()
		}
		return q.List(func(queue.State) bool { return true })
	}
}

// sayWhy says why jobs of other schedulers wait, at each change.
func (p *Program) sayWhy(list []queue.Entry, numbers []int, said map[int]string) {
	for _, n := range numbers {
		if e := &list[n-1]; e.Engine != "" && e.State == queue.Waiting && e.Why != said[n] {
			said[n] = e.Why
			p.Host.Say(fmt.Sprintf("job %d waits: %s", n, e.Why))
		}
	}
}

// glance is how long a list waits for other schedulers: a person would rather see it. What waits for the end of a job has
// more patience.
const glance = 4 * time.Second

// catch asks the other schedulers for a list.
func (p *Program) catch(ctx context.Context, q *queue.Queue) ([]queue.Trouble, error) {
	ctx, cancel := context.WithTimeout(ctx, glance)
	defer cancel()
	return q.Catch(ctx)
}

func (p *Program) pollEvery() time.Duration { return cmp.Or(p.Host.Times.Poll, 3*time.Second) }

func (p *Program) sayTroubles(list []queue.Trouble) {
	for _, t := range list {
		p.Host.Say(fmt.Sprintf("%s does not answer, and its jobs are where they were last: %s", t.Engine, t.Problem))
	}
}

// polled is when the schedulers of these jobs are to be asked again; nil where none has one that goes on.
func (p *Program) polled(list []queue.Entry, numbers []int) <-chan time.Time {
	for _, n := range numbers {
		if e := &list[n-1]; e.Engine != "" && !e.State.Over() {
			return time.After(p.pollEvery())
		}
	}
	return nil
}

// whileAlive is a channel that is read no more once it is closed.
func whileAlive(changes <-chan struct{}, alive bool) <-chan struct{} {
	if !alive {
		return nil
	}
	return changes
}
