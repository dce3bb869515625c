package pick

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// counts lists the leases that count on a device for the caller: not those that the caller runs inside, not those
// outside its allocation, and not sub-leases of another lease that counts and has the same owner and device.
func (p puzzle) counts(d *gpu.Device, id gpu.UUID) (out []job.Lease, parts map[string][]job.Lease) {
	var all []job.Lease
	for _, l := range p.held {
		ancestor := p.in.Parent != nil && l.ID == p.in.Parent.ID
		if touches := l.Holds(id) || l.Holds(d.UUID); touches && !ancestor && (p.in.Allocation == "" || l.Allocation == p.in.Allocation) {
			all = append(all, l)
		}
	}
	parts = map[string][]job.Lease{}
	for _, l := range all {
		i := slices.IndexFunc(all, func(top job.Lease) bool { return l.Parent == top.ID && l.UID == top.UID })
		if i < 0 {
			out = append(out, l)
			continue
		}
		parts[all[i].ID] = append(parts[all[i].ID], l)
	}
	return out, parts
}

func (p puzzle) belongs(proc gpu.Process, l job.Lease) bool {
	return proc.UID != nil && *proc.UID == l.UID && slices.Contains(p.in.Trees[l.ID], proc.PID)
}

// checkShare checks the formula directly: what leases promise or use, what others use, the reserve and the new share
// fit into the device together, and no lease there is exclusive.
func (p puzzle) checkShare(t *testing.T, d *gpu.Device, slice *gpu.MIGDevice) {
	t.Helper()
	id, total, used := d.UUID, d.MemoryTotal, d.MemoryUsed
	var driver gpu.Bytes
	if d.MemoryReserved != nil {
		driver = *d.MemoryReserved
	}
	if slice != nil {
		id, total, used, driver = slice.UUID, slice.MemoryTotal, slice.MemoryUsed, 0
	}
	if total == nil || used == nil {
		t.Fatalf("a share of %s, of which too little is known", id)
	}
	room := *total - driver
	aside := max(512*gpu.MiB, room/20)
	leases, parts := p.counts(d, id)
	var promised, theirs gpu.Bytes
	for _, l := range leases {
		if l.Share == 0 || !l.Holds(id) {
			t.Errorf("a share of %s, which lease %s has alone", id, l.ID)
		}
		var uses gpu.Bytes
		for _, proc := range p.machine.ProcessesOn(id) {
			if proc.Memory != nil && slices.ContainsFunc(append(parts[l.ID], l), func(l job.Lease) bool { return p.belongs(proc, l) }) {
				uses += *proc.Memory
			}
		}
		promised += max(l.Share, uses)
	}
	for _, proc := range p.machine.ProcessesOn(id) {
		if proc.Memory != nil && slices.ContainsFunc(p.held, func(l job.Lease) bool { return p.belongs(proc, l) }) {
			theirs += *proc.Memory
		}
	}
	foreign := *used - theirs
	if slice != nil || d.MemoryReserved == nil {
		foreign -= aside // such drivers count their own memory as used
	}
	if promised+max(0, foreign)+aside+p.spec.Share > room {
		t.Errorf("%s of %s: %s promised, %s foreign, %s aside and a share of %s", id, room, promised, foreign, aside, p.spec.Share)
	}
}

// checkPool checks the same inside a shared lease: only its promise can be given, and a request without a size needs
// that no sub-lease is there.
func (p puzzle) checkPool(t *testing.T, id gpu.UUID, pool job.Lease) {
	t.Helper()
	if !pool.Holds(id) && !pool.Holds(parentOf(p.machine, id)) {
		t.Errorf("%s is outside of lease %s", id, pool.ID)
	}
	var promised gpu.Bytes
	for _, l := range p.held {
		if l.Parent != pool.ID || l.UID != pool.UID || !l.Holds(id) {
			continue
		}
		if promised += l.Share; l.Share == 0 || p.spec.Share == 0 {
			t.Errorf("%s is held by %s, and asked for whole by one of the two", id, l.ID)
		}
	}
	if promised+p.spec.Share > pool.Share {
		t.Errorf("%s: %s of %s are promised, and then %s", id, promised, pool.Share, p.spec.Share)
	}
}

func parentOf(m gpu.Machine, id gpu.UUID) gpu.UUID {
	d, _, _ := m.FindDevice(id)
	return d.UUID
}

