package store

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// Generation counts claims and observed ends of leases.
type Generation uint64

// Change is when something last happened to a device.
type Change struct {
	Generation Generation `json:"generation"`
	Ended      int64      `json:"ended,omitempty"` // CLOCK_BOOTTIME in ns at which a lease on it was seen to have ended
}

// state is the content of the lock file. Everybody may write it, so it is only a hint: wrong content
// can cause a reading more or a short wait, never a second holder.
type state struct {
	Generation Generation            `json:"generation"`
	Boot       string                `json:"boot"`
	Devices    map[gpu.UUID]Change   `json:"devices"`
	Live       map[string][]gpu.UUID `json:"live"` // "uid/id" to devices, as of the last claim
}

func (f *Folder) readState(boot string) (state, bool) {
	fresh := state{Boot: boot, Devices: map[gpu.UUID]Change{}, Live: map[string][]gpu.UUID{}}
	buf := make([]byte, entrySize)
	n, err := unix.Pread(int(f.lock.file.Fd()), buf, 0)
	if err != nil || n == len(buf) {
		return fresh, false
	}
	var s state
	if n == 0 || json.Unmarshal(buf[:n], &s) != nil || s.Boot != boot {
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
	if len(s.Devices) > 1024 { // devices come and go with MIG layouts; the oldest hints are worth nothing
		maps.DeleteFunc(s.Devices, func(_ gpu.UUID, c Change) bool { return c.Generation+1024 < s.Generation })
	}
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	fd := int(f.lock.file.Fd())
	n, err := unix.Pwrite(fd, data, 0)
	if err == nil && n != len(data) {
		err = unix.ENOSPC
	}
	if err == nil {
		err = unix.Ftruncate(fd, int64(len(data)))
	}
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", f.lock.path, err)
	}
	return nil
}

// observe moves s on to the leases that are alive now: every one that vanished is an end.
func (s *state) observe(live []job.Lease, now int64) {
	next := make(map[string][]gpu.UUID, len(live))
	for i := range live {
		next[key(&live[i])] = live[i].Devices
	}
	for k, devices := range s.Live {
		if _, still := next[k]; still {
			continue
		}
		s.Generation++
		for _, d := range devices {
			s.Devices[d] = Change{Generation: s.Generation, Ended: now}
		}
	}
	s.Live = next
}

// claimed records a new lease.
func (s *state) claimed(l *job.Lease) {
	s.Generation++
	for _, d := range l.Devices {
		c := s.Devices[d]
		c.Generation = s.Generation
		s.Devices[d] = c
	}
	s.Live[key(l)] = l.Devices
}

func key(l *job.Lease) string { return strconv.FormatUint(uint64(l.UID), 10) + "/" + l.ID }

// bootTime is CLOCK_BOOTTIME in nanoseconds: it goes on during suspend and nobody can set it.
func bootTime() int64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return ts.Nano()
}
