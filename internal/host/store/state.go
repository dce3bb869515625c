package store

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/queue"
	"gpuard/internal/host/timens"
)

// Generation counts claims, observed ends of leases, and devices that were taken out of use.
type Generation uint64

// Change is when something last happened to a device.
type Change struct {
	Generation Generation `json:"generation"`
	// CLOCK_BOOTTIME in ns when the end of a lease on it was noticed.
	Ended int64 `json:"ended,omitempty"`
}

// lockState is the content of the lock file. All users may write it, so it is only a hint: wrong content can cause one
// reading of the machine too many or too few, or a short wait, but never a second holder.
type lockState struct {
	Generation Generation          `json:"generation"`
	Boot       string              `json:"boot"`
	Devices    map[gpu.UUID]Change `json:"devices"`
	// "folder/id" to devices, as of the last claim.
	Live map[string][]gpu.UUID `json:"live"`
	Turn queue.Turn            `json:"turn,omitzero"`
}

// forgetTickets drops the records of tickets that are gone, which bounds the size whatever another process wrote.
func forgetTickets(t *queue.Turn, tickets []job.Ticket) {
	live := make(map[string]bool, len(tickets))
	for i := range tickets {
		live[tickets[i].Key()] = true
	}
	for _, said := range []map[string]int64{t.Next, t.Passed, t.Unsure} {
		maps.DeleteFunc(said, func(key string, _ int64) bool { return !live[key] })
	}
	if len(t.Reserved) > maxDevicesRecorded || len(t.Rest) > maxDevicesRecorded {
		// The queue never writes so many.
		t.Reserved, t.Rest = nil, nil
	}
}

// readState returns false if the record was lost. A new count starts at the nanoseconds since boot: that is above every
// earlier count of this boot, so a change that is recorded with it is newer than any reading.
func (f *Folder) readState(boot string) (lockState, bool) {
	now := Generation(bootTime())
	fresh := lockState{Boot: boot, Generation: now, Devices: map[gpu.UUID]Change{}, Live: map[string][]gpu.UUID{}}

	// A buffer of maxStateSize would cost more than the read.
	buf := make([]byte, f.lock.readSize())
	n, err := f.lock.file.Load().ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) || n == len(buf) {
		return fresh, false
	}

	var s lockState
	if n == 0 || json.Unmarshal(buf[:n], &s) != nil || s.Boot != boot || s.Generation > now {
		return fresh, n == 0
	}

	if s.Devices == nil {
		s.Devices = fresh.Devices
	}

	if s.Live == nil {
		s.Live = fresh.Live
	}

	return s, true
}

func (f *Folder) writeState(s lockState) error {
	// MIG layouts change them, and any user may have written some.
	forgetOldest(s.Devices)
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}

	if len(data) >= maxStateSize {
		// A lost record costs one more reading of the machine; the leases are not in it.
		data = []byte("{}")
	}

	file := f.lock.file.Load()
	_, err = file.WriteAt(data, 0)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", f.lock.path, err)
	}

	err = file.Truncate(int64(len(data)))
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", f.lock.path, err)
	}

	return nil
}

func forgetOldest(devices map[gpu.UUID]Change) {
	if len(devices) <= maxDevicesRecorded {
		return
	}
	ids := slices.SortedFunc(maps.Keys(devices), func(a, b gpu.UUID) int {
		return cmp.Compare(devices[b].Generation, devices[a].Generation)
	})
	for _, id := range ids[maxDevicesRecorded/2:] {
		delete(devices, id)
	}
}

// updateLive updates s to the leases that are alive now, and records the end of each one that is gone.
func (s *lockState) updateLive(live []job.Lease, now int64) {
	next := make(map[string][]gpu.UUID, len(live))
	for i := range live {
		k := leaseKey(&live[i])
		next[k] = live[i].Devices
		if live[i].Unreadable {
			next[k] = s.Live[k]
		}
	}
	for k, devices := range s.Live {
		if _, still := next[k]; still {
			continue
		}
		s.recordEnd(devices, now)
	}
	s.Live = next
}

func (s *lockState) recordEnd(devices []gpu.UUID, now int64) {
	s.Generation++
	for _, d := range devices {
		s.Devices[d] = Change{Generation: s.Generation, Ended: now}
	}
}

// recordChange records that earlier readings of the devices are stale.
func (s *lockState) recordChange(devices []gpu.UUID) {
	s.Generation++
	for _, d := range devices {
		c := s.Devices[d]
		c.Generation = s.Generation
		s.Devices[d] = c
	}
}

// recordClaim records a new lease.
func (s *lockState) recordClaim(l *job.Lease) {
	s.recordChange(l.Devices)
	s.Live[leaseKey(l)] = l.Devices
}

// leaseKey identifies a lease. Unlike the uid of the owner, the folder is the same in every user namespace.
func leaseKey(l *job.Lease) string { return l.Folder + "/" + l.ID }

// bootTime is CLOCK_BOOTTIME of the machine in nanoseconds, whatever the time namespace: it includes the time of
// suspend and cannot be set.
func bootTime() int64 {
	var ts unix.Timespec
	shift, err := timens.Offset("/proc", timens.Boottime)
	if err != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}

	return ts.Nano() - int64(shift)
}
