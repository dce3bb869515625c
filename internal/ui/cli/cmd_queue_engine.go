package cli

import (
	"cmp"
	"fmt"
	"time"

	"gpuard/internal/app/queue"
)

// pollEvery is the time after which other schedulers are asked again.
func (p *Program) pollEvery() time.Duration { return cmp.Or(p.Host.Times.Poll, 3*time.Second) }

func (p *Program) sayTroubles(list []queue.Trouble) {
	for _, t := range list {
		p.Host.Say(fmt.Sprintf("%s does not answer, and its jobs are where they were last: %s", t.Engine, t.Problem))
	}
}
