package observe

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/host/proc"
)

// Flag is the first argument of the child that reads the devices; --machine of its parent follows.
const Flag = "__observe"

// childMessage is one line from the child: a reading, or why there is none.
type childMessage struct {
	Machine     *gpu.Machine     `json:"machine,omitempty"`
	Unavailable *gpu.Unavailable `json:"unavailable,omitempty"`
	Error       string           `json:"error,omitempty"`
}

// PrintReadings is the life of the child: it reads the devices at each interval and prints them, until the parent is
// gone.
func PrintReadings(ctx context.Context, host *machine.Host, machine string) error {
	host.Machine = machine
	every := reportInterval(host)
	read := func(ctx context.Context, _ gpu.Query) (gpu.Machine, error) { return host.Read(ctx, gpu.Identity) }
	if host.IsHardware() {
		read = paceReader(host.Reader, host.Proc, 5*every, max(every, time.Second))
	}

	var errs driverErrors
	out := json.NewEncoder(os.Stdout)
	tick := time.NewTicker(every)
	defer tick.Stop()

	for {
		var m childMessage
		found, err := read(ctx, gpu.Query{What: gpu.Shown})
		switch {
		case errors.As(err, &m.Unavailable):
		case err != nil:
			m.Error = err.Error()
		default:
			errs.startListening(ctx, host, found)
			errs.addErrors(&found)
			m.Machine = &found
		}

		if err := out.Encode(m); err != nil {
			return nil //nolint:nilerr // the parent is gone, and with it all that there was to do
		}

		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// driverErrors are the errors of the driver that this process was told of.
type driverErrors struct {
	once   sync.Once
	mu     sync.Mutex
	events []gpu.Event
}

// startListening begins to listen, once.
func (e *driverErrors) startListening(ctx context.Context, host *machine.Host, m gpu.Machine) {
	if !host.IsHardware() {
		return
	}
	e.once.Do(func() {
		var ids []gpu.UUID
		for _, d := range m.Devices {
			ids = append(ids, d.UUID)
		}
		heard := host.CopyForListener(func(string) {}).WatchErrors(ctx, m, ids, time.Now())
		go func() {
			for event := range heard {
				e.mu.Lock()
				e.events = append(e.events, event)
				if len(e.events) > 1000 {
					// A device that fails in a loop.
					e.events = slices.Delete(e.events, 0, 500)
				}
				e.mu.Unlock()
			}
		}()
	})
}

// addErrors notes the errors at the devices.
func (e *driverErrors) addErrors(m *gpu.Machine) {
	e.mu.Lock()
	defer e.mu.Unlock()

	for _, event := range e.events {
		if d, _, ok := m.FindDevice(event.Device); ok {
			d.XIDs = append(slices.Clip(d.XIDs), event.XID)
		}
	}
}

// paceReader reads all of the machine only now and then, and what changes from second to second each time. Power, lists
// of processes and the health of a device take longer in NVIDIA's driver than all else together, and a driver that is
// asked often slows the jobs down. What was not asked for keeps its last value. Each process gets its start: when the
// list is looked at, another one may have its PID.
func paceReader(read machine.Reader, processes proc.FS, now, patience time.Duration) machine.Reader {
	var last gpu.Machine
	var at time.Time
	return func(ctx context.Context, query gpu.Query) (gpu.Machine, error) {
		whole := time.Since(at) >= now
		if !whole {
			query.What &^= gpu.Power | gpu.Processes | gpu.Health
		}

		if strings.Contains(last.Source, "nvml") {
			// nvidia-smi needs more; a device that is late is shown as such.
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, patience)
			defer cancel()
		}

		began := time.Now()
		m, err := read(ctx, query)
		switch {
		case err != nil:
			at = time.Time{}
		case whole:
			for i, p := range m.Processes {
				s, err := processes.Stat(p.PID)
				if err != nil {
					continue
				}

				m.Processes[i].Start = s.Start
			}
			last, at = m, began
		default:
			m = fillFromLast(m, last)
		}

		return m, err
	}
}

// fillFromLast is m with what only last has.
func fillFromLast(m, last gpu.Machine) gpu.Machine {
	for i := range m.Devices {
		d := &m.Devices[i]
		j := slices.IndexFunc(last.Devices, func(o gpu.Device) bool { return o.UUID == d.UUID && o.Index == d.Index })
		if j < 0 || d.Problem != "" {
			continue
		}

		old := last.Devices[j]
		d.Power, d.PowerLimit = cmp.Or(d.Power, old.Power), cmp.Or(d.PowerLimit, old.PowerLimit)
		d.Energy = cmp.Or(d.Energy, old.Energy)
		d.ECC, d.ECCCorrected, d.ECCUncorrected = old.ECC, old.ECCCorrected, old.ECCUncorrected
		d.RemappedRows, d.RetiredPages, d.RecoveryAction = old.RemappedRows, old.RetiredPages, old.RecoveryAction
		d.Fabric = old.Fabric
		d.Persistence, d.ComputeMode, d.Unlisted, d.Links = old.Persistence, old.ComputeMode, old.Unlisted, old.Links
		d.DisplayActive = old.DisplayActive
	}

	m.Processes = slices.Clone(last.Processes)
	m.Problems = append(m.Problems, last.Problems...)
	slices.Sort(m.Problems)
	m.Problems = slices.Compact(m.Problems)

	return m
}
