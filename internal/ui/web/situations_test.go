package web

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/app/observe"
	"gpuard/internal/app/userqueue"
	"gpuard/internal/core/check"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/job"
	"gpuard/internal/core/status"
	"gpuard/internal/core/trend"
)

// inventedNow is when the invented machines are looked at.
var inventedNow = time.Date(2026, 3, 4, 9, 12, 20, 0, time.Local)

// inventedMachine is an invented machine with a past.
type inventedMachine struct {
	machine gpu.Machine
	leases  []job.Lease
	memory  map[string]gpu.Bytes // by lease, on each device
	line    []job.Ticket
	jobs    []userqueue.Entry
	more    int
	past    []trend.EndedLease
	open    []trend.EndedLease
	minutes []trend.Minute
	shop    []fakeProject
	random  *rand.Rand
}

// fakeQueue, fakeProjects and fakeDoctor are what the command line gives the page.
type fakeQueue struct{ line userqueue.Line }

func (f fakeQueue) Line() userqueue.Line { return f.line }

type fakeProjects struct{ Projects []fakeProject }

type fakeProject struct {
	Project   string
	Instances []fakeInstance
}

type fakeInstance struct {
	Name, State, Why string
	Ready            bool
	Healthy          *bool
	PID, Restarts    int
	Port             int
	Since            *time.Time
	Devices          []job.Given
}

type fakeDoctor struct{ check.Diagnosis }

func newInventedMachine(t testing.TB, spec string) *inventedMachine {
	t.Helper()
	m, err := gpu.InventMachine(spec)
	if err != nil {
		t.Fatal(err)
	}
	m.Taken, m.Driver, m.CUDA = inventedNow.Add(-time.Second), "550.54.15", "12.4"
	return &inventedMachine{machine: m, memory: map[string]gpu.Bytes{}, random: rand.New(rand.NewPCG(1, 2))} //nolint:gosec // the same each time
}

// addEndedLease notes a lease that has ended, from so many minutes before until so many minutes before.
func (s *inventedMachine) addEndedLease(user, command string, from, until int, load float64, devices ...int) {
	e := trend.EndedLease{Lease: fmt.Sprintf("e%03d", len(s.past)), User: user, Command: command, Since: inventedNow.Add(-time.Duration(from) * time.Minute), Until: inventedNow.Add(-time.Duration(until) * time.Minute),
		Peak: gpu.Bytes(10+s.random.IntN(60)) * gpu.GiB, Exit: new(0)}
	seconds := float64(from-until) * 60
	for _, i := range devices {
		e.Devices = append(e.Devices, trend.DeviceUse{UUID: s.machine.Devices[i].UUID, Index: i, Granted: seconds, Busy: load * seconds, Idle: (1 - load) * seconds})
	}
	s.past = append(s.past, e)
}

// addLease adds a lease that lives since so many minutes, with an estimate in minutes, 0 for none.
func (s *inventedMachine) addLease(user, command string, since, asked int, load float64, memory gpu.Bytes, devices ...int) *job.Lease {
	l := job.Lease{ID: fmt.Sprintf("k%03d", len(s.leases)), User: user, UID: uint32(1000 + len(user)), Command: command, PID: 4000 + len(s.leases), Since: inventedNow.Add(-time.Duration(since) * time.Minute), Time: time.Duration(asked) * time.Minute} //nolint:gosec // small
	e := trend.EndedLease{Lease: l.ID, User: user, Command: command, Since: l.Since, Until: inventedNow, Peak: memory + gpu.GiB}
	for _, i := range devices {
		d := &s.machine.Devices[i]
		l.Devices = append(l.Devices, d.UUID)
		d.Utilization = new(load)
		d.MemoryUsed = new(*d.MemoryUsed + memory)
		d.Temperature = new(41 + int(34*load))
		d.Power = new(70 + 300*load)
		e.Devices = append(e.Devices, trend.DeviceUse{UUID: d.UUID, Index: i, Granted: float64(since) * 60, Busy: load * float64(since) * 60, Idle: (1 - load) * float64(since) * 60})
	}
	s.memory[l.ID] = memory
	s.leases, s.open = append(s.leases, l), append(s.open, e)
	return &s.leases[len(s.leases)-1]
}

