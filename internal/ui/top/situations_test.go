package top

import (
	"context"
	"fmt"
	"math"
	"time"

	"gpuard/internal/app/observe"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/health"
	"gpuard/internal/core/status"
	"gpuard/internal/core/trend"
)

// inventedNow is when the screens of the tests are drawn.
var inventedNow = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// observedMachine invents what the observer would see.
type observedMachine struct {
	report  status.Report
	ended   []trend.EndedLease
	minutes []trend.Minute
	workers map[string][]observe.Worker
	queue   queueSeen
}

// newObservedMachine is a lab with idle GPUs.
func newObservedMachine(count int, name string, size gpu.Bytes) *observedMachine {
	l := &observedMachine{workers: map[string][]observe.Worker{}}
	l.report = status.Report{Now: inventedNow, Taken: inventedNow, Driver: "550.54.14", Source: "nvml", Devices: []status.Device{}}
	for i := range count {
		l.report.Devices = append(l.report.Devices, status.Device{Index: i, UUID: gpu.UUID(fmt.Sprintf("GPU-%08d", i)), Name: name, Vendor: gpu.NVIDIA, Use: status.Free, Health: health.OK,
			MemoryTotal: new(size), MemoryUsed: new(500 * gpu.MiB), Utilization: new(0.0), Temperature: new(31 + i), Power: new(62.0 + float64(i)), PowerLimit: new(400.0), Margin: new(50)})
	}
	for i := range 240 { // the last four hours, idle
		m := trend.Minute{At: inventedNow.Add(time.Duration(i-240) * time.Minute), Devices: map[gpu.UUID]trend.Mean{}}
		for k := range l.report.Devices {
			m.Devices[l.report.Devices[k].UUID] = trend.Mean{Load: new(0.0)}
		}
		l.minutes = append(l.minutes, m)
	}
	return l
}

// addLease gives devices to a job since so many minutes, with a load and a part of the memory.
func (l *observedMachine) addLease(user, command string, since int, load, part float64, devices ...int) *status.Lease {
	id := fmt.Sprintf("k%c%02d", 'a'+len(l.workers)%26, since%100)
	began := inventedNow.Add(-time.Duration(since) * time.Minute)
	pid := 4000 + 10*len(l.workers)
	var last *status.Lease
	for _, i := range devices {
		d := &l.report.Devices[i]
		used := gpu.Bytes(part * float64(*d.MemoryTotal))
		d.Use, d.Reason = status.Leased, fmt.Sprintf("leased as %s by %s (%s, PID %d)", id, user, command, pid)
		d.MemoryUsed, d.Utilization, d.Temperature, d.Power = new(used+500*gpu.MiB), new(load), new(38+int(45*load)), new(70+300*load)
		d.Leases = append(d.Leases, status.Lease{ID: id, User: user, Command: command, PID: pid, Since: &began, Memory: &used})
		last = &d.Leases[len(d.Leases)-1]
		l.setLoadCurve(i, since, 0, load)
	}
	l.workers[id] = []observe.Worker{{PID: pid, Start: 1, Command: "python3 " + command, CPU: time.Hour, Memory: 6 * gpu.GiB}, {PID: pid + 1, Parent: pid, Depth: 1, Start: 1, Command: "pt_data_worker", CPU: time.Hour, Memory: 2 * gpu.GiB}}
	return last
}

// addEndedLease says that a job had a device from and to so many minutes ago.
func (l *observedMachine) addEndedLease(user, command string, from, to int, load float64, device int) {
	d := &l.report.Devices[device]
	l.ended = append(l.ended, trend.EndedLease{Lease: fmt.Sprintf("e%03d", len(l.ended)), User: user, Command: command, Since: inventedNow.Add(-time.Duration(from) * time.Minute), Until: inventedNow.Add(-time.Duration(to) * time.Minute), Devices: []trend.DeviceUse{{UUID: d.UUID, Index: device}}})
	l.setLoadCurve(device, from, to, load)
}

// setLoadCurve is the load of a device in so many minutes.
func (l *observedMachine) setLoadCurve(device, from, to int, load float64) {
	for i := range l.minutes {
		ago := len(l.minutes) - i
		if ago <= from && ago > to {
			swing := load + 0.1*math.Sin(float64(i)/7)
			l.minutes[i].Devices[l.report.Devices[device].UUID] = trend.Mean{Load: new(max(0, min(1, swing)))}
		}
	}
}

// addWaiting adds a request for so many devices.
func (l *observedMachine) addWaiting(user, command string, since, count int) *status.Waiting {
	w := status.Waiting{Place: len(l.report.Waiting) + 1, ID: fmt.Sprintf("t%03d", len(l.report.Waiting)), User: user, Command: command, PID: 9000 + len(l.report.Waiting), Count: count, Since: new(inventedNow.Add(-time.Duration(since) * time.Minute)), Why: "0 of 8 that it can use are free; GPU 0: leased as kq03 by alice (train.py, PID 4000); GPU 1: leased as kq03 by alice (train.py, PID 4000); and 6 more"}
	for i := range l.report.Devices {
		w.Devices = append(w.Devices, l.report.Devices[i].UUID)
	}
	l.report.Waiting = append(l.report.Waiting, w)
	return &l.report.Waiting[len(l.report.Waiting)-1]
}

