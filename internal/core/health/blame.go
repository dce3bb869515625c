package health

import (
	"fmt"
	"time"

	"gpuard/internal/core/gpu"
)

// BlameDevices compares readings of the machine from before and after a job, and returns the devices of the job that
// failed while it ran, with the reason: the device is gone or does not answer any more, it became unhealthy, or the
// driver reported an error that is not a program's fault. Devices that had failed before the job began are not blamed.
// "" and none mean that nothing indicates a fault of the machine. ids are devices or slices; began is by the clock of
// the errors.
func BlameDevices(before, after gpu.Machine, ids []gpu.UUID, began, now time.Time) (reason string, which []gpu.UUID) {
	for _, id := range ids {
		old, _, known := before.FindDevice(id)
		var text string
		switch d, _, found := after.FindDevice(id); {
		case !known:
			// Nothing to compare with.
			continue
		case !found:
			text = "it is gone"
		default:
			text = newFault(*old, *d, began, now)
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

// newFault is what happened to one device.
func newFault(before, after gpu.Device, began, now time.Time) string {
	for _, x := range after.XIDs {
		// The clock of a kernel log may differ from ours by a second. An error that is on the list of before is not
		// new.
		if IsMachineFault(x.Code) && x.At.After(began.Add(-time.Second)) && !hasXID(before.XIDs, x) {
			_, meaning := ExplainXID(x.Code)
			return fmt.Sprintf("XID %d: %s", x.Code, meaning)
		}
	}

	if before.Problem == "" && after.Problem != "" {
		return after.Problem
	}

	was, _ := StateOf(before, now)
	if is, why := StateOf(after, now); is == Unhealthy && was != Unhealthy {
		return why[0]
	}

	return ""
}
