package nvml

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gpuard/internal/core/gpu"
)

// answer is what the goroutine of one device has found so far. It is sent again, whole, after each part, so that a device
// that hangs keeps the parts it gave before. What was sent is never changed afterwards.
type answer struct {
	index     int
	handle    uintptr
	device    gpu.Device
	processes []gpu.Process
	ends      linkEnds
	problems  []string
	done      bool
}

// complete reports that the device answered everything it was asked.
func (a *answer) complete() bool { return a.done && a.device.Problem == "" }

// Read reads the parts of the machine that what names; identity is always read. It returns at the deadline: a device
// that is late has Problem "no answer within …" and what is known of it, the others are complete; their links may then take
// a tenth of the time more. A lost device has a Problem too. A reading that fails leaves its field nil, and Machine.Problems says so unless the device simply has no such
// reading. When no device can be identified the error is a *gpu.Unavailable, never an empty machine.
func (l *Library) Read(caller context.Context, what gpu.What) (gpu.Machine, error) {
	limit := l.limit(caller)
	ctx, cancel := context.WithTimeout(caller, limit)
	defer cancel()
	select {
	case <-l.turn:
		owner, err := l.recount(ctx, what&gpu.Anew != 0, limit)
		if owner {
			defer func() { l.turn <- struct{}{} }()
		}
		if err != nil {
			return gpu.Machine{}, err
		}
	case <-ctx.Done():
		return gpu.Machine{}, late(ctx, "an earlier reading, or the library is closed", limit)
	}
	taken := time.Now()
	answers := l.gather(ctx, what)
	if errors.Is(ctx.Err(), context.Canceled) {
		return gpu.Machine{}, late(ctx, "", limit)
	}
	l.remember(answers, limit)
	if what&gpu.Links != 0 {
		// A device that hung has used all the time; the others get a tenth of it to be compared.
		ctx, cancel := context.WithTimeout(caller, max(limit-time.Since(taken), limit/10))
		l.link(ctx, answers)
		cancel()
	}
	if err := l.anybody(ctx, answers, limit); err != nil {
		return gpu.Machine{}, err
	}
	m := gpu.Machine{Taken: taken, Driver: l.driver, CUDA: l.cuda, Source: "nvml"}
	for i := range answers {
		m.Devices = append(m.Devices, answers[i].device)
		m.Processes = append(m.Processes, answers[i].processes...)
		for _, p := range answers[i].problems {
			m.Problems = append(m.Problems, fmt.Sprintf("GPU %d: %s", i, p))
		}
	}
	m.Stuck = l.hangs()
	return m, nil
}

// gather starts one goroutine for each device and collects what they say until all are done or the time is over.
// A device whose goroutine of an earlier reading is still inside the driver gets no second one.
func (l *Library) gather(ctx context.Context, what gpu.What) []answer {
	answers := make([]answer, l.count)
	said := make(chan answer, l.count*(parts+1)) // nobody ever waits to be heard
	waiting := 0
	for i := range answers {
		answers[i] = answer{index: i, device: gpu.Device{Index: i, Vendor: gpu.NVIDIA}}
		if l.busy[i].CompareAndSwap(false, true) {
			waiting++
			go l.ask(answers[i], what, said)
		}
	}
	hear := func(a answer) {
		answers[a.index] = a
		if a.done {
			waiting--
		}
	}
	for waiting > 0 {
		select {
		case a := <-said:
			hear(a)
		case <-ctx.Done():
			for {
				select {
				case a := <-said:
					hear(a)
				default:
					return answers
				}
			}
		}
	}
	return answers
}

// ask reads one device, part by part, and says so after each.
func (l *Library) ask(a answer, what gpu.What, said chan<- answer) {
	r := &reader{lib: l, answer: a}
	for _, part := range r.parts(what) {
		part()
		if r.device.Problem != "" {
			break
		}
		said <- r.answer
	}
	r.done = true
	l.busy[a.index].Store(false)
	said <- r.answer
}

// remember names the devices that are late, gives them the identity known from before, and keeps the new identities.
func (l *Library) remember(answers []answer, limit time.Duration) {
	for i := range answers {
		d := &answers[i].device
		if !answers[i].done {
			d.Problem = noAnswer(limit)
		}
		if d.UUID != "" {
			l.known[i] = gpu.Device{Index: i, UUID: d.UUID, Name: d.Name, Vendor: d.Vendor, PCI: d.PCI, Minor: d.Minor,
				MemoryTotal: d.MemoryTotal, Compute: d.Compute, MIGMode: d.MIGMode, MIG: layout(d.MIG)}
		} else if old := l.known[i]; old.UUID != "" {
			old.Problem = d.Problem
			*d = old
		}
		if d.Problem != "" {
			answers[i].problems = append([]string{d.Problem}, answers[i].problems...)
		}
	}
}

// layout is the slices without their readings, which would be old when they are used.
func layout(slices []gpu.MIGDevice) []gpu.MIGDevice {
	var out []gpu.MIGDevice
	for _, s := range slices {
		s.MemoryUsed = nil
		out = append(out, s)
	}
	return out
}

// anybody is the error for a machine of which no device can be named.
func (l *Library) anybody(ctx context.Context, answers []answer, limit time.Duration) error {
	silent := 0
	for i := range answers {
		if answers[i].device.UUID != "" {
			return nil
		}
		if !answers[i].done {
			silent++
		}
	}
	if silent == len(answers) {
		return late(ctx, "reading the devices", limit)
	}
	cause := gpu.DriverError
	if answers[0].device.Problem == denied {
		cause = gpu.NoPermission
	}
	_, remedy := explain(cause)
	return &gpu.Unavailable{
		Cause:  cause,
		Text:   fmt.Sprintf("cannot read any of the %d GPUs that the driver reports; the first: %s", len(answers), answers[0].device.Problem),
		Remedy: remedy,
	}
}
