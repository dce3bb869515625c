package health

import (
	"fmt"
	"time"

	"gpuard/internal/core/gpu"
)

// Blame says which of the devices that a job had failed while it ran, and how, from readings of the machine before and after
// it: the device is gone or does not answer any more, it became unhealthy, or the driver reported an error that is not a
// program's fault. Devices that were in that state before the job began are not blamed: it started on them all the same. "" and
// none mean that nothing says that the machine is to blame. ids are devices or slices; began is by the clock of the errors.
func Blame(before, after gpu.Machine, ids []gpu.UUID, began, now time.Time) (reason string, which []gpu.UUID) {
	for _, id := range ids {
		old, _, known := before.Find(id)
		var text string
		switch d, _, found := after.Find(id); {
		case !known:
			continue // nothing to compare with
		case !found:
			text = "it is gone"
		default:
			text = fault(*old, *d, began, now)
		}
		if text == "" {
			continue
		}
		if reason == "" {
			reason = fmt.Sprintf("GPU %d: %s", old.Index, text)
		}
		which = append(which, id)
	}
	return reason, which
}

// fault is what happened to one device.
func fault(before, after gpu.Device, began, now time.Time) string {
	for _, x := range after.XIDs {
		// The clock of a kernel log may lie a second beside ours; an error that is on the list of before is not new.
		if OfMachine(x.Code) && x.At.After(began.Add(-time.Second)) && !isOn(before.XIDs, x) {
			_, meaning := Explain(x.Code)
			return fmt.Sprintf("XID %d: %s", x.Code, meaning)
		}
	}
	if before.Problem == "" && after.Problem != "" {
		return after.Problem
	}
	was, _ := Of(before, now)
	if is, why := Of(after, now); is == Unhealthy && was != Unhealthy {
		return why[0]
	}
	return ""
}
