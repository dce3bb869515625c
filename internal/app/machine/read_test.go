package machine

import (
	"context"
	"errors"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/host/proc"
)

// TestReadWithoutTime: a caller whose time is over, or who was interrupted, gets an error and no machine whose devices
// seem not to answer.
func TestReadWithoutTime(t *testing.T) {
	host := &Host{Proc: proc.New(t.TempDir()), Messages: Messages{Say: func(string) {}}}
	host.Reader = func(context.Context, gpu.Query) (gpu.Machine, error) {
		return gpu.Machine{Devices: []gpu.Device{{Problem: "no answer within 0s"}}}, nil
	}
	over, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	why := errors.New("interrupted")
	interrupted, interrupt := context.WithCancelCause(t.Context())
	interrupt(why)
	for ctx, want := range map[context.Context]error{over: context.DeadlineExceeded, interrupted: why} {
		_, err := host.Read(ctx, gpu.Identity)
		_, _, fast := host.ReadFast(ctx, gpu.Query{What: gpu.Identity})
		_, all := host.ReadAll(ctx, gpu.Identity)
		for _, err := range []error{err, fast, all} {
			if !errors.Is(err, want) {
				t.Errorf("%v instead of %v", err, want)
			}
		}
	}
}
