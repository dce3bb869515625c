package batchcmd

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"gpuard/internal/app/userqueue"
	"gpuard/internal/ui/cli"
)

// sayWhy says why jobs of other schedulers wait, at each change.
func sayWhy(p *cli.Program, list []userqueue.Entry, said map[int]string) {
	for i := range list {
		if e := &list[i]; e.Engine != "" && e.State == userqueue.Waiting && e.Why != said[e.Number] {
			said[e.Number] = e.Why
			p.Host.Say(fmt.Sprintf("job %d waits: %s", e.Number, e.Why))
		}
	}
}

// listTimeout is how long a list waits for other schedulers: a person would rather see it. What waits for the end of a
// job has more patience.
const listTimeout = 4 * time.Second

// refreshEngines asks the other schedulers for a list.
func refreshEngines(ctx context.Context, p *cli.Program, q *userqueue.Queue) ([]userqueue.Trouble, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return q.RefreshAway(ctx)
}

// pollInterval is the time after which other schedulers are asked again.
func pollInterval(p *cli.Program) time.Duration { return cmp.Or(p.Host.Times.Poll, 3*time.Second) }

func sayTroubles(p *cli.Program, list []userqueue.Trouble) {
	for _, t := range list {
		p.Host.Say(fmt.Sprintf("%s does not answer, and its jobs are where they were last: %s", t.Engine, t.Problem))
	}
}
