package run

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/host/proc"
)

// healthyMachine is a machine of four healthy cards.
func healthyMachine() gpu.Machine {
	var m gpu.Machine
	for i := range 4 {
		m.Devices = append(m.Devices, gpu.Device{Index: i, UUID: gpu.UUID(fmt.Sprintf("GPU-%d", i)), Vendor: gpu.NVIDIA,
			Temperature: new(40), Utilization: new(0.99), ClockSM: new(1400), ClockSMMax: new(1410), ClockEvents: []string{}})
	}
	return m
}

// startDriftWatch starts the lookout of a run on the machine that read returns, with a clock of its own.
func startDriftWatch(t *testing.T, spec job.Spec, read func() gpu.Machine, kinds ...string) moveWatch {
	state := filepath.Join(t.TempDir(), "none")
	host := &machine.Host{Env: []string{"GPUARD_STATE=" + state}, Proc: proc.New("/proc"), Run: t.TempDir(), Tmp: t.TempDir(),
		Messages: machine.Messages{Say: func(text string) { t.Error("said: " + text) }},
		Readers: machine.Readers{Reader: func(context.Context, gpu.Query) (gpu.Machine, error) {
			m := read()
			m.Taken = time.Now()
			return m, nil
		},
		}}
	return watchDrift(host, spec, kinds)
}

func leaseOf(ids ...gpu.UUID) job.Lease { return job.Lease{Devices: ids} }

func TestDriftWatchTellsOfHeatInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		hot := func() gpu.Machine {
			m := healthyMachine()
			if time.Since(began) >= 10*time.Minute {
				d := &m.Devices[0]
				d.Temperature, d.ClockSM, d.ClockEvents = new(88), new(700), []string{"hw_thermal_slowdown"}
			}
			return m
		}
		ctx, stop := context.WithCancel(t.Context())
		moves := startDriftWatch(t, job.Spec{}, hot, "hot")(ctx, leaseOf("GPU-0"))
		got := <-moves
		if after := time.Since(began) - 10*time.Minute; after < time.Minute || after > 90*time.Second {
			t.Errorf("told %v after the first slowdown reason, want between 60 and 90 s", after)
		}
		if !strings.HasPrefix(got.reason, "hot: GPU 0 is slowed down because of heat") || len(got.avoid) != 0 {
			t.Errorf("got %+v", got)
		}
		stop()
		if _, open := <-moves; open {
			t.Error("another move after the end")
		}
	})
}

// TestDriftWatchOverStarts: the 30 minutes without a move count over starts, and so does what was left.
func TestDriftWatchOverStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sick := map[gpu.UUID]bool{"GPU-0": true}
		seek := startDriftWatch(t, job.Spec{}, func() gpu.Machine {
			m := healthyMachine()
			for i := range m.Devices {
				if sick[m.Devices[i].UUID] {
					m.Devices[i].RecoveryAction = "reset"
				}
			}
			return m
		}, "sick")
		first, end := context.WithCancel(t.Context())
		if got := <-seek(first, leaseOf("GPU-0")); !strings.HasPrefix(got.reason, "sick: GPU 0 is unhealthy: the driver asks for a GPU reset") {
			t.Errorf("got %+v", got)
		}
		end()
		moved := time.Now()
		delete(sick, "GPU-0")
		sick["GPU-1"] = true
		second, end := context.WithCancel(t.Context())
		defer end()
		got := <-seek(second, leaseOf("GPU-1"))
		if after := time.Since(moved); after < 30*time.Minute || after > 31*time.Minute {
			t.Errorf("the second move was asked for after %v, want 30 min", after)
		}
		if len(got.avoid) != 1 || got.avoid[0] != "GPU-0" {
			t.Errorf("avoids %v, want the device that it left", got.avoid)
		}
	})
}

// TestDriftWatchAfterAnEarlierLook: a late reading of the start before does not count for the new device.
func TestDriftWatchAfterAnEarlierLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		seek := startDriftWatch(t, job.Spec{}, func() gpu.Machine {
			m := healthyMachine()
			if looks++; looks == 1 {
				time.Sleep(time.Minute) // the driver hangs
				m.Devices[1].RecoveryAction = "reset"
			}
			return m
		}, "sick")
		first, end := context.WithCancel(t.Context())
		early := seek(first, leaseOf("GPU-0"))
		synctest.Wait()
		end()
		second, end := context.WithTimeout(t.Context(), time.Hour)
		defer end()
		for got := range seek(second, leaseOf("GPU-1")) {
			t.Errorf("got %+v", got)
		}
		if _, open := <-early; open {
			t.Error("the first start was told something after its end")
		}
	})
}

func TestDriftRemaining(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		estimate, limit, ran, want time.Duration
	}{
		{0, 0, time.Hour, 0},
		{2 * time.Hour, 0, time.Hour, time.Hour},
		{2 * time.Hour, 90 * time.Minute, time.Hour, 30 * time.Minute},
		{time.Hour, 0, 2 * time.Hour, 0},
		{time.Hour, 3 * time.Hour, 2 * time.Hour, time.Hour},
	} {
		w := &driftWatch{spec: job.Spec{Time: c.estimate, Timeout: c.limit}, began: now.Add(-c.ran)}
		if got := w.timeLeft(now); got != c.want {
			t.Errorf("--expect %v --timeout %v after %v: %v remain, want %v", c.estimate, c.limit, c.ran, got, c.want)
		}
	}
}

func TestNoDriftWatch(t *testing.T) {
	if startDriftWatch(t, job.Spec{}, healthyMachine) != nil {
		t.Error("a lookout for nothing")
	}
}
