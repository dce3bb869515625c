package store

import (
	"context"
	"errors"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// queueMany queues n tickets of this process.
func queueMany(t testing.TB, f *Folder, n int) []*Waiting {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if want := uint64(2*n + 512); old.Cur < want {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: want, Max: max(old.Max, want)}); err != nil {
			t.Skipf("%d tickets need %d descriptors: %v", n, want, err)
		}
		t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &old) })
	}
	all := make([]*Waiting, n)
	for i := range all {
		w, err := f.QueueTicket(job.Ticket{Devices: []gpu.UUID{"GPU-a"}, Count: 1, PID: os.Getpid(), Command: "test"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = w.Withdraw() })
		all[i] = w
	}
	return all
}

// BenchmarkClaimAmongTickets is a claim that is refused, as every watcher makes one at each change: the time for which
// it has the folder lock is what the next one waits.
func BenchmarkClaimAmongTickets(b *testing.B) {
	for _, n := range []int{0, 16, 1000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			f := newStateFolder(b)
			queueMany(b, f, n)
			for b.Loop() {
				_, err := f.Claim(testBoot, nil, func(v View) (job.Lease, error) { return job.Lease{}, errBusy })
				if !errors.Is(err, errBusy) {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkBehind is what one wait costs that does not end: finding those ahead and beginning to wait.
func BenchmarkBehind(b *testing.B) {
	f := newStateFolder(b)
	all := queueMany(b, f, 1000)
	for b.Loop() {
		ctx, cancel := context.WithTimeout(b.Context(), time.Microsecond)
		if err := all[999].WaitBehind(ctx, 12); err == nil {
			b.Fatal("it did not wait")
		}
		cancel()
	}
}
