package machine

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gpuard/internal/core/visible"
	"gpuard/internal/host/proc"
)

// The first argument of a process that starts the ranks of a job, and of one that torchrun started and that becomes a
// rank.
const (
	RanksFlag = "__ranks"
	RankFlag  = "__rank"
)

// What jobs of a queue and of a sweep are known by: the first argument of a process that looks after one, and the
// variable in which a run of a sweep has its folder.
const (
	KeeperFlag  = "__keep"
	SweepFolder = "GPUARD_SWEEP_DIR"
)

// IsOwnHelper reports whether gpuard started the process for a command (a holder, for example), or whether it is a
// daemon of NVIDIA's Multi-Process Service. Ranks and keepers are parts of a job, not helpers. A helper has the name of
// the program that started it: gpuard, or what this process is called.
func IsOwnHelper(pid int) bool {
	words := proc.New("/proc").Arguments(pid)
	switch {
	case len(words) > 0 && strings.HasPrefix(filepath.Base(words[0]), "nvidia-cuda-mps-"):
		return true
	case len(words) < 2 || words[0] != "gpuard" && words[0] != filepath.Base(os.Args[0]):
		return false
	}
	return strings.HasPrefix(words[1], "__") && !slices.Contains([]string{RanksFlag, RankFlag, KeeperFlag}, words[1])
}

// AwaitEnviron is the environment of a process of the caller. While the kernel executes its program it has none, and is
// asked again, for a second at most; of one that is gone there is none.
func (h *Host) AwaitEnviron(pid int) visible.Env {
	for end := time.Now().Add(time.Second); ; time.Sleep(time.Millisecond) {
		env, err := h.Proc.Environ(pid)
		if err != nil || len(env) > 0 || time.Now().After(end) {
			return env
		}
	}
}
