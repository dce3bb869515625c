package compare

import (
	"context"
	"io"
	"os"
	"slices"
	"time"

	"gpuard/internal/core/experiment"
	"gpuard/internal/core/gpu"
)

// sampleDevices reads the devices of the run.
func (r *runningStep) sampleDevices(ctx context.Context) {
	m, partial, err := r.host.ReadFast(ctx, gpu.Query{What: gpu.Load | gpu.Processes})
	if err != nil || partial {
		// The next reading stands for this time too.
		return
	}

	var devices []gpu.Device
	for _, seat := range r.seats {
		for _, given := range seat.Plan.Devices {
			d, slice, ok := m.FindDevice(given.UUID)
			if !ok {
				return
			}

			read := *d
			if slice != nil {
				read.MemoryUsed = slice.MemoryUsed
			}

			i := slices.IndexFunc(devices, func(other gpu.Device) bool { return other.UUID == d.UUID })
			switch {
			case i < 0:
				devices = append(devices, read)
			case read.MemoryUsed != nil && (devices[i].MemoryUsed == nil || *devices[i].MemoryUsed < *read.MemoryUsed):
				// Another slice of it.
				devices[i].MemoryUsed = read.MemoryUsed
			}
		}
	}

	now := time.Now()
	r.meter.Add(now.Sub(r.sampled), devices)
	r.sampled = now

	for _, one := range r.members {
		one.recordPeak(&m, r.host.Proc.ProcessTree(one.pids[ownProcess]))
	}
}

// recordPeak notes the memory of the command's own processes on one device, where that is the most so far.
func (s *stepCommand) recordPeak(machine *gpu.Machine, tree []int) {
	for _, given := range s.seat.Plan.Devices {
		var sum *gpu.Bytes
		for _, p := range machine.ProcessesOn(given.UUID) {
			if p.Memory != nil && slices.Contains(tree, p.PID) {
				if sum == nil {
					sum = new(gpu.Bytes)
				}
				*sum += *p.Memory
			}
		}
		if sum != nil && (s.peak == nil || *s.peak < *sum) {
			s.peak = sum
		}
	}
}

// recordStep adds to the run what was measured in this step.
func (r *runningStep) recordStep() {
	if len(r.members) == 0 {
		return
	}

	// In which all run.
	from, to := r.members[0].began, r.members[0].ended
	last := to
	for _, m := range r.members[1:] {
		from, to, last = laterTime(from, m.began), earlierTime(to, m.ended), laterTime(last, m.ended)
	}

	r.run.Seconds += last.Sub(r.members[0].began).Seconds()
	r.meter.Rest(last.Sub(r.sampled))

	for _, m := range r.members {
		out := &r.run.Commands[m.command]
		out.Seconds, out.Memory, out.Signal = m.ended.Sub(m.began).Seconds(), m.peak, m.how.Signal
		if m.how.Signal == "" && m.how.Code >= 0 {
			out.Exit = &m.how.Code
		}

		if len(r.members) > 1 && out.Seconds > 0 {
			out.Company = new(max(0, to.Sub(from).Seconds()) / out.Seconds)
		}

		m.seat.NoteEnd(out.Exit, out.Signal, peakOf(m))
		r.readOutput(m, out)
	}
}

func peakOf(m *stepCommand) gpu.Bytes {
	if m.peak == nil {
		return 0
	}
	return *m.peak
}

func laterTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlierTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// readOutput finds the metrics in what a command printed, which is only kept where the run has failed.
func (r *runningStep) readOutput(m *stepCommand, out *experiment.Outcome) {
	if len(r.request.Metrics) > 0 {
		text := readTail(m.logs[ownProcess])
		if m.logs[loadProcess] != "" {
			text = readTail(m.logs[loadProcess])
		}
		out.ReadMetrics(r.request.Metrics, text)
	}
	if !m.failed {
		_ = os.Remove(m.logs[ownProcess])
		_ = os.Remove(m.logs[loadProcess])
	}
}

// readTail reads the end of a file.
func readTail(path string) []byte {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}

	defer file.Close() //nolint:errcheck // read only
	if info, err := file.Stat(); err == nil && info.Size() > outputRead {
		_, _ = file.Seek(-outputRead, io.SeekEnd)
	}

	text, _ := io.ReadAll(io.LimitReader(file, outputRead))

	return text
}
