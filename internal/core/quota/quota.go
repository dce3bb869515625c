// Package quota decides about the memory quota of a shared lease: how strictly it can be enforced on this machine,
// which settings of frameworks apply it, and what follows from the measurements:
//
//	level, note, refusal := quota.DecideLevel(spec.Quota, spec.Require, means)
//	c, order := c.See(quota.Limits{Share: share, Grace: grace}, sample)
//
// It must not measure or end anything itself.
package quota

import (
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/option"
)

// Means says for each level why it is not available; "" where it is.
type Means struct {
	Watch string
	MPS   string
}

// DecideLevel is the level of the quota, with a note when that is less than asked. Less than required is a permanent
// refusal. MPS needs a watching process too: its limit is per process, and a client that bypasses it has none.
func DecideLevel(asked, required job.Quota, can Means) (level job.Quota, note string, refusal *job.Refusal) {
	asked = harderLevel(harderLevel(asked, required), job.Watch)
	level, why := asked, ""
	if level == job.MPS && can.MPS != "" {
		level, why = job.Watch, "NVIDIA's Multi-Process Service cannot limit it: "+can.MPS
		note = why + "; the share is measured from outside instead"
	}

	if can.Watch != "" {
		level, why = job.NoQuota, can.Watch
		note = "no process enforces this share: " + can.Watch
	}

	if levelRank(level) >= levelRank(required) {
		return level, note, nil
	}

	return level, "", &job.Refusal{
		Summary: option.Sprintf("cannot keep the share as hard as {require-quota=%s} asks: %s", required, why),
		Never:   true, Reasons: []job.Reason{}, Remedy: levelRemedy(level),
	}
}

func levelRemedy(level job.Quota) string {
	if level == job.NoQuota {
		return option.Expand("leave {require-quota} out to rely on the job alone, or {share} to get a GPU of its own")
	}
	return option.Sprintf("ask for {require-quota=%s}, or leave it out", level)
}

func harderLevel(a, b job.Quota) job.Quota {
	if levelRank(a) < levelRank(b) {
		return b
	}
	return a
}

// levelRank orders the levels, weakest first.
func levelRank(q job.Quota) int {
	switch q {
	case job.MPS:
		return 2
	case job.Watch:
		return 1
	}
	return 0
}

// contextReserve is what a CUDA context, its libraries and workspaces use in addition to what a framework counts: one
// to a few hundred MiB (cupy/cupy docs/source/user_guide/memory.rst). The driver's list, and so the share, includes it.
const contextReserve = 512 * gpu.MiB

// RoomInShare is the part of a share that a process may allocate itself, without its context.
func RoomInShare(share gpu.Bytes) gpu.Bytes { return max(share-contextReserve, share/2) }
