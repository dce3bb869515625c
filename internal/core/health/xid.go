package health

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/core/gpu"
)

// errorTable is the list of known codes; its head names classes and source.
//
//go:embed xid.txt
var errorTable string

// Class is how bad a driver error is for the device.
type Class string

// Classes of driver errors, mildest first; xid.txt has the codes.
const (
	Note Class = "note" // nothing to do
	// Of a program, as a rule: restart it; the device is fine.
	Fault Class = "app"
	// The device needs a reset.
	Stuck Class = "reset"
	// The machine, its cables or its administrator are needed.
	Host Class = "host"
)

// containedPause is how long a contained memory error (XID 94) keeps a device from new jobs.
const containedPause = 10 * time.Minute

// xidContained is the code of a memory error that hit only one program: not that program's fault, and no lasting
// damage.
const xidContained = 94

// xidRecoveryChanged is the code that only reports a change of the recovery action, which is a reading of its own.
const xidRecoveryChanged = 154

// ExplainXID returns the class of a driver error and a short meaning. A code that NVIDIA's catalog gives no action for,
// or that is newer than this version, is of class Host, to be cautious.
func ExplainXID(code int) (Class, string) {
	for line := range strings.Lines(errorTable) {
		codes, rest, _ := strings.Cut(strings.TrimSpace(line), "\t")
		first, last, isRange := strings.Cut(codes, "-")
		low, err := strconv.Atoi(first)
		if err != nil {
			continue
		}

		high := low
		if isRange {
			high, _ = strconv.Atoi(last)
		}

		if low <= code && code <= high {
			class, meaning, _ := strings.Cut(rest, "\t")
			return Class(class), meaning
		}
	}
	return Host, "an error that this version does not know"
}

// IsMachineFault reports that the error is the fault of the machine and not of the program that it hit: the program may
// be started again on another device.
func IsMachineFault(code int) bool {
	class, _ := ExplainXID(code)
	return class == Stuck || class == Host && code != xidRecoveryChanged || code == xidContained
}

// judgeXIDs judges the driver's errors, each code once, in the order of the codes' first appearance.
func (v *verdict) judgeXIDs(d gpu.Device, now time.Time) {
	var seen []int
	for _, x := range d.XIDs {
		if slices.Contains(seen, x.Code) {
			continue
		}

		seen = append(seen, x.Code)
		last := latestXID(d.XIDs, x.Code)
		class, meaning := ExplainXID(x.Code)
		text := fmt.Sprintf("XID %d %s: %s", x.Code, timeText(last.At), meaning)
		switch {
		case x.Code == xidContained:
			if last.At.IsZero() || now.Sub(last.At) < containedPause {
				v.addReason(Degraded, Confirm, "%s; it gets no new job until %.0f minutes after it", text, containedPause.Minutes())
			}
		case x.Code == xidRecoveryChanged && d.RecoveryAction != "":
		case class == Stuck:
			v.addReason(Unhealthy, Reset, "%s", text)
			v.confirm = true
		case class == Host:
			v.addReason(Unhealthy, hostCure(x.Code), "%s", text)
			v.confirm = true
		}
	}
}

// hostCure is the cure of an error of class Host.
func hostCure(code int) Cure {
	switch code {
	case 79:
		return Recover
	case 54:
		return Power
	case 48:
		return Reset
	}
	return Consult
}

func latestXID(xids []gpu.XID, code int) gpu.XID {
	var last gpu.XID
	for _, x := range xids {
		if x.Code == code && (last.Code == 0 || x.At.After(last.At)) {
			last = x
		}
	}
	return last
}

// timeText writes a time for users. Such errors are of this boot, so the year is left out.
func timeText(at time.Time) string {
	if at.IsZero() {
		return "since the machine was started"
	}
	return at.Format("on 2 Jan at 15:04:05")
}
