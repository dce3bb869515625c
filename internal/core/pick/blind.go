package pick

import (
	"fmt"
	"strings"

	"gpuard/internal/core/option"
	"gpuard/internal/core/prose"
)

// Where memory, load and processes of a device cannot be read, it is not free but of unknown use
// (gpu.Device.UseUnknown): only the leases of gpuard are known. It is set aside while there is a device whose use is
// known (class.go). Where all are so, or it is named, it is leased, and the plan says in one line what is not known. A
// process that is listed without a size keeps it busy, unless the caller says --any.

func isUseUnknown(u *unit) bool { return u.dev.UseUnknown(u.mig) }

// freeText is the verdict on a device that could be given.
func freeText(u *unit) string {
	if isUseUnknown(u) {
		return "use unknown"
	}
	return "free"
}

// blindText is what the reason of a chosen device adds.
func blindText(u *unit) string {
	if isUseUnknown(u) {
		return "; whether it is in use cannot be read"
	}
	return ""
}

// blindNote is one line for all devices of a plan, "" where the use of each is known.
func blindNote(chosen []*unit) string {
	var labels []string
	for _, u := range chosen {
		if isUseUnknown(u) {
			labels = append(labels, strings.TrimPrefix(u.label, "GPU "))
		}
	}
	switch len(labels) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("whether GPU %s is in use cannot be read (its memory, load and processes): only the leases of gpuard are known", labels[0])
	}

	return fmt.Sprintf("whether GPU %s are in use cannot be read (their memory, load and processes): only the leases of gpuard are known", prose.JoinWords(labels, "and"))
}

// toleratesUnknownUse reports whether processes of unknown size are let be: only where nothing else tells how the
// device is used.
func (q *query) toleratesUnknownUse(u *unit) bool { return q.spec.Any && isUseUnknown(u) }

// offerAnyFlag adds to an obstacle that --any would let the job in.
func (q *query) offerAnyFlag(u *unit, o *obstacle) *obstacle {
	if isUseUnknown(u) && o.remedy != "" {
		o.remedy += option.Expand(", or add {any} to run beside it")
	}
	return o
}
