package run

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/ranks"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/launch"
)

// joinTime is how long ranks have to join the others. An import of a large library from a cold disk takes most of it.
const joinTime = time.Minute

// missingRank is the JSON line about a rank that has not joined.
type missingRank struct {
	// "gpuard.run-missing/1".
	Schema string `json:"schema"`
	Rank   int    `json:"rank"`  // which
	PID    int    `json:"pid"`   // of its command
	State  string `json:"state"` // "S" as in ps
	// The last line in its own output file; "" when it has none.
	Last string `json:"last"`
}

// joinWatch looks whether the processes of a job find each other.
type joinWatch struct {
	host *machine.Host
	crew ranks.Crew
	// Process ids by rank.
	running func() map[int]int
	// torchrun, where the ranks may meet; 0 none.
	agent int
	out   *os.File // where it is said
}

// watchRanks says once which ranks have no connection to the port of the meeting, when another rank listens there, or
// torchrun. A program that meets in another way listens on none, and nothing is said.
func (j joinWatch) watchRanks(over <-chan struct{}) {
	begun := map[int]bool{}
	for {
		select {
		case <-over:
			return
		case <-time.After(j.crew.Join):
			if j.sayMissing(begun) {
				return
			}
		}
	}
}

// sayMissing names the ranks that are not connected, once all ranks have begun and one of them, or torchrun, listens.
// It reports whether that is so. begun collects the ranks that were seen.
func (j joinWatch) sayMissing(begun map[int]bool) bool {
	host := j.host
	trees := make([][]int, len(j.crew.Members))
	for rank, pid := range j.running() {
		if rank < len(trees) {
			trees[rank], begun[rank] = host.Proc.ProcessTree(pid), true
		}
	}

	if j.agent > 0 && len(begun) < len(trees) {
		// torchrun starts one after the other.
		return false
	}

	groups := trees
	if j.agent > 0 {
		groups = append(slices.Clone(trees), []int{j.agent})
	}

	joined, leader := host.Proc.ConnectedGroups(j.crew.Port, groups)
	if leader < 0 {
		return false
	}

	for rank, tree := range trees {
		if joined[rank] || len(tree) == 0 {
			continue
		}

		others := slices.Concat(slices.Delete(slices.Clone(trees), rank, rank+1)...)
		m := missingRank{Schema: "gpuard.run-missing/1", Rank: rank, PID: tree[len(tree)-1], Last: prose.Clean(host.Proc.LastLine(tree, others))}
		if s, err := host.Proc.Stat(m.PID); err == nil {
			m.State = s.State
		}

		j.reportMissing(m, leader)
	}

	return true
}

func (j joinWatch) reportMissing(m missingRank, leader int) {
	if j.crew.JSON {
		_ = json.NewEncoder(j.out).Encode(m)
		return
	}

	state := map[string]string{"R": "it runs", "S": "it sleeps", "D": "it waits in the kernel, for a disk or a driver", "T": "it is stopped", "t": "a debugger holds it"}[m.State]
	where := fmt.Sprintf("rank %d", leader)
	if leader == len(j.crew.Members) {
		where = "torchrun"
	}

	text := fmt.Sprintf("gpuard: rank %d (PID %d) has not joined the others for %v: it has no connection to port %d, where %s waits; %s",
		m.Rank, m.PID, j.crew.Join, j.crew.Port, where, cmp.Or(state, "it is in state "+m.State))

	if m.Last != "" {
		text += fmt.Sprintf("; its last line: %q", prose.Brief(m.Last))
	} else {
		text += fmt.Sprintf("; see where: py-spy dump --pid %d", m.PID)
	}

	fmt.Fprintln(j.out, text)
}

// JoinFlag is the first argument of a process that watches the ranks of torchrun.
const JoinFlag = "__join"

// startJoinWatch has the ranks watched which torchrun starts. This process becomes the first one of them: what watches
// ends with it, and when torchrun starts its processes anew there is another one.
func startJoinWatch(crew ranks.Crew) error {
	for i := range crew.Members {
		crew.Members[i] = ranks.Member{}
	}
	return launch.StartWatcher(JoinFlag, os.Getpid(), os.Stderr, JoinOrders{os.Getppid(), crew})
}

// JoinOrders say whose ranks are watched.
type JoinOrders struct {
	Agent int        `json:"agent"` // the process of torchrun
	Crew  ranks.Crew `json:"crew"`
}

// WatchTorchrun is the life of what watches the ranks of torchrun. fds are the numbers of a pidfd of the first rank, and
// of where to write.
func WatchTorchrun(_ context.Context, host *machine.Host, fds []string, o JoinOrders) error {
	first, out, err := launch.InheritWatcherFDs(fds[0], fds[1])
	if err != nil {
		return err
	}

	defer first.Close() //nolint:errcheck // it ends with us
	joinWatch{host, o.Crew, func() map[int]int { return ranksOf(host, o.Agent) }, o.Agent, out}.watchRanks(launch.ExitChannel(first))

	return nil
}

// ranksOf are the processes that torchrun has started.
func ranksOf(host *machine.Host, agent int) map[int]int {
	found := map[int]int{}
	for _, pid := range host.Proc.ProcessTree(agent) {
		s, err := host.Proc.Stat(pid)
		if err != nil || s.PPID != agent {
			continue
		}

		env, err := host.Proc.Environ(pid)
		rank, _ := visible.Env(env).Lookup("LOCAL_RANK")
		if n, cerr := strconv.Atoi(rank); err == nil && cerr == nil {
			found[n] = pid
		}
	}
	return found
}
