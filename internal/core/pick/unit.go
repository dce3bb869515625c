package pick

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// unit is one thing that can be given: a whole GPU or a MIG slice.
type unit struct {
	dev *gpu.Device
	// nil for a whole GPU.
	mig *gpu.MIGDevice
	// The position in Machine.Devices: links are by position.
	pos int
	// "GPU 2", "GPU amd:0" on mixed machines, "GPU 2 slice 1 (1g.10gb)".
	label string
	// Its UUID is empty or not unique, so a lease could not name it.
	twin     bool
	excluded bool // --exclude names it
	// The job had it before (Spec.Prefer).
	had bool
	// The rule that forbids it; "" none.
	forbiddenBy string
	// Others are far better (class.go).
	aside  *obstacle
	use    use
	reason job.Reason
}

func (u *unit) id() gpu.UUID {
	if u.mig != nil {
		return u.mig.UUID
	}
	return u.dev.UUID
}

func (u *unit) fullName() string {
	if u.mig != nil {
		return u.dev.Name + " MIG " + u.mig.Profile
	}
	return u.dev.Name
}

// totalMemory is the memory that a job could have with nothing else on the device; nil when unknown.
func (u *unit) totalMemory() *gpu.Bytes {
	if u.mig != nil {
		return u.mig.MemoryTotal
	}
	if u.dev.MainMemory != nil {
		return u.dev.MainMemory
	}
	if u.dev.MemoryTotal == nil || u.dev.MemoryReserved == nil {
		return u.dev.MemoryTotal
	}

	return new(max(0, *u.dev.MemoryTotal-*u.dev.MemoryReserved))
}

func (u *unit) usedMemory() *gpu.Bytes {
	if u.mig != nil {
		return u.mig.MemoryUsed
	}
	return u.dev.MemoryUsed
}

// nominalMemory is the nominal memory, which status shows. Call it only for units whose total is known.
func (u *unit) nominalMemory() gpu.Bytes {
	if u.mig != nil {
		return *u.mig.MemoryTotal
	}
	if u.dev.MainMemory != nil {
		return *u.dev.MainMemory
	}
	return *u.dev.MemoryTotal
}

// freeMemory is the unused part of total; nil when unknown.
func (u *unit) freeMemory() *gpu.Bytes {
	if u.mig == nil && u.dev.MainMemory != nil {
		return u.dev.MainAvailable
	}
	if u.totalMemory() == nil || u.usedMemory() == nil {
		return nil
	}
	return new(max(0, *u.totalMemory()-*u.usedMemory()))
}

// utilization is nil for slices: the driver reports none for a split GPU.
func (u *unit) utilization() *float64 {
	if u.mig != nil {
		return nil
	}
	return u.dev.Utilization
}

// allUnits lists all whole GPUs and all slices by vendor and index. The machine's list may have any order.
func (q *query) allUnits() []*unit {
	var all []*unit
	seen := map[gpu.UUID]int{}
	for i := range q.m.Devices {
		d := &q.m.Devices[i]
		label := fmt.Sprintf("GPU %s", q.deviceNumber(d))
		all = append(all, &unit{dev: d, pos: i, label: label})
		seen[d.UUID]++

		for j := range d.MIG {
			s := &d.MIG[j]
			all = append(all, &unit{dev: d, mig: s, pos: i, label: fmt.Sprintf("%s slice %d (%s)", label, s.Index, s.Profile)})
			seen[s.UUID]++
		}
	}

	for _, u := range all {
		u.twin = u.id() == "" || seen[u.id()] > 1
		u.had = slices.Contains(q.spec.Prefer, u.id())
	}

	slices.SortFunc(all, compareUnits)

	return all
}

// deviceNumber is the device's index, with the vendor on machines with several: "0", "amd:0".
func (q *query) deviceNumber(d *gpu.Device) string {
	if q.mixed {
		return fmt.Sprintf("%s:%d", d.Vendor, d.Index)
	}
	return fmt.Sprint(d.Index)
}

func compareUnits(a, b *unit) int {
	return cmp.Or(
		cmp.Compare(vendorRank(a.dev.Vendor), vendorRank(b.dev.Vendor)),
		strings.Compare(string(a.dev.Vendor), string(b.dev.Vendor)),
		cmp.Compare(a.dev.Index, b.dev.Index),
		strings.Compare(string(a.dev.UUID), string(b.dev.UUID)),
		strings.Compare(a.dev.PCI+a.dev.Name, b.dev.PCI+b.dev.Name),
		cmp.Compare(sliceIndex(a), sliceIndex(b)),
		strings.Compare(string(a.id()), string(b.id())),
	)
}

func vendorRank(v gpu.Vendor) int {
	if i := slices.Index(gpu.Vendors(), v); i >= 0 {
		return i
	}
	return len(gpu.Vendors())
}

// sliceIndex is the number of the slice, -1 for the whole GPU, which comes first.
func sliceIndex(u *unit) int {
	if u.mig == nil {
		return -1
	}
	return u.mig.Index
}

// selectUnits keeps the units that get a reason: whole GPUs, or the slices of split ones where slices are wanted.
func (q *query) selectUnits(all []*unit) {
	wanted := q.spec.MIG != "" || slices.ContainsFunc(q.named, func(u *unit) bool { return u.mig != nil })
	for _, u := range all {
		split := wanted && len(u.dev.MIG) > 0
		namedWhole := q.spec.MIG == "" && slices.Contains(q.named, u)
		if (u.mig != nil) == split || namedWhole {
			q.units = append(q.units, u)
		}
	}
}