// addTicket adds requests for all devices.
func (s *inventedMachine) addTicket(user, command string, count, minutes int) *job.Ticket {
	t := job.Ticket{ID: fmt.Sprintf("t%03d", len(s.line)), User: user, UID: uint32(1000 + len(user)), Command: command, Count: count, PID: 7000 + len(s.line), Since: inventedNow.Add(-time.Duration(minutes) * time.Minute), Time: 2 * time.Hour} //nolint:gosec // small
	for i := range s.machine.Devices {
		t.Devices = append(t.Devices, s.machine.Devices[i].UUID)
	}
	s.line = append(s.line, t)
	return &s.line[len(s.line)-1]
}

// lastDayMinutes is where what month makes ends, in minutes before: there begins what addLastDay says.
const lastDayMinutes = 1510

// addMonth adds a past of thirty days before the last one.
func (s *inventedMachine) addMonth(users ...string) {
	for i := range s.machine.Devices {
		for at := 30 * 24 * 60; at > lastDayMinutes; {
			gap := s.random.IntN(240)
			long := 30 + s.random.IntN(900)
			until := max(at-gap-long, lastDayMinutes)
			user := users[(s.random.IntN(len(users))+s.random.IntN(len(users)))/2]
			s.addEndedLease(user, []string{"train.py", "eval", "finetune", "bert-large"}[s.random.IntN(4)], at-gap, until, 0.2+0.7*s.random.Float64(), i)
			at = until
		}
	}
}

// makeMinutes makes the minutes of the last day fit what was leased.
func (s *inventedMachine) makeMinutes() {
	all := slices.DeleteFunc(slices.Concat(s.past, s.open), func(e trend.EndedLease) bool { return e.Until.Before(inventedNow.Add(-25 * time.Hour)) })
	for minute := 24 * 60; minute > 0; minute-- {
		at := inventedNow.Truncate(time.Minute).Add(-time.Duration(minute) * time.Minute)
		m := trend.Minute{At: at, Devices: map[gpu.UUID]trend.Mean{}}
		for i := range s.machine.Devices {
			d := &s.machine.Devices[i]
			load, memory := 0.0, 0.006
			for _, e := range all {
				for _, u := range e.Devices {
					if u.UUID == d.UUID && !at.Before(e.Since) && at.Before(e.Until) && u.Granted > 0 {
						wave := math.Sin(float64(minute)/23+float64(i))*0.12 + (s.random.Float64()-0.5)*0.1
						load += min(1, max(0, u.Busy/u.Granted+wave))
						memory += float64(e.Peak) / float64(*d.MemoryTotal) * min(1, at.Sub(e.Since).Minutes()/40+0.3)
					}
				}
			}
			m.Devices[d.UUID] = trend.Mean{Load: new(min(1, load)), Memory: new(min(1, memory) * float64(*d.MemoryTotal)), Temperature: new(36 + 38*min(1, load)), Power: new(60 + 310*min(1, load))}
		}
		s.minutes = append(s.minutes, m)
	}
}

// changeMinutes changes the minutes of a device from so many before until so many before.
func (s *inventedMachine) changeMinutes(device, from, until int, change func(*trend.Mean)) {
	id := s.machine.Devices[device].UUID
	for i := range s.minutes {
		if back := 24*60 - i; back <= from && back > until {
			mean := s.minutes[i].Devices[id]
			change(&mean)
			s.minutes[i].Devices[id] = mean
		}
	}
}

// addMark notes a trouble.
func (s *inventedMachine) addMark(device, minute int, what, text string) {
	s.changeMinutes(device, minute, minute-1, func(m *trend.Mean) {
		m.Marks = append(m.Marks, trend.Mark{At: inventedNow.Add(-time.Duration(minute) * time.Minute), What: what, Text: text})
	})
}

// makeReport is what gpuard status shows of it.
func (s *inventedMachine) makeReport() status.Report { return s.reportAt(inventedNow) }

