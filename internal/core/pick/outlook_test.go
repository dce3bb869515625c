package pick

import (
	"fmt"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// TestForesee: what becomes of a device that cannot be given now, from one reading and the present time.
func TestForesee(t *testing.T) {
	const now = int64(time.Hour)
	alive, zombie := gpu.Process{PID: 7, Memory: new(8 * gpu.GiB), UID: new(uint32(2)), Start: 1, State: "S"}, gpu.Process{PID: 8, Memory: new(8 * gpu.GiB), State: "Z"}
	small := gpu.Process{PID: 9, Memory: new(100 * gpu.MiB), State: "S"}
	share := job.Lease{ID: "s", UID: 1, Devices: []gpu.UUID{"GPU-0"}, Share: 8 * gpu.GiB, PID: 20}
	shared := gpu.Process{PID: 20, Memory: new(8 * gpu.GiB), UID: new(uint32(1)), State: "S"}
	contained := alive
	contained.Container = "abc"
	whole := job.Lease{ID: "w", UID: 1, Devices: []gpu.UUID{"GPU-0"}, PID: 30}
	recently := func(ago time.Duration) int64 { return now - int64(ago) }
	for _, c := range []struct {
		name    string
		used    gpu.Bytes
		ps      []gpu.Process
		held    []job.Lease
		ended   int64
		gone    []int
		change  func(*gpu.Device)
		blocked bool
		since   int64 // of the fading; 0: none
	}{
		{name: "free", ended: recently(time.Second)},
		{name: "memory of a lease that ended", used: 8 * gpu.GiB, ended: recently(2 * time.Second), since: recently(2 * time.Second)},
		{name: "the same, 10 s later", used: 8 * gpu.GiB, ended: recently(10 * time.Second), blocked: true},
		{name: "an end in the future", used: 8 * gpu.GiB, ended: now + 1, blocked: true},
		{name: "no lease ended", used: 8 * gpu.GiB, blocked: true},
		{name: "a foreign process that lives", used: 8 * gpu.GiB, ps: []gpu.Process{alive}, ended: recently(time.Second), blocked: true},
		{name: "and one that ends", used: 16 * gpu.GiB, ps: []gpu.Process{alive, zombie}, ended: recently(time.Second), blocked: true},
		{name: "a foreign process that ends", used: 8 * gpu.GiB, ps: []gpu.Process{zombie}, since: now},
		{name: "one that ended since the reading", used: 8 * gpu.GiB, ps: []gpu.Process{alive}, gone: []int{7}, since: now},
		{name: "the process of the lease that ended", used: 8 * gpu.GiB, ps: []gpu.Process{alive}, gone: []int{7}, ended: recently(time.Second), since: recently(time.Second)},
		{name: "beside a small neighbour", used: 9 * gpu.GiB, ps: []gpu.Process{zombie, small}, ended: recently(time.Second), since: recently(time.Second)},
		{name: "leased", used: 8 * gpu.GiB, ps: []gpu.Process{alive}, held: []job.Lease{whole}},
		{name: "a share", used: 8 * gpu.GiB, ps: []gpu.Process{shared}, held: []job.Lease{share}},
		{name: "a share and a foreign process", used: 16 * gpu.GiB, ps: []gpu.Process{shared, alive}, held: []job.Lease{share}, ended: recently(time.Second), blocked: true},
		{name: "a share and one that ends", used: 16 * gpu.GiB, ps: []gpu.Process{shared, zombie}, held: []job.Lease{share}},
		{name: "a share and memory of no process", used: 16 * gpu.GiB, ps: []gpu.Process{shared}, held: []job.Lease{share}},
		{name: "a share and a container, which may be its own", used: 16 * gpu.GiB, ps: []gpu.Process{shared, contained}, held: []job.Lease{share}},
		{name: "a share of whose processes nothing is known", used: 8 * gpu.GiB, ps: []gpu.Process{alive}, held: []job.Lease{{ID: "x", UID: 3, Devices: share.Devices, Share: 1}}},
		{name: "leased and drained", held: []job.Lease{whole}, change: func(d *gpu.Device) { d.Drained = "fan" }, blocked: true},
		{name: "leased and broken", held: []job.Lease{whole}, change: func(d *gpu.Device) { d.RemappedRows = &gpu.RemappedRows{Failed: true} }, blocked: true},
		{name: "leased and hot", held: []job.Lease{whole}, change: func(d *gpu.Device) { d.Temperature, d.TempSlowdown = new(95), new(90) }},
		{name: "hot after a lease", ended: recently(time.Second), change: func(d *gpu.Device) { d.Temperature, d.TempSlowdown = new(95), new(90) }},
	} {
		d := gpu.Device{UUID: "GPU-0", Vendor: gpu.NVIDIA, MemoryTotal: new(80 * gpu.GiB), MemoryUsed: new(c.used), Utilization: new(0.9)}
		if c.change != nil {
			c.change(&d)
		}
		m := gpu.Machine{Devices: []gpu.Device{d}}
		for _, p := range c.ps {
			p.GPU = "GPU-0"
			m.Processes = append(m.Processes, p)
		}
		ends := Ends{Now: now, Fading: 10 * time.Second, Leases: map[gpu.UUID]int64{"GPU-0": c.ended}, Gone: map[int]bool{}}
		for _, pid := range c.gone {
			ends.Gone[pid] = true
		}
		in := Context{Tolerate: DefaultTolerance(), Trees: map[string][]int{"s": {20}}}

		rooms := RoomByDevice(m, c.held, in)
		ForecastRooms(rooms, m, c.held, in, ends)
		got, want := rooms["GPU-0"], "nothing"
		if c.since != 0 {
			want = fmt.Sprint(c.since, c.since+int64(10*time.Second))
		}
		fading := "nothing"
		if got.Fading != nil {
			fading = fmt.Sprint(got.Fading.Since, got.Fading.Until)
		}
		if got.Blocked != c.blocked || fading != want {
			t.Errorf("%s: blocked %v, fading %s; want %v, %s", c.name, got.Blocked, fading, c.blocked, want)
		}
	}
}

// TestFades: which reasons are about to be over.
func TestFades(t *testing.T) {
	const now = int64(time.Hour)
	ends := Ends{Now: now, Fading: 10 * time.Second, Leases: map[gpu.UUID]int64{"GPU-0": now - int64(9*time.Second), "GPU-1": now - int64(10*time.Second)}, Gone: map[int]bool{8: true}}
	for _, c := range []struct {
		code string
		on   gpu.UUID
		pids []int
		want bool
	}{
		{"foreign-memory", "GPU-0", nil, true},
		{"memory", "GPU-0", nil, true},
		{"foreign-memory", "GPU-1", nil, false},
		{"foreign-memory", "GPU-2", nil, false},
		{"foreign-process", "GPU-0", []int{7}, false},
		{"foreign-process", "GPU-0", []int{7, 8}, true},
		{"foreign-process", "GPU-2", []int{8}, true},
		{"leased", "GPU-0", nil, false},
		{"drained", "GPU-0", []int{8}, false},
	} {
		r := job.Reason{UUID: c.on, Code: c.code}
		for _, pid := range c.pids {
			r.Processes = append(r.Processes, job.Blocker{PID: pid})
		}
		if got := ends.IsFading(r); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestForeseeInPool: inside a shared lease nothing else on the device counts, and nothing is foreseen.
func TestForeseeInPool(t *testing.T) {
	pool := job.Lease{ID: "p", UID: 1, Devices: []gpu.UUID{"GPU-0"}, Share: 8 * gpu.GiB}
	part := job.Lease{ID: "q", UID: 1, Devices: pool.Devices, Share: 4 * gpu.GiB, Parent: "p"}
	m := gpu.Machine{Devices: []gpu.Device{{UUID: "GPU-0", Vendor: gpu.NVIDIA, MemoryTotal: new(80 * gpu.GiB), MemoryUsed: new(20 * gpu.GiB)}}}
	m.Processes = []gpu.Process{{PID: 7, GPU: "GPU-0", Memory: new(20 * gpu.GiB), UID: new(uint32(2))}}
	held, in := []job.Lease{pool, part}, Context{Tolerate: DefaultTolerance(), Parent: &pool, Trees: map[string][]int{"p": {1}, "q": {2}}}
	rooms := RoomByDevice(m, held, in)
	ForecastRooms(rooms, m, held, in, Ends{Now: 1})
	if r := rooms["GPU-0"]; r.Whole || r.Blocked || r.Fading != nil {
		t.Errorf("%+v", r)
	}
}
