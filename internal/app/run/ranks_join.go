package run

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/ranks"
	"gpuard/internal/host/launch"
)

// joinTime is how long ranks have to join the others. An import of a large library from a cold disk takes most of it.
const joinTime = time.Minute

// missing is the JSON line about a rank that has not joined.
type missing struct {
	Schema string `json:"schema"` // "gpuard.run-missing/1"
	Rank   int    `json:"rank"`   // which
	PID    int    `json:"pid"`    // of its command
	State  string `json:"state"`  // "S" as in ps
	Last   string `json:"last"`   // the last line in its own output file; "" when it has none
}

// watchJoin says once which ranks have no connection to the port of the meeting, when another rank listens there. A
// program that meets in another way listens on none, and nothing is said.
func watchJoin(host *machine.Host, crew ranks.Crew, c *launch.Crew, over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		case <-time.After(crew.Join):
			if sayMissing(host, crew, c) {
				return
			}
		}
	}
}

// sayMissing reports whether a rank listens by now, and names those that are not connected to it.
func sayMissing(host *machine.Host, crew ranks.Crew, c *launch.Crew) bool {
	running := c.Running()
	trees := make([][]int, len(crew.Members))
	for rank, pid := range running {
		trees[rank] = host.Proc.Tree(pid)
	}
	joined, leader := host.Proc.Joined(crew.Port, trees)
	if leader < 0 {
		return false
	}
	for rank, tree := range trees {
		if joined[rank] || len(tree) == 0 {
			continue
		}
		others := slices.Concat(slices.Delete(slices.Clone(trees), rank, rank+1)...)
		m := missing{Schema: "gpuard.run-missing/1", Rank: rank, PID: tree[len(tree)-1], Last: prose.Clean(host.Proc.LastLine(tree, others))}
		if s, err := host.Proc.Stat(m.PID); err == nil {
			m.State = s.State
		}
		reportMissing(m, leader, crew)
	}
	return true
}

func reportMissing(m missing, leader int, crew ranks.Crew) {
	if crew.JSON {
		_ = json.NewEncoder(os.Stderr).Encode(m)
		return
	}
	state := map[string]string{"R": "it runs", "S": "it sleeps", "D": "it waits in the kernel, for a disk or a driver", "T": "it is stopped", "t": "a debugger holds it"}[m.State]
	text := fmt.Sprintf("gpuard: rank %d (PID %d) has not joined the others for %v: it has no connection to port %d, where rank %d waits; %s",
		m.Rank, m.PID, crew.Join, crew.Port, leader, cmp.Or(state, "it is in state "+m.State))
	if m.Last != "" {
		text += fmt.Sprintf("; its last line: %q", prose.Brief(m.Last))
	} else {
		text += fmt.Sprintf("; see where: py-spy dump --pid %d", m.PID)
	}
	fmt.Fprintln(os.Stderr, text)
}
