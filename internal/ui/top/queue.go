package top

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"gpuard/internal/app/observe"
	"gpuard/internal/core/status"
)

// queueSeen is what the screen shows of the own queue: a part of the JSON of gpuard queue.
type queueSeen struct {
	Jobs   []jobSeen `json:"jobs"`
	Others []struct {
		ID string `json:"id"`
	} `json:"others"`

	read bool
	me   string
}

type jobSeen struct {
	Number    int        `json:"job"`
	Name      string     `json:"name"`
	State     string     `json:"state"`
	Command   []string   `json:"command"`
	Asks      string     `json:"asks"`
	Submitted time.Time  `json:"submitted"`
	PID       int        `json:"pid"`
	Expected  *time.Time `json:"expected"`
	HeldBack  string     `json:"held_back"`
	Why       string     `json:"why"`
}

// readQueue asks for the queue; what cannot be read is not shown.
func readQueue(ctx context.Context, sources []observe.Source, me string) queueSeen {
	i := slices.IndexFunc(sources, func(s observe.Source) bool { return s.Name == "queue" })
	if i < 0 {
		return queueSeen{}
	}

	answer, err := sources[i].Read(ctx)
	if err != nil {
		return queueSeen{}
	}

	text, err := json.Marshal(answer)
	seen := queueSeen{me: me}
	if err != nil {
		return seen
	}

	seen.read = json.Unmarshal(text, &seen) == nil

	return seen
}

// jobOf is the number of the running job whose command has this PID; 0 for none.
func (q *queueSeen) jobOf(pid int) int {
	for i := range q.Jobs {
		if q.Jobs[i].PID == pid && pid > 0 && q.Jobs[i].State == "running" {
			return q.Jobs[i].Number
		}
	}
	return 0
}

// ticketOf is the number of the own job that a request in the line is for; 0 for none. The requests of others and of the own gpuard run
// are listed beside the queue, so what is not among them is the queue's.
func (q *queueSeen) ticketOf(w *status.Waiting, before []row) int {
	if !q.read || w.User != q.me {
		return 0
	}
	for _, o := range q.Others {
		if o.ID == w.ID {
			return 0
		}
	}
	for i := range q.Jobs {
		j := &q.Jobs[i]
		listed := slices.ContainsFunc(before, func(r row) bool { return r.job == j.Number })
		if j.State == "waiting" && j.HeldBack == "" && j.Name == w.Command && !listed {
			return j.Number
		}
	}

	return 0
}