// checkRooms compares Rooms and Servers with what Place says of each device alone.
func (p puzzle) checkRooms(t *testing.T, refusal *job.Refusal) {
	t.Helper()
	in := p.in
	in.Hidden, in.Last = nil, nil
	gives := func(id gpu.UUID, share gpu.Bytes) bool {
		_, refusal := Place(job.Spec{Devices: []string{string(id)}, Share: share}, p.machine, p.held, in)
		return refusal == nil
	}
	waits := p.in // waiting jobs do not matter
	waits.Kept = map[gpu.UUID]job.Ticket{}
	for _, d := range p.machine.Devices {
		waits.Kept[d.UUID] = job.Ticket{UID: 7}
	}
	rooms := RoomByDevice(p.machine, p.held, waits)
	for _, d := range p.machine.Devices {
		ids := []gpu.UUID{d.UUID}
		for _, s := range d.MIG {
			ids = append(ids, s.UUID)
		}
		for _, id := range ids {
			r := rooms[id]
			if r.Whole != gives(id, 0) {
				t.Errorf("whole room of %s is %v, Place says otherwise", id, r.Whole)
			}
			switch {
			case r.Share == nil:
				if gives(id, 1) {
					t.Errorf("no room for a share on %s, but Place gives one", id)
				}
			case !gives(id, *r.Share) || gives(id, *r.Share+1):
				t.Errorf("room for %s on %s, Place says otherwise", *r.Share, id)
			}
		}
	}
	servers := CapableDevices(p.spec, p.machine, p.in)
	if never := refusal != nil && refusal.Never; DeviceCount(p.spec) > 0 && never != (len(servers) < DeviceCount(p.spec)) {
		t.Errorf("never is %v, but %v could serve", never, servers)
	}
	if len(servers) > 0 && len(servers) < DeviceCount(p.spec) {
		t.Errorf("%v are too few, and could serve all the same", servers)
	}
}

// sharedPuzzle is a puzzle about shares on a small busy machine: process trees that use more than their promise,
// processes of others in them, leases that claim a wrong parent, exclusive leases.
func sharedPuzzle(r *rand.Rand) puzzle {
	p := puzzle{in: Context{Now: now, UID: 1000, Tolerate: DefaultTolerance(), Trees: map[string][]int{}}}
	for i := range 1 + r.IntN(3) {
		d := gpu.Device{Index: i, Vendor: gpu.NVIDIA, UUID: gpu.UUID(fmt.Sprintf("GPU-%02d-aaaa", i)), PCI: fmt.Sprintf("0000:%02x:00.0", i),
			MemoryTotal: new(24 * gpu.GiB), MemoryUsed: new(gpu.Bytes(r.IntN(3)) * 300 * gpu.MiB), Links: make([]gpu.Link, 3)}
		if r.IntN(2) == 0 {
			d.MemoryReserved = new(300 * gpu.MiB)
		}
		if r.IntN(6) == 0 {
			d.MIG = []gpu.MIGDevice{{UUID: gpu.UUID(fmt.Sprintf("MIG-%d", i)), Profile: "1g.12gb", MemoryTotal: new(12 * gpu.GiB), MemoryUsed: new(gpu.Bytes(0))}}
		}
		p.machine.Devices = append(p.machine.Devices, d)
	}
	for i := range r.IntN(5) {
		d := &p.machine.Devices[r.IntN(len(p.machine.Devices))]
		id, used := d.UUID, d.MemoryUsed
		if len(d.MIG) > 0 && r.IntN(2) == 0 {
			id, used = d.MIG[0].UUID, d.MIG[0].MemoryUsed
		}
		proc := gpu.Process{PID: 100 + i, GPU: id, User: "bob", UID: new(uint32(1000 + r.IntN(2))), Kind: gpu.ComputeProcess, Memory: new(gpu.Bytes(r.IntN(8)) * gpu.GiB)}
		*used += *proc.Memory
		p.machine.Processes = append(p.machine.Processes, proc)
	}
	for i := range r.IntN(4) {
		d := p.machine.Devices[r.IntN(len(p.machine.Devices))]
		l := job.Lease{ID: fmt.Sprintf("l%d", i), UID: uint32(1000 + r.IntN(2)), Devices: []gpu.UUID{d.UUID}, Share: gpu.Bytes(1+r.IntN(8)) * gpu.GiB}
		if len(d.MIG) > 0 && r.IntN(2) == 0 {
			l.Devices[0] = d.MIG[0].UUID
		}
		if r.IntN(8) == 0 {
			l.Share = 0
		}
		if i > 0 && r.IntN(3) == 0 {
			l.Parent = "l0"
		}
		p.held = append(p.held, l)
		p.in.Trees[l.ID] = []int{100 + r.IntN(5), 100 + r.IntN(5)}
	}
	if len(p.held) > 0 && r.IntN(4) == 0 {
		p.in.Parent = &p.held[0]
	}
	p.spec = job.Spec{GPUs: 1 + r.IntN(8)/7, Share: gpu.Bytes(r.IntN(8)) * gpu.GiB}
	if d := p.machine.Devices[0]; len(d.MIG) > 0 && r.IntN(2) == 0 {
		p.spec.GPUs, p.spec.Devices = 0, []string{string(d.MIG[0].UUID)}
	}
	return p
}

func TestSharesKeepTheirPromises(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(11, 11))
	plans, inside := 0, 0
	for i := range 1500 {
		p := sharedPuzzle(r)
		p.check(t)
		if plan, refusal := Place(p.spec, p.machine, p.held, p.in); refusal == nil && plan.Share > 0 {
			plans++
			inside += boolToInt(p.in.Parent != nil)
		}
		if t.Failed() {
			t.Fatalf("puzzle %d: %+v", i, p)
		}
	}
	if plans < 500 || inside < 50 {
		t.Errorf("only %d of 1500 puzzles gave a share, %d inside a lease: they prove little", plans, inside)
	}
}
