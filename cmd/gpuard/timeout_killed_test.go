package main

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/job"
	"gpuard/internal/host/proc"
)

// TestTimeoutWithoutGpuard: where gpuard is killed, the time of its command is over all the same, at the moment that its lease names.
func TestTimeoutWithoutGpuard(t *testing.T) {
	t.Parallel()
	r := newRack(t, a100s(1)...)
	cmd := r.cmd("run", "-q", "--timeout", "1s", "--grace", "1s", "--", "sh", "-c", "sleep 1018 & echo $$ $!; wait")
	var pids []int
	for _, word := range strings.Fields(begin(t, cmd)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	holderOf(t, r.state) // it comes last
	_ = cmd.Process.Kill()
	killed, living := time.Now(), func() (n int) {
		for _, pid := range pids {
			if proc.New("/proc").Alive(pid, 0) {
				n++
			}
		}
		return n
	}
	same(t, "processes of the command", living(), 2)
	eventually(t, "the command and what it started have ended", func() bool { return living() == 0 })
	if spent := time.Since(killed); spent < job.Dying/2 {
		t.Errorf("ended after %v, and gpuard might have ended it later", spent)
	}
	eventually(t, "the GPU is free", func() bool { s, _ := r.status(); return len(s.Devices[0].Leases) == 0 })
}
