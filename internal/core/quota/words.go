package quota

import (
	"fmt"
	"slices"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/option"
)

// Names are the lease and the device in the sentences.
type Names struct {
	Lease  string
	Device string // "GPU 2"
}

// WarningText says how much is used, what the share is, what will happen, and what to ask for next time.
func (o Order) WarningText(n Names, l Limits, uses []Use) string {
	return option.Sprintf("%s on %s, and the share of lease %s is %s; give memory back, or it is ended in %s. Next time ask for {share=%s}",
		useText(uses, o.Sum), n.Device, n.Lease, l.Share, secondsText(l.Grace), SizeToAskFor(o.Sum))
}

// EndingText says which processes are ended now, how, and why.
func (o Order) EndingText(n Names, l Limits, uses, who []Use, force bool) string {
	how := "asking " + processesText(who) + " to end (SIGTERM)"
	if force {
		how = "ending " + processesText(who) + " (SIGKILL)"
	}
	return option.Sprintf("%s: %s on %s, and the share of lease %s is %s. Next time ask for {share=%s}",
		how, useText(uses, o.Sum), n.Device, n.Lease, l.Share, SizeToAskFor(o.Sum))
}

// UntouchedText names a process that is not ended although the sum is above the share, because it is another user's, no
// longer the one that was measured, or nothing proves that it uses the device.
func (o Order) UntouchedText(n Names, l Limits, who []Use) string {
	return fmt.Sprintf("cannot end %s, which is not of the user of lease %s or has not opened the GPU, although %s is used on %s and the share is %s",
		processesText(who), n.Lease, o.Sum, n.Device, l.Share)
}

// BlindText says that the share cannot be checked, and that no process is ended.
func (o Order) BlindText(n Names, l Limits) string {
	return fmt.Sprintf("cannot measure lease %s on %s: %s; nothing is ended, and its share of %s is not enforced",
		n.Lease, n.Device, o.Blind, l.Share)
}

// SizeToAskFor is the size to request next time for this use: a tenth more, rounded up, such as "18G".
func SizeToAskFor(sum gpu.Bytes) string {
	want := sum + sum/10
	step, unit := gpu.GiB, "G"
	if want < 4*gpu.GiB {
		step, unit = 256*gpu.MiB, "M"
	}

	n := (want + step - 1) / step * step
	if n%gpu.GiB == 0 {
		unit = "G"
	}

	if unit == "G" {
		return fmt.Sprintf("%dG", n/gpu.GiB)
	}

	return fmt.Sprintf("%dM", n/gpu.MiB)
}

// useText: "train.py (process 4242) and 2 more use 16 GiB", the largest first.
func useText(uses []Use, sum gpu.Bytes) string {
	verb := "uses"
	if len(uses) > 1 {
		verb = "use"
	}
	return fmt.Sprintf("%s %s %s", processesText(uses), verb, sum)
}

func processesText(uses []Use) string {
	if len(uses) == 0 {
		return "no process"
	}

	list := slices.Clone(uses)
	slices.SortStableFunc(list, func(a, b Use) int { return int(memoryOrZero(b)>>10) - int(memoryOrZero(a)>>10) })
	first := fmt.Sprintf("%s (process %d)", list[0].Command, list[0].PID)
	if len(list) == 1 {
		return first
	}

	return fmt.Sprintf("%s and %d more", first, len(list)-1)
}

func memoryOrZero(u Use) gpu.Bytes {
	if u.Memory == nil {
		return 0
	}
	return *u.Memory
}

func secondsText(d time.Duration) string {
	if d%time.Second == 0 {
		return fmt.Sprintf("%d s", d/time.Second)
	}
	return d.String()
}