func (s *inventedMachine) reportAt(now time.Time) status.Report {
	r := status.NewReport(s.machine, s.leases, now)
	none := func(job.Ticket) bool { return false }
	r.AddWaiting(s.line, 0, none, none, none)
	r.EachDevice(func(d *status.Device) {
		for i := range d.Leases {
			if m, known := s.memory[d.Leases[i].ID]; known {
				d.Leases[i].Memory = &m
			}
		}
	})
	return r
}

// makeSite serves it.
func (s *inventedMachine) makeSite(t testing.TB, token string) *Site {
	t.Helper()
	o, err := observe.New(&machine.Host{Messages: machine.Messages{Say: func(string) {}}}, "")
	if err != nil {
		t.Fatal(err)
	}
	report := s.makeReport()
	site := &Site{Observer: o, Host: "box", Version: "v1.0.0", Owner: "alice", Token: token}
	site.watch = func() observe.Snapshot {
		return observe.Snapshot{Report: report, At: inventedNow, Minutes: s.minutes, Width: time.Minute, Uses: s.open}
	}
	site.Actions = []observe.Action{{Name: "drain"}}
	site.live.pages.now = func() time.Time { return inventedNow }
	give := func(name string, answer any) observe.Source {
		return observe.Source{Name: name, Every: time.Hour, Read: func(context.Context) (any, error) { return answer, nil }}
	}
	found := s.diagnose()
	others := slices.DeleteFunc(publicReport(report).Waiting, func(w status.Waiting) bool { return w.User == site.Owner })
	site.Sources = []observe.Source{
		give("queue", fakeQueue{userqueue.Line{Jobs: s.jobs, Others: others, More: s.more}}),
		give("services", fakeProjects{s.shop}),
		give("findings", fakeDoctor{found}),
		give("history", trend.UseReport{Leases: s.past}),
	}
	return site
}

// diagnose is what doctor says of the devices; of the rest of the computer there is nothing.
func (s *inventedMachine) diagnose() check.Diagnosis {
	m := s.machine
	m.Source = "nvml"
	whole := check.Diagnose(hostinfo.Site{Now: inventedNow, Machine: hostinfo.AnswerOf(m)})
	devices := []string{"gpu-answers", "xid-errors", "temperature", "clock-events", "persistence", "memory-holders"}
	whole.Findings = slices.DeleteFunc(whole.Findings, func(f check.Finding) bool { return !slices.Contains(devices, f.Code) })
	whole.Verdict = check.JudgeSite(whole.Site, whole.Findings)
	return whole
}

// labUsers are those who work in the invented lab.
func labUsers() []string { return []string{"alice", "bob", "carol", "dave", "erin", "frank"} }

// addLastDay is what six people had since yesterday morning.
func (s *inventedMachine) addLastDay() {
	s.addEndedLease("bob", "train.py", 1500, 1140, 0.82, 0)
	s.addEndedLease("bob", "train.py", 1130, 700, 0.86, 0)
	s.addEndedLease("carol", "eval", 1440, 1310, 0.35, 1)
	s.addEndedLease("dave", "finetune-7b", 1290, 620, 0.93, 1, 2)
	s.addEndedLease("erin", "notebook", 1460, 1000, 0.08, 3)
	s.addEndedLease("erin", "sdxl", 960, 420, 0.71, 3)
	s.addEndedLease("frank", "pretrain", 1500, 660, 0.97, 4, 5)
	s.addEndedLease("alice", "bert-large", 1200, 760, 0.9, 6)
	for i := range 14 {
		s.addEndedLease("carol", "eval", 900-40*i, 900-40*i-33, 0.5, 7)
	}
	s.addEndedLease("bob", "train.py", 600, 350, 0.77, 2)
	s.addEndedLease("carol", "eval", 340, 250, 0.3, 2)
	s.addEndedLease("dave", "notebook", 640, 610, 0.04, 4)
	for i := range 9 {
		s.addEndedLease("erin", "sweep", 600-25*i, 600-25*i-22, 0.66, 6)
	}
	s.past[len(s.past)-3].Exit = new(1)
}

