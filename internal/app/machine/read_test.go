package machine

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
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

// TestReadFastOnABusyMachine: a driver that had no time to answer because the machine stood still is asked again, and one that
// took all its time is not.
func TestReadFastOnABusyMachine(t *testing.T) {
	for spent, want := range map[time.Duration]bool{600 * time.Millisecond: true, 2 * time.Second: true, 4900 * time.Millisecond: true, 5 * time.Second: false} {
		synctest.Test(t, func(t *testing.T) {
			host := &Host{Proc: proc.New("/proc"), Run: t.TempDir(), Tmp: t.TempDir(), Messages: Messages{Say: func(string) {}}}
			host.Reader = func(context.Context, gpu.Query) (gpu.Machine, error) {
				time.Sleep(spent)
				return gpu.Machine{}, &gpu.Unavailable{Cause: gpu.NoAnswer, Text: "no answer within 0s"}
			}
			if _, partial, err := host.ReadFast(t.Context(), gpu.Query{What: gpu.Quick}); err == nil || partial != want {
				t.Errorf("after %v: partial %v, %v", spent, partial, err)
			}
		})
	}
}

// TestReadAllAsksWhoIsLate: while a device does not answer only that one is asked again, and at the end all are, because something is
// given on what they say.
func TestReadAllAsksWhoIsLate(t *testing.T) {
	for name, answers := range map[string]time.Duration{"in time": 3 * time.Second, "never": time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			var asked [][]int
			began := time.Now()
			host := &Host{Proc: proc.New("/proc"), Run: t.TempDir(), Tmp: t.TempDir(), Messages: Messages{Say: func(string) {}}}
			host.Reader = func(_ context.Context, query gpu.Query) (gpu.Machine, error) {
				asked = append(asked, query.Only)
				m := gpu.Machine{Source: "nvml", Devices: []gpu.Device{{Index: 0, UUID: "GPU-a", Vendor: gpu.NVIDIA}, {Index: 1, UUID: "GPU-b", Vendor: gpu.NVIDIA}}}
				if time.Since(began) < answers {
					m.Devices[0].Problem = "no answer within 5s"
				}
				return m, nil
			}
			m, err := host.ReadAll(t.Context(), gpu.Quick)
			if late := isSilent(m.Devices[0]); err != nil || late != (answers > time.Minute) || len(asked) < 5 {
				t.Errorf("%s: late %v, %v, asked about %v", name, late, err, asked)
			}
			for i, only := range asked {
				if all := i == 0 || i == len(asked)-1; all != (only == nil) || !all && !slices.Equal(only, []int{0}) {
					t.Errorf("%s: reading %d of %d is about %v", name, i+1, len(asked), only)
				}
			}
		})
	}
}
