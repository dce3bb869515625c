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
)

// Generation counts claims, observed ends of leases, and devices that were taken out of use.
type Generation uint64

// Change is when something last happened to a device.
type Change struct {
	Generation Generation `json:"generation"`
	Ended      int64      `json:"ended,omitempty"` // CLOCK_BOOTTIME in ns at which a lease on it was seen to have ended
}

// state is the content of the lock file. Everybody may write it, so it is only a hint: wrong content
// can cause a reading more or less, or a short wait, never a second holder.
type state struct {
	Generation Generation            `json:"generation"`
	Boot       string                `json:"boot"`
	Devices    map[gpu.UUID]Change   `json:"devices"`
	Live       map[string][]gpu.UUID `json:"live"` // "folder/id" to devices, as of the last claim
	Turn       queue.Turn            `json:"turn,omitzero"`
}

// forget drops what is said of tickets that are gone: whatever somebody writes there, it stays small.
func forget(t *queue.Turn, tickets []job.Ticket) {
	live := make(map[string]bool, len(tickets))
	for i := range tickets {
		live[tickets[i].Key()] = true
	}
	for _, said := range []map[string]int64{t.Next, t.Passed, t.Unsure} {
		maps.DeleteFunc(said, func(key string, _ int64) bool { return !live[key] })
	}
	if len(t.Reserved) > devicesRecorded || len(t.Rest) > devicesRecorded { // no queue leaves so many
		t.Reserved, t.Rest = nil, nil
	}
}

// readState returns false when the record was lost. A new count begins at the clock's nanoseconds: it is above every
// earlier one of this boot, so that a change recorded in it is newer than any reading.
func (f *Folder) readState(boot string) (state, bool) {
	now := Generation(bootTime())
	fresh := state{Boot: boot, Generation: now, Devices: map[gpu.UUID]Change{}, Live: map[string][]gpu.UUID{}}
	buf := make([]byte, f.lock.size()) // the whole of stateSize would cost more than reading it
	n, err := f.lock.file.Load().ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) || n == len(buf) {
		return fresh, false
	}
	var s state
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

func (f *Folder) writeState(s state) error {
	forgetOldest(s.Devices) // they come and go with MIG layouts, and anybody may have written some
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if len(data) >= stateSize {
		data = []byte("{}") // lost, which costs a reading more; leases are never lost with it
	}
	file := f.lock.file.Load()
	if _, err = file.WriteAt(data, 0); err == nil {
		err = file.Truncate(int64(len(data)))
	}
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", f.lock.path, err)
	}
	return nil
}

func forgetOldest(devices map[gpu.UUID]Change) {
	if len(devices) <= devicesRecorded {
		return
	}
	ids := slices.SortedFunc(maps.Keys(devices), func(a, b gpu.UUID) int {
		return cmp.Compare(devices[b].Generation, devices[a].Generation)
	})
	for _, id := range ids[devicesRecorded/2:] {
		delete(devices, id)
	}
}

// observe moves s on to the leases that are alive now: every one that vanished is an end.
func (s *state) observe(live []job.Lease, now int64) {
	next := make(map[string][]gpu.UUID, len(live))
	for i := range live {
		k := key(&live[i])
		next[k] = live[i].Devices
		if live[i].Unreadable {
			next[k] = s.Live[k]
		}
	}
	for k, devices := range s.Live {
		if _, still := next[k]; still {
			continue
		}
		s.ended(devices, now)
	}
	s.Live = next
}

func (s *state) ended(devices []gpu.UUID, now int64) {
	s.Generation++
	for _, d := range devices {
		s.Devices[d] = Change{Generation: s.Generation, Ended: now}
	}
}

// changed records that devices are not as somebody read them before.
func (s *state) changed(devices []gpu.UUID) {
	s.Generation++
	for _, d := range devices {
		c := s.Devices[d]
		c.Generation = s.Generation
		s.Devices[d] = c
	}
}

// claimed records a new lease.
func (s *state) claimed(l *job.Lease) {
	s.changed(l.Devices)
	s.Live[key(l)] = l.Devices
}

// key is the same in every user namespace, unlike the owner's uid.
func key(l *job.Lease) string { return l.Folder + "/" + l.ID }

// bootTime is CLOCK_BOOTTIME in nanoseconds: it goes on during suspend and nobody can set it.
func bootTime() int64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return ts.Nano()
}
