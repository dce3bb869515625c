package userqueue

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"gpuard/internal/core/prose"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/journal"
)

// allocationSuffix is the end of the name of the queue of an allocation: "-slurm-12-node0"; "" outside.
func allocationSuffix(env visible.Env) string {
	allocation := visible.Allocation(env)
	if allocation == "" {
		return ""
	}

	node, _ := env.Lookup("SLURMD_NODENAME")
	plain := func(r rune) rune {
		if strings.ContainsRune("-_.", r) || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}

	return "-" + strings.Map(plain, strings.ReplaceAll(allocation, ":", "-")+"-"+prose.Brief(node))
}

// removalAge is the age from which the queue of an allocation is removed. Its logs lie in it, and a job that is
// requeued goes on with it.
const removalAge = 30 * 24 * time.Hour

// removeOld removes the queues of allocations that are over for long, beside the one in dir.
func removeOld(dir string) {
	found, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), queueFolder+"-slurm-*"))
	for _, path := range found {
		info, err := os.Stat(filepath.Join(path, journalFile))
		if path != dir && err == nil && time.Since(info.ModTime()) > removalAge && !journal.IsLocked(filepath.Join(path, lockFile)) {
			_ = os.RemoveAll(path)
		}
	}
}