func idleMachine(t testing.TB) *inventedMachine {
	s := newInventedMachine(t, "demo:8xA100-80GB")
	s.addMonth(labUsers()...)
	s.addLastDay()
	s.makeMinutes()
	return s
}

// workdayMachine: 8 GPUs, 6 users, 40 jobs in a day, two GPUs free.
func workdayMachine(t testing.TB) *inventedMachine {
	s := newInventedMachine(t, "demo:8xA100-80GB")
	s.addMonth(labUsers()...)
	s.addLastDay()
	s.addLease("alice", "bert-large", 312, 620, 0.91, 61*gpu.GiB, 5)
	s.addLease("bob", "train.py", 640, 0, 0.84, 70*gpu.GiB, 0)
	s.addLease("dave", "finetune-7b", 95, 480, 0.95, 74*gpu.GiB, 1, 2)
	s.addLease("erin", "notebook", 180, 0, 0.04, 9*gpu.GiB, 3)
	for i, user := range []string{"carol", "frank"} {
		l := s.addLease(user, []string{"asr-server", "tts-server"}[i], 400-90*i, 0, 0.22, gpu.Bytes(11-2*i)*gpu.GiB, 7)
		l.Share, l.Quota = 16*gpu.GiB, job.Watch
		s.open[len(s.open)-1].Share = 16 * gpu.GiB
	}
	s.makeMinutes()
	s.addMark(1, 1000, "throttle", "slowed down: hw_thermal_slowdown")
	since, later := inventedNow.Add(-400*time.Minute), inventedNow.Add(-310*time.Minute)
	s.shop = []fakeProject{{"speech", []fakeInstance{
		{Name: "asr-server", State: "running", Ready: true, Healthy: new(true), PID: 4004, Port: 8001, Since: &since, Devices: []job.Given{{Index: 7}}},
		{Name: "tts-server", State: "running", Ready: true, Healthy: new(true), PID: 4005, Port: 8002, Restarts: 2, Since: &later, Devices: []job.Given{{Index: 7}}},
	}}}
	for i := range s.machine.Devices {
		s.machine.Devices[i].Persistence = new(false)
	}
	s.jobs = []userqueue.Entry{{Number: 8, Name: "bert-large", State: userqueue.Running, PID: s.leases[0].PID, Asks: "1 GPU"}}
	return s
}

// crowdedMachine: all GPUs are leased, and a hundred jobs wait.
func crowdedMachine(t testing.TB) *inventedMachine {
	s := newInventedMachine(t, "demo:8xA100-80GB")
	s.addMonth(labUsers()...)
	s.addLastDay()
	for i := range 8 {
		asked := 240 + 45*i
		if i == 3 {
			asked = 0
		}
		s.addLease(labUsers()[i%6], []string{"bert-large", "train.py", "finetune-7b", "sdxl", "pretrain", "eval", "bert-large", "train.py"}[i], 180+7*i, asked, 0.8+0.02*float64(i), gpu.Bytes(50+3*i)*gpu.GiB, i)
	}
	for i := range 12 {
		if i == 2 {
			s.addTicket("alice", "sweep-lr[0]", 1, 90) // of the queue
		}
		s.addTicket(labUsers()[1+i%5], []string{"train.py", "eval", "sdxl", "pretrain"}[i%4], 1+i%2, 170-9*i)
	}
	why := s.makeReport().Waiting[0].Why
	for i := range 60 {
		e := userqueue.Entry{Number: 9 + i, Name: fmt.Sprintf("sweep-lr[%d]", i), State: userqueue.Waiting, Asks: "1 GPU, 20 GiB", Submitted: inventedNow.Add(-90 * time.Minute), Why: why, Expected: new(inventedNow.Add(time.Duration(120+20*i) * time.Minute))}
		if i >= 40 {
			e.Name, e.Asks = "bert-large", "2 GPUs"
		}
		if i >= 48 {
			e.Name, e.State, e.Awaits, e.Why, e.Expected = "report", userqueue.After, []int{49 + (i-48)%8}, "", nil
		}
		s.jobs = append(s.jobs, e)
	}
	s.more = 28
	s.makeMinutes()
	return s
}