// namedMachine is a lab by its name: "idle", "day", "crowd", "trouble", "laptop".
func namedMachine(name string) *observedMachine {
	switch name {
	case "laptop":
		l := newObservedMachine(1, "NVIDIA GeForce RTX 4070 Laptop GPU", 8*gpu.GiB)
		l.addLease("zoe", "notebook", 42, 0.31, 0.6, 0).Line = "jupyter lab --no-browser"
		return l
	case "idle":
		return newObservedMachine(8, "NVIDIA A100-SXM4-80GB", 80*gpu.GiB)
	}
	l := newObservedMachine(8, "NVIDIA A100-SXM4-80GB", 80*gpu.GiB)
	addNormalDay(l)
	switch name {
	case "crowd":
		for i := range 100 {
			l.addWaiting([]string{"dave", "erin", "frank", "zoe"}[i%4], fmt.Sprintf("sweep-%02d", i), 100-i, 1+i%3/2)
		}
	case "trouble":
		addTroubles(l)
	}
	return l
}

// addNormalDay is a normal day: six users, two GPUs free.
func addNormalDay(l *observedMachine) {
	l.addLease("alice", "bert-large", 140, 0.93, 0.78, 0, 1)
	for i := range 2 {
		l.report.Devices[i].Leases[0].Asked = 280 * time.Minute
	}
	l.addLease("bob", "resnet.py", 35, 0.62, 0.3, 2)
	l.addLease("zoe", "train.py", 75, 0.88, 0.55, 3).Line = "python3 train.py --lr 3e-4 --epochs 90"
	l.addLease("carol", "infer", 200, 0.04, 0.12, 4)
	share := gpu.Bytes(20 * gpu.GiB)
	for _, s := range []struct {
		user, command string
		part          float64
	}{{"erin", "notebook", 0.2}, {"dave", "vllm", 0.22}} {
		x := l.addLease(s.user, s.command, 60, 0.4, s.part, 5)
		x.Share, x.Quota = share, "watch"
	}
	l.report.Devices[5].Use, l.report.Devices[5].MemoryUsed = status.Shared, new(34*gpu.GiB)
	l.addEndedLease("alice", "bert-small", 230, 150, 0.7, 0)
	l.addEndedLease("frank", "tune", 180, 60, 0.95, 2)
	l.addEndedLease("bob", "resnet.py", 220, 100, 0.5, 6)
	l.addEndedLease("carol", "gan.py", 90, 20, 0.8, 7)
	l.addWaiting("zoe", "eval.py", 25, 1)
	l.addWaiting("dave", "finetune", 12, 4).Time = time.Hour
	l.addWaiting("frank", "tune", 3, 2)
	for i := range l.report.Waiting {
		l.report.Waiting[i].Devices = l.report.Waiting[i].Devices[:4]
	}
}

// addTroubles is a day on which much goes wrong.
func addTroubles(l *observedMachine) {
	d := l.report.Devices
	d[2].Health, d[2].Throttled, d[2].Why, d[2].Temperature, d[2].Margin = health.Degraded, []string{"hw_thermal_slowdown"}, []string{"slowed down by its own hardware because of heat"}, new(92), new(0)
	d[4].Drained, d[4].Use = "new fan (root, since 11:20)", status.Draining
	d[5].Leases[1].Memory = new(26 * gpu.GiB)
	d[3].Processes = []status.Process{{PID: 7777, User: "mallory", Command: "miner", Memory: new(3 * gpu.GiB), Foreign: true, Since: new(inventedNow.Add(-8 * time.Minute))}}
	d[6].Use, d[6].Processes = status.Busy, []status.Process{{PID: 8123, User: "frank", Command: "python quick.py", Memory: new(9 * gpu.GiB), Foreign: true, Since: new(inventedNow.Add(-30 * time.Minute))}}
	d[6].MemoryUsed, d[6].Utilization, d[6].Reason = new(9*gpu.GiB), new(0.57), "in use without a lease"
	d[7].Health, d[7].Why, d[7].Reason = health.Unhealthy, []string{"GPU is lost"}, "unhealthy: GPU is lost"
	d[7].Utilization, d[7].MemoryUsed, d[7].Temperature, d[7].Power = nil, nil, nil, nil
	l.setLoadCurve(6, 30, 0, 0.57)
	for i := len(l.minutes) - 20; i < len(l.minutes); i++ { // nobody reads a device that is lost
		delete(l.minutes[i].Devices, d[7].UUID)
	}
}

// newModelOf is a model with the readings of a lab.
func newModelOf(l *observedMachine, width, height int, done *[]string) model {
	m := model{ctx: context.Background(), width: width, height: height, span: 1}
	m.theme, m.me = darkTheme, "zoe"
	m.await = nil
	l.queue.me = m.me
	m.before = l.minutes
	m.addEndedLeases(l.ended, inventedNow)
	for i := range l.ended {
		m.meetUser(l.ended[i].User)
	}
	for _, name := range []string{"cancel", "release", "evict", "drain", "undrain"} {
		m.actions = append(m.actions, observe.Action{Name: name, Do: func(_ context.Context, words []string) error {
			if done != nil {
				*done = append(*done, fmt.Sprint(name, " ", words))
			}
			return nil
		}})
	}
	for i := range 6 {
		r := l.report
		r.Taken = inventedNow.Add(time.Duration(i-5) * time.Second)
		r.Now = r.Taken
		m.applyReading(observe.Snapshot{Report: r, At: r.Taken, Width: time.Minute})
		var workers = map[string][]observe.Worker{}
		for id, list := range l.workers {
			for k, w := range list {
				w.CPU += time.Duration(i) * time.Duration(800+400*k) * time.Millisecond
				workers[id] = append(workers[id], w)
			}
		}
		whole := observe.Computer{Processors: 64, Worked: time.Duration(i) * 12400 * time.Millisecond, Memory: 503 * gpu.GiB, Use: 121 * gpu.GiB}
		if i == 0 {
			whole.Worked = 1
		}
		m.countProcesses(workers, whole, r.Taken)
	}
	m.queue = l.queue
	return m
}
