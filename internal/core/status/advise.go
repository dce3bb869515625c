package status

import (
	"fmt"
	"slices"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/option"
	"gpuard/internal/core/pick"
)

// AddRemedies adds remedies, in words for the user uid, for devices of m that are not healthy and for leases whose
// command has ended. Users who do not own such a lease have to ask its owner.
func (r *Report) AddRemedies(m gpu.Machine, leases []job.Lease, uid uint32) {
	for i := range r.Devices {
		d := &r.Devices[i]
		j := slices.IndexFunc(m.Devices, func(o gpu.Device) bool { return o.Vendor == d.Vendor && o.Index == d.Index })
		if j >= 0 {
			d.Remedy = pick.CureText(m, m.Devices[j], pick.Context{Now: r.Now, UID: uid})
		}

		addLeaseRemedies(d.Leases, m, leases, uid)

		for k := range d.MIG {
			d.MIG[k].Remedy = d.Remedy
			addLeaseRemedies(d.MIG[k].Leases, m, leases, uid)
		}
	}
}

// AddUsage adds the lease of each process, and the memory that each lease uses on each of its devices; lease maps a
// process to its lease. A process that it does not map is foreign, whoever owns it: being of the same user proves
// nothing.
func (r *Report) AddUsage(lease map[int]string) {
	for i := range r.Devices {
		d := &r.Devices[i]
		d.addUsage(lease, nil)

		for j := range d.MIG {
			d.MIG[j].addUsage(lease, d.Leases)
		}
	}
}

// addUsage is AddUsage for one device; around are the leases of the GPU that a slice is of.
func (d *Device) addUsage(lease map[int]string, around []Lease) {
	for i := range d.Processes {
		p := &d.Processes[i]
		p.Lease = lease[p.PID]
		its := func(l Lease) bool { return l.ID == p.Lease }
		p.Foreign = p.Lease == "" || !slices.ContainsFunc(d.Leases, its) && !slices.ContainsFunc(around, its)
	}
	for i := range d.Leases {
		l := &d.Leases[i]
		var sum gpu.Bytes
		seen, known := false, true
		for _, p := range d.Processes {
			if lease[p.PID] != l.ID {
				continue
			}
			seen = true
			known = known && p.Memory != nil
			if known {
				sum += *p.Memory
			}
		}

		if seen && known {
			// An empty list does not prove that there are no processes.
			l.Memory = new(sum)
		}
	}
}

func addLeaseRemedies(shown []Lease, m gpu.Machine, leases []job.Lease, uid uint32) {
	for i := range shown {
		l := &shown[i]
		j := slices.IndexFunc(leases, func(o job.Lease) bool { return o.ID == l.ID })
		if !l.Ended || j < 0 {
			continue
		}

		do := option.Sprintf("end it: {gpuard release} %s", l.ID)
		if kill := leases[j].KillText(m); kill != "" {
			do = "end what is left of it: " + kill
		}

		if p := leases[j].StoppedHolder(); p != nil {
			do = fmt.Sprintf("continue that: kill -CONT %d; or %s", p.PID, do)
		}

		l.Remedy = do
		if uid != 0 && uid != leases[j].UID {
			l.Remedy = "ask " + l.User + " to " + do
		}
	}
}

// Computes reports whether a process is on the device that does not serve a display.
func (d *Device) Computes() bool {
	return slices.ContainsFunc(d.Processes, func(p Process) bool { return !p.Display && !p.Ended })
}

// AddComputeTime adds the processor time of the leases on whose devices no process computes; read reads that of the
// processes of one lease.
func (r *Report) AddComputeTime(read func(lease string) *time.Duration) {
	busy := map[string]bool{}
	note := func(d *Device) {
		for _, l := range d.Leases {
			busy[l.ID] = busy[l.ID] || d.Unlisted != "" || d.Computes()
		}
	}

	for i := range r.Devices {
		note(&r.Devices[i])
		for j := range r.Devices[i].MIG {
			note(&r.Devices[i].MIG[j])
		}
	}

	known := map[string]*time.Duration{}
	r.eachLease(func(l *Lease) {
		if busy[l.ID] {
			return
		}
		if _, done := known[l.ID]; !done {
			known[l.ID] = read(l.ID)
		}
		l.Computed = known[l.ID]
	})
}
