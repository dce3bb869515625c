package runner

import (
	"syscall"
	"time"

	"gpuard/internal/core/visible"
	"gpuard/internal/host/batch"
)

// afterKill is how long another scheduler may take to kill the processes of a job, one after the other.
const afterKill = 300 * time.Millisecond

// awaitKill waits where a run was killed in a job of another scheduler, which ends a job by killing each of its
// processes: this one may be next, and then the run has not failed, but is not done.
func awaitKill(env visible.Env, e batch.ExitStatus) {
	// What a shell adds to the number of the signal that ended its command.
	const shell = 128
	killed := e.Signal == "SIGTERM" || e.Signal == "SIGKILL" || e.Code == shell+int(syscall.SIGTERM) || e.Code == shell+int(syscall.SIGKILL)
	if killed && visible.Allocation(env) != "" {
		time.Sleep(afterKill)
	}
}
