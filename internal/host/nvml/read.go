package nvml

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/prose"
)

// deviceAnswer is what the goroutine of one device has read so far. The goroutine sends all of it again after each
// part, so that a device that hangs keeps the earlier parts. An answer is never changed after it was sent.
type deviceAnswer struct {
	index     int
	handle    uintptr
	device    gpu.Device
	processes []gpu.Process
	ends      linkEnds
	problems  []string
	done      bool
}

// isComplete reports that all parts of the device were read.
func (d *deviceAnswer) isComplete() bool { return d.done && d.device.Problem == "" }

// Read reads what the query is about, and always the identity of each device. Links are read only if it wants all
// devices. Read returns at the deadline. A device that is late has Problem "no answer within …" and the parts that it
// gave; the others are complete, and their links may take a tenth of the deadline more. A lost device has a Problem
// too. A reading that fails leaves its field nil, and Machine.Problems names it, unless the device does not have that
// reading. If no device can be identified, the error is a *gpu.Unavailable; Read never returns an empty machine without
// an error.
func (l *Library) Read(caller context.Context, query gpu.Query) (gpu.Machine, error) {
	what, limit := query.What, l.callLimit(caller)
	ctx, cancel := context.WithTimeout(caller, limit)
	defer cancel()

	select {
	case <-l.turn:
		owner, err := l.recountDevices(ctx, what&gpu.RecountDevices != 0, limit)
		if owner {
			defer func() { l.turn <- struct{}{} }()
		}
		if err != nil {
			return gpu.Machine{}, err
		}
	case <-ctx.Done():
		return gpu.Machine{}, noAnswerError(ctx, "an earlier reading, or the library is closed", limit)
	}

	taken := time.Now()
	answers := l.gatherAnswers(ctx, query)
	if errors.Is(ctx.Err(), context.Canceled) {
		return gpu.Machine{}, noAnswerError(ctx, "", limit)
	}

	l.rememberIdentities(answers, limit)
	if what&gpu.Links != 0 && query.Only == nil {
		// If a device hung, the time is used up. Comparing the others gets a tenth of it.
		ctx, cancel := context.WithTimeout(caller, max(limit-time.Since(taken), limit/10))
		l.linkDevices(ctx, answers)
		cancel()
	}

	if err := l.checkIdentified(ctx, answers, limit); err != nil {
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

	m.Stuck = l.isHanging()
	m.DropImplausible()

	return m, nil
}

// gatherAnswers starts a goroutine for each device and collects the answers until all are done or ctx ends. A device
// with a goroutine of an earlier reading still in the driver gets no second one. One whose identity is known gets none
// where that is enough.
func (l *Library) gatherAnswers(ctx context.Context, query gpu.Query) []deviceAnswer {
	answers := make([]deviceAnswer, l.count)

	// Large enough that no goroutine blocks.
	said := make(chan deviceAnswer, l.count*(maxParts+1))
	waiting := 0
	for i := range answers {
		a := &answers[i]
		*a = deviceAnswer{index: i, device: gpu.Device{Index: i, Vendor: gpu.NVIDIA}}
		what := query.What
		if !query.Wants(&a.device) {
			what = gpu.Identity
			if query.Known && l.known[i].UUID != "" {
				a.device, a.done = l.known[i], true
				continue
			}
		}

		if l.busy[i].CompareAndSwap(false, true) {
			waiting++
			go l.readDevice(*a, what, said)
		}
	}

	hear := func(a deviceAnswer) {
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
			l.noteHang()
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

// readDevice reads one device part by part and sends its answer after each.
func (l *Library) readDevice(a deviceAnswer, what gpu.What, said chan<- deviceAnswer) {
	r := &deviceReader{lib: l, deviceAnswer: a}
	for _, part := range r.readingParts(what) {
		part()
		if r.device.Problem != "" {
			break
		}
		said <- r.deviceAnswer
	}

	r.done = true
	l.busy[a.index].Store(false)
	said <- r.deviceAnswer
}

// rememberIdentities sets the Problem of late devices, gives devices without a UUID the identity of an earlier reading,
// and keeps the new identities.
func (l *Library) rememberIdentities(answers []deviceAnswer, limit time.Duration) {
	dropSharedUUIDs(answers)
	for i := range answers {
		d := &answers[i].device
		if !answers[i].done {
			d.Problem = prose.NoAnswerText(limit)
		}
		if d.UUID != "" {
			l.known[i] = gpu.Device{Index: i, UUID: d.UUID, Name: d.Name, Vendor: d.Vendor, PCI: d.PCI, Minor: d.Minor,
				MemoryTotal: d.MemoryTotal, Compute: d.Compute, MIGMode: d.MIGMode, MIG: withoutUsedMemory(d.MIG)}
		} else if old := l.known[i]; old.UUID != "" {
			old.Problem = d.Problem
			*d = old
		}
		if d.Problem != "" {
			answers[i].problems = append([]string{d.Problem}, answers[i].problems...)
		}
	}
}

// dropSharedUUIDs takes the identity from devices that answered with the same one: a lease by it could be of either.
func dropSharedUUIDs(answers []deviceAnswer) {
	count := map[gpu.UUID]int{}
	for i := range answers {
		count[answers[i].device.UUID]++
	}
	for i := range answers {
		d := &answers[i].device
		if d.UUID == "" || count[d.UUID] == 1 {
			continue
		}
		d.Problem = fmt.Sprintf("another GPU answered with the same UUID %s, so the two cannot be told apart", d.UUID)
		d.UUID = ""
	}
}

// withoutUsedMemory returns the slices without memory in use, which would be outdated when the identity is used.
func withoutUsedMemory(slices []gpu.MIGDevice) []gpu.MIGDevice {
	var out []gpu.MIGDevice
	for _, s := range slices {
		s.MemoryUsed = nil
		out = append(out, s)
	}
	return out
}

// checkIdentified returns an error if no device has a UUID.
func (l *Library) checkIdentified(ctx context.Context, answers []deviceAnswer, limit time.Duration) error {
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
		return noAnswerError(ctx, "reading the devices", limit)
	}

	cause := gpu.DriverError
	if answers[0].device.Problem == deniedProblem {
		cause = gpu.NoPermission
	}

	_, remedy := explainCause(cause)

	return &gpu.Unavailable{
		Cause:  cause,
		Text:   fmt.Sprintf("cannot read any of the %d GPUs that the driver reports; the first: %s", len(answers), answers[0].device.Problem),
		Remedy: remedy,
	}
}
