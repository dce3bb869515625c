// Package quota decides about the memory quota of a shared lease: how hard it can be here, which settings of frameworks
// carry it, and what follows from one measurement after another. It measures nothing and ends nothing itself.
package quota

import (
	"fmt"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// Means says for each level why it cannot be had here; "" where it can.
type Means struct {
	Watch string
	MPS   string
}

// Level is how hard the quota will be, with what to say when that is less than was asked; less than required is a refusal for
// ever. MPS needs somebody who watches too: its limit is per process, and a client that does not reach it has none.
func Level(asked, required job.Quota, can Means) (level job.Quota, note string, refusal *job.Refusal) {
	asked = harder(harder(asked, required), job.Watch)
	level, why := asked, ""
	if level == job.MPS && can.MPS != "" {
		level, why = job.Watch, "NVIDIA's Multi-Process Service cannot limit it: "+can.MPS
		note = why + "; the share is measured from outside instead"
	}
	if can.Watch != "" {
		level, why = job.NoQuota, can.Watch
		note = "nobody sees to it that this share is kept: " + can.Watch
	}
	if rank(level) >= rank(required) {
		return level, note, nil
	}
	return level, "", &job.Refusal{
		Summary: fmt.Sprintf("cannot keep the share as hard as --require-quota %s asks: %s", required, why),
		Never:   true, Reasons: []job.Reason{}, Remedy: remedy(level),
	}
}

func remedy(level job.Quota) string {
	if level == job.NoQuota {
		return "leave --require-quota out to rely on the job alone, or --share to get a GPU of its own"
	}
	return fmt.Sprintf("ask for --require-quota %s, or leave it out", level)
}

func harder(a, b job.Quota) job.Quota {
	if rank(a) < rank(b) {
		return b
	}
	return a
}

// rank orders the levels, weakest first.
func rank(q job.Quota) int {
	switch q {
	case job.MPS:
		return 2
	case job.Watch:
		return 1
	}
	return 0
}

// context is what a CUDA context, its libraries and workspaces take beside what a framework counts: one to a few hundred
// MiB (cupy/cupy docs/source/user_guide/memory.rst). The driver's list, and so the share, has it in.
const context = 512 * gpu.MiB

// Room is how much of a share a process may allocate itself, once what its context takes is left out.
func Room(share gpu.Bytes) gpu.Bytes { return max(share-context, share/2) }
