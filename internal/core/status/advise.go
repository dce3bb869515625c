package status

import (
	"fmt"
	"slices"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
)

// Advise adds remedies, in words for the user uid, for devices of m that are not healthy and for leases whose command
// has ended. Users who do not own such a lease have to ask its owner.
func (s *Report) Advise(m gpu.Machine, leases []job.Lease, uid uint32) {
	for i := range s.Devices {
		d := &s.Devices[i]
		j := slices.IndexFunc(m.Devices, func(o gpu.Device) bool { return o.Vendor == d.Vendor && o.Index == d.Index })
		if j >= 0 {
			d.Remedy = pick.Cure(m, m.Devices[j], pick.Context{Now: s.Now, UID: uid})
		}
		advise(d.Leases, leases, uid)
		for k := range d.MIG {
			d.MIG[k].Remedy = d.Remedy
			advise(d.MIG[k].Leases, leases, uid)
		}
	}
}

// Using adds the memory that each lease uses on each of its devices; lease maps a process to its lease.
func (s *Report) Using(lease map[int]string) {
	for i := range s.Devices {
		s.Devices[i].using(lease)
		for j := range s.Devices[i].MIG {
			s.Devices[i].MIG[j].using(lease)
		}
	}
}

func (d *Device) using(lease map[int]string) {
	for i := range d.Leases {
		l := &d.Leases[i]
		var sum gpu.Bytes
		seen, known := false, true
		for _, p := range d.Processes {
			if lease[p.PID] != l.ID {
				continue
			}
			seen = true
			if known = known && p.Memory != nil; known {
				sum += *p.Memory
			}
		}
		if seen && known { // an empty list does not prove that there are no processes
			l.Memory = new(sum)
		}
	}
}

func advise(shown []Lease, leases []job.Lease, uid uint32) {
	for i := range shown {
		l := &shown[i]
		j := slices.IndexFunc(leases, func(o job.Lease) bool { return o.ID == l.ID })
		if !l.Ended || j < 0 {
			continue
		}
		do := "end it: gpuard release " + l.ID
		if p := leases[j].Stuck(); p != nil {
			do = fmt.Sprintf("continue that: kill -CONT %d; or %s", p.PID, do)
		}
		if l.Remedy = do; uid != 0 && uid != leases[j].UID {
			l.Remedy = "ask " + l.User + " to " + do
		}
	}
}
