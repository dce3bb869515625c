package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"gpuard/internal/app/queue"
)

// sayWhy says why jobs of other schedulers wait, at each change.
func (p *Program) sayWhy(list []queue.Entry, said map[int]string) {
	for i := range list {
		if e := &list[i]; e.Engine != "" && e.State == queue.Waiting && e.Why != said[e.Number] {
			said[e.Number] = e.Why
			p.Host.Say(fmt.Sprintf("job %d waits: %s", e.Number, e.Why))
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

// pollEvery is the time after which other schedulers are asked again.
func (p *Program) pollEvery() time.Duration { return cmp.Or(p.Host.Times.Poll, 3*time.Second) }

func (p *Program) sayTroubles(list []queue.Trouble) {
	for _, t := range list {
		p.Host.Say(fmt.Sprintf("%s does not answer, and its jobs are where they were last: %s", t.Engine, t.Problem))
	}
}
