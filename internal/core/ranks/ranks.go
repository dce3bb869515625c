// Package ranks sets up several cooperating processes of one job on one machine: their variables, where they connect,
// and the device and processors of each:
//
//	crew.ShareThreads(env, allowed)
//	vars := crew.Env(rank)
//
// It must not start processes.
package ranks

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/core/compat"
	"gpuard/internal/core/option"
	"gpuard/internal/core/visible"
)

// Variable passes a Crew to the process that starts the ranks, which do not inherit it.
const Variable = "GPUARD_RANKS"

// MaxRanks is more processes than a machine can use, and few enough for a Crew to fit into Variable (execve(2): a
// string has at most 128 KiB).
const MaxRanks = 1024

// Host is where the processes connect.
const Host = "127.0.0.1"

// Crew is the processes of one job.
type Crew struct {
	Port  int           `json:"port"`
	FD    int           `json:"fd"` // holds the port
	Grace time.Duration `json:"grace"`
	// The time after which a rank that has not joined the others is named.
	Join time.Duration `json:"join"`
	// Messages about ranks are JSON objects.
	JSON    bool     `json:"json,omitempty"`
	Members []Member `json:"members"` // by rank
}

// Member is one process.
type Member struct {
	// NUMA node whose memory it prefers; -1 none.
	Node int `json:"node"`
	// That it may use, such as "0-15"; "" all of the job's.
	CPUs string `json:"cpus"`
	// Its own, in addition to those of Env.
	Vars []visible.Var `json:"vars"`
}

// Encode writes a crew as a variable's value.
func (c Crew) Encode() (string, error) {
	text, err := json.Marshal(c)
	return string(text), err
}

// Decode reads what Encode wrote.
func Decode(text string) (Crew, error) {
	var c Crew
	if err := json.Unmarshal([]byte(text), &c); err != nil || len(c.Members) == 0 {
		return c, option.Errorf("cannot start a rank by hand: {gpuard run} {ranks} and {torchrun} do, and set %s", Variable)
	}
	return c, nil
}

// Member is the process of that rank, as LOCAL_RANK names it.
func (c Crew) Member(rank string) (Member, error) {
	n, err := strconv.Atoi(rank)
	if err != nil || n < 0 || n >= len(c.Members) {
		return Member{}, fmt.Errorf("cannot start rank %q: the job has %d ranks, numbered from 0", rank, len(c.Members))
	}
	return c.Members[n], nil
}

// Env are the variables of a rank with which libraries connect, as torchrun sets them for one machine (pytorch/pytorch:
// torch/distributed/run.py, torch/distributed/elastic/agent/server/local_elastic_agent.py), and NODE_RANK, which
// Lightning and others read. Variables of an outer torchrun are removed: told to use its store, rank 0 would not
// listen.
func (c Crew) Env(rank int) []visible.Var {
	size := strconv.Itoa(len(c.Members))
	vars := []visible.Var{
		{Name: "RANK", Value: strconv.Itoa(rank)}, {Name: "LOCAL_RANK", Value: strconv.Itoa(rank)},
		{Name: "WORLD_SIZE", Value: size}, {Name: "LOCAL_WORLD_SIZE", Value: size},
		{Name: "GROUP_RANK", Value: "0"}, {Name: "GROUP_WORLD_SIZE", Value: "1"}, {Name: "NODE_RANK", Value: "0"},
		{Name: "MASTER_ADDR", Value: Host}, {Name: "MASTER_PORT", Value: strconv.Itoa(c.Port)},
	}
	for _, name := range []string{"TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_ERROR_FILE"} {
		vars = append(vars, visible.Var{Name: name, Unset: true})
	}

	return append(vars, c.Members[rank].Vars...)
}

// threadsVariable is the number of threads for OpenMP, PyTorch and most libraries of linear algebra.
const threadsVariable = "OMP_NUM_THREADS"

// ShareThreads divides the processors among the members that may use the same ones; allowed are those of this process.
// An OMP_NUM_THREADS of the user stays, and members with unknown processors get none.
func (c Crew) ShareThreads(env visible.Env, allowed CPUs) {
	if _, set := env.Lookup(threadsVariable); set {
		return
	}
	users := map[string]int{}
	for _, m := range c.Members {
		users[m.CPUs]++
	}
	for i := range c.Members {
		m := &c.Members[i]
		cpus := allowed
		if m.CPUs != "" {
			cpus, _ = ParseCPUs(m.CPUs)
		}

		if len(cpus) == 0 {
			continue
		}

		m.Vars = append(m.Vars, visible.Var{Name: threadsVariable, Value: strconv.Itoa(max(1, len(cpus)/users[m.CPUs]))})
	}
}

// ThreadCount is the value that ShareThreads gave the first member, "" for none.
func (c Crew) ThreadCount() string {
	for _, v := range c.Members[0].Vars {
		if v.Name == threadsVariable {
			return v.Value
		}
	}
	return ""
}

// ThreadRemarks are notes on thread counts in the environment that make work on the processors slow; cpus are those
// that the command may use.
func ThreadRemarks(env visible.Env, cpus int) (notes []string) {
	for _, name := range []string{threadsVariable, "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"} {
		value, _ := env.Lookup(name)

		// OpenMP: one number for each level of nesting.
		first, _, _ := strings.Cut(value, ",")
		n, err := strconv.Atoi(strings.TrimSpace(first))
		switch {
		case err != nil || cpus == 0:
		case n > cpus:
			notes = append(notes, fmt.Sprintf("%s=%d starts more threads than the %d processors that the command may use, and they wait for each other: unset %[1]s", name, n, cpus))
		case n == 1 && cpus >= 4:
			notes = append(notes, fmt.Sprintf("%s=1 lets the command use one of %d processors: unset %[1]s", name, cpus))
		}
	}
	return notes
}

// NCCLRemarks are notes on NCCL settings in the environment that have another name now, or that are for debugging: with
// several processes they cost most.
func NCCLRemarks(env visible.Env) (notes []string) {
	for name, value := range env.All() {
		if !strings.HasPrefix(name, "NCCL_") && !strings.HasPrefix(name, "TORCH_NCCL_") {
			continue
		}

		old, is := compat.DeprecatedName(name, value)
		newer, _ := env.Lookup(old.Instead)
		debug, on := compat.DebugOnly(name, value)
		switch {
		case is && old.Instead == "":
			notes = append(notes, fmt.Sprintf("%s is an old setting: %s; leave it out", name, old.What))
		case is && newer == "":
			notes = append(notes, fmt.Sprintf("%s is an old name: write %s (%s)", name, old.Instead, old.What))
		case on && (debug.Warns || strings.HasSuffix(name, "_DISABLE")):
			notes = append(notes, fmt.Sprintf("%s is set, which is for the search for an error: %s; leave it out where no fault needs it", name, debug.What))
		}
	}
	return notes
}
