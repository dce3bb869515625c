package cli

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"gpuard/internal/app/doctor"
	"gpuard/internal/app/leases"
	"gpuard/internal/app/observe"
	"gpuard/internal/app/queue"
	"gpuard/internal/app/services"
	record "gpuard/internal/core/runs"
)

// servicesAnswer is the JSON answer of /api/services.
type servicesAnswer struct {
	Schema   string      `json:"schema"`   // "gpuard.services/1"
	Projects []projectUp `json:"projects"` // of the user who runs gpuard serve
}

type projectUp struct {
	Project    string       `json:"project"`    // its name
	File       string       `json:"file"`       // its gpuard.yaml
	Supervised bool         `json:"supervised"` // a supervisor starts and ends instances
	Instances  []psInstance `json:"instances"`  // dependencies first, else in the order of the file
}

// useAnswer is the JSON answer of /api/history.
type useAnswer struct {
	Schema string     `json:"schema"` // "gpuard.use/1"
	Tables []useTable `json:"tables"`
}

type useTable struct {
	By  string      `json:"by"`  // user, gpu or command
	Use []queue.Use `json:"use"` // the largest first
}

// askAgain is the time between two questions of serve to other schedulers.
const askAgain = 30 * time.Second

// sources are the parts of the page besides the devices.
func (p *Program) sources() []observe.Source {
	var asked atomic.Int64 // when other schedulers were asked last: what looks all the time asks them less often than a person
	return []observe.Source{
		{Name: "queue", Title: "Queue", Every: 2 * time.Second, Read: within(10*time.Second, func(ctx context.Context) (queueAnswer, error) {
			last, now := asked.Load(), time.Now().UnixNano()
			ask := now-last > int64(askAgain) && asked.CompareAndSwap(last, now)
			a, _, err := p.queued(ctx, shownJobs, ask)
			return a, err
		})},
		{Name: "services", Title: "Services", Every: 2 * time.Second, Read: within(10*time.Second, func(ctx context.Context) (servicesAnswer, error) {
			a := servicesAnswer{"gpuard.services/1", []projectUp{}}
			for _, view := range services.Views(ctx, p.Host) {
				found := instances("", view, func(*services.Row) bool { return true })
				a.Projects = append(a.Projects, projectUp{found.Project, found.File, found.Supervised, found.Instances})
			}
			return a, nil
		})},
		{Name: "findings", Title: "Findings", Every: time.Minute, Read: within(time.Minute, func(ctx context.Context) (diagnosed, error) {
			d, err := doctor.Diagnose(ctx, p.Host, "", false)
			return diagnosed{"gpuard.doctor/1", d}, err
		})},
		{Name: "history", Title: "History", Every: 10 * time.Second, Read: within(10*time.Second, func(context.Context) (useAnswer, error) {
			a := useAnswer{"gpuard.use/1", []useTable{}}
			for _, by := range queue.By() {
				use, err := p.use(by, 0)
				if err != nil {
					return a, err
				}
				if len(use) > 0 {
					a.Tables = append(a.Tables, useTable{by, use})
				}
			}
			return a, nil
		})},
	}
}

// actions are what may be asked for with the token: each does what the command of its name does.
func (p *Program) actions() []observe.Action {
	return []observe.Action{
		{Name: "cancel", Do: func(ctx context.Context, words []string) error {
			numbers, err := jobNumbers(words)
			if err != nil {
				return err
			}
			q, err := p.openQueue()
			if err != nil {
				return err
			}
			defer q.Close()
			if err := q.Ask(ctx, record.Cancel, numbers...); err != nil {
				return err
			}
			return p.revive(q)
		}},
		{Name: "release", Do: func(ctx context.Context, words []string) error {
			for _, id := range words {
				if _, err := leases.Release(ctx, p.Host, id); err != nil {
					return err
				}
			}
			return nil
		}},
		{Name: "drain", Do: func(ctx context.Context, words []string) error {
			_, err := leases.Drain(ctx, p.Host, words, "by gpuard serve")
			return err
		}},
		{Name: "undrain", Do: func(ctx context.Context, words []string) error {
			_, err := leases.Undrain(ctx, p.Host, words)
			return err
		}},
		{Name: "evict", Do: func(ctx context.Context, words []string) error {
			pids, err := processIDs(words)
			if err != nil {
				return err
			}
			ended, err := leases.Evict(ctx, p.Host, pids, 0, 10*time.Second, false)
			var stay []string
			for _, e := range ended {
				if !e.Gone {
					stay = append(stay, fmt.Sprint(e.PID))
				}
			}
			if err == nil && len(stay) > 0 {
				err = fmt.Errorf("cannot evict %s: it has not ended within 10 s; gpuard evict --force kills it", strings.Join(stay, ", "))
			}
			return err
		}},
	}
}
