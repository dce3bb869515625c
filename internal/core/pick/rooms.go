package pick

import (
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// Room is what one device, or slice, could give now.
type Room struct {
	// An exclusive lease, or inside a shared lease all of it.
	Whole bool
	// What --mem can ask for together with Whole; nil when unknown.
	Free *gpu.Bytes
	// The largest share, never zero; nil when none can be given.
	Share *gpu.Bytes

	// What ForecastRooms knows of a device that is not Whole.
	// The end of its leases is not enough: a process without a lease, a drain, a lasting fault.
	Blocked bool
	// What used it has ended and is about to leave it; nil: nothing.
	Fading *Fading
}

// RoomByDevice says what each whole GPU that is not split, and each slice, could give now while held are alive. It
// leaves out devices that no lease could name and those outside the lease in.Parent. Masks do not count, because a
// device hidden from one caller may be what another waits for. The processes of in.Own count as the caller's, as they
// do in Place.
func RoomByDevice(m gpu.Machine, held []job.Lease, in Context) map[gpu.UUID]Room {
	in.Hidden, in.Kept = nil, nil
	whole, part := newQuery(job.Spec{GPUs: 1}, m, held, in), newQuery(job.Spec{GPUs: 1, Share: 1}, m, held, in)
	rooms := map[gpu.UUID]Room{}
	for _, u := range whole.allUnits() {
		if whole.visibilityObstacle(u) != nil || u.mig == nil && u.dev.UsesMIG() {
			continue
		}

		use := whole.usageOf(u)
		r := Room{Whole: use.busy == nil, Free: whole.availableMemory(u, use)}
		if use := part.usageOf(u); use.busy == nil {
			r.Share = use.left
		}

		rooms[u.id()] = r
	}

	return rooms
}

// CapableDevices lists the devices, or slices, that could serve the spec if nothing else used them, in index order, of
// the vendor that Place would choose from. It is empty when the machine can never serve the spec, and for a CPU job.
func CapableDevices(spec job.Spec, m gpu.Machine, in Context) []gpu.UUID {
	ids := []gpu.UUID{}
	if spec.CPU {
		return ids
	}

	q := newQuery(spec, m, nil, in)
	if q.readNames() != nil {
		return ids
	}

	q.setAside()

	for _, u := range q.units {
		u.use = q.usageOf(u)
		u.reason = q.judgeUnit(u)
	}

	// Sets q.vendor.
	q.selectCandidates()

	for _, u := range q.units {
		if u.reason.Verdict != job.Never && q.isOfVendor(u) {
			ids = append(ids, u.id())
		}
	}

	if len(ids) < q.need || q.vendor == "" && (len(q.named) == 0 || spec.MIG != "") {
		return []gpu.UUID{}
	}

	return ids
}

// DeviceCount is how many devices, or slices, the spec asks for.
func DeviceCount(spec job.Spec) int {
	switch {
	case spec.CPU:
		return 0
	case spec.MIG != "":
		return 1
	case len(spec.Devices) > 0:
		return len(spec.Devices)
	}
	return spec.GPUs
}