// troubledMachine: hot, lost, above its share, an intruder, drained.
func troubledMachine(t testing.TB) *inventedMachine {
	s := newInventedMachine(t, "demo:8xA100-80GB")
	s.addMonth(labUsers()...)
	s.addLastDay()
	s.addLease("bob", "train.py", 640, 0, 0.99, 70*gpu.GiB, 0)
	s.addLease("dave", "finetune-7b", 95, 480, 0.95, 74*gpu.GiB, 1, 2)
	l := s.addLease("carol", "asr-server", 400, 0, 0.5, 19*gpu.GiB, 7)
	l.Share, l.Quota = 16*gpu.GiB, job.Watch
	m := &s.machine
	m.Devices[0].ClockEvents, m.Devices[0].Temperature, m.Devices[0].TempMargin = []string{"hw_thermal_slowdown"}, new(89), new(0)
	lost := &m.Devices[4]
	lost.Problem, lost.Utilization, lost.MemoryUsed, lost.Temperature, lost.Power = "GPU is lost", nil, nil, nil, nil
	lost.XIDs = []gpu.XID{{Code: 79, At: inventedNow.Add(-250 * time.Minute), Source: "nvml"}}
	m.Devices[6].Drained = "new fan (root, since 08:10)"
	m.Processes = append(m.Processes,
		gpu.Process{PID: 31337, GPU: m.Devices[1].UUID, User: "mallory", Command: "python mine.py", Memory: new(3 * gpu.GiB), Started: inventedNow.Add(-time.Hour)},
		gpu.Process{PID: 31338, GPU: m.Devices[3].UUID, User: "erin", Command: "jupyter-lab", Memory: new(22 * gpu.GiB), Started: inventedNow.Add(-3 * time.Hour)})
	m.Devices[3].MemoryUsed, m.Devices[3].Utilization = new(22*gpu.GiB), new(0.4)
	s.makeMinutes()
	s.changeMinutes(4, 250, 0, func(mean *trend.Mean) { *mean = trend.Mean{State: "unhealthy"} })
	s.changeMinutes(6, 62, 0, func(mean *trend.Mean) { mean.State = "draining" })
	s.changeMinutes(3, 180, 0, func(mean *trend.Mean) { mean.State, mean.Load = "busy", new(0.4) })
	s.addMark(4, 250, "xid", "XID 79: the GPU has fallen off the bus")
	s.addMark(0, 130, "throttle", "slowed down: hw_thermal_slowdown")
	s.addMark(0, 20, "throttle", "slowed down: hw_thermal_slowdown")
	s.addMark(7, 35, "breach", "asr-server of carol uses more than its share")
	s.addMark(1, 60, "intruder", "process of mallory without a lease")
	s.addTicket("frank", "pretrain", 2, 40)
	return s
}

// laptopMachine: one GPU that also drives the display.
func laptopMachine(t testing.TB) *inventedMachine {
	s := newInventedMachine(t, "demo:1xRTX4090")
	s.addEndedLease("alice", "comfyui", 900, 700, 0.6, 0)
	s.addEndedLease("alice", "train.py", 640, 180, 0.93, 0)
	s.machine.Processes = append(s.machine.Processes, gpu.Process{PID: 1200, GPU: s.machine.Devices[0].UUID, User: "alice", Command: "/usr/lib/xorg/Xorg", Memory: new(300 * gpu.MiB)})
	s.machine.Devices[0].Utilization, s.machine.Devices[0].MemoryUsed = new(0.02), new(300*gpu.MiB)
	s.makeMinutes()
	return s
}

// inventedMachines are the five that the page is looked at in.
func inventedMachines() map[string]func(testing.TB) *inventedMachine {
	return map[string]func(testing.TB) *inventedMachine{"idle": idleMachine, "day": workdayMachine, "crowd": crowdedMachine, "trouble": troubledMachine, "laptop": laptopMachine}
}

// cutFragment cuts a section out of a page, for messages.
func cutFragment(page, from string) string {
	_, rest, _ := strings.Cut(page, from)
	return rest[:min(len(rest), 400)]
}
