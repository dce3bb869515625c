package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/machine"
	core "gpuard/internal/core/compare"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/batch"
	"gpuard/internal/host/sys"
)

// sampleEvery is the time between two readings of the devices.
const sampleEvery = 500 * time.Millisecond

// grace is the time between SIGTERM and SIGKILL.
const grace = 10 * time.Second

// loaded is the variable in which a load has the name of the command that it is for.
const loaded = "GPUARD_COMPARE"

// outputRead is how much of the end of an output is searched for metrics.
const outputRead = 4 << 20

// crew knows which children are waited for.
type crew struct {
	mu   sync.Mutex
	pids map[int]bool
}

func (c *crew) awaits(pid int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pids[pid]
}

// start starts a command; nothing else may reap it from then on.
func (c *crew) start(command batch.Command, null *os.File) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	pid, err := batch.Start(command, null)
	if err == nil {
		if c.pids == nil {
			c.pids = map[int]bool{}
		}
		c.pids[pid] = true
	}
	return pid, err
}

// bury reaps it.
func (c *crew) bury(pid int) {
	batch.Bury(pid)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pids, pid)
}

// stage is one step while it runs.
type stage struct {
	*experiment
	run     *core.Run
	meter   *core.Meter
	seats   []*claim.Seat // each once
	members []*member
	shared  bool // one lease of all members
	began   time.Time
	sampled time.Time
}

// member is one command of a stage.
type member struct {
	command      int
	seat         *claim.Seat
	logs         [2]string // of the command, and of its load
	pids         [2]int
	began, ended time.Time   // of its load, where there is one
	how          batch.Ended // that ended
	failed       bool
	peak         *gpu.Bytes
}

// Indexes of a member's processes.
const (
	itself = iota
	load
)

// exited is the end of a process.
type exited struct {
	of  *member
	who int
	how batch.Ended
	err error
	at  time.Time
}

// turn is one run of an arm: its steps, one after the other. An error ends the experiment.
func (x *experiment) turn(ctx context.Context, t core.Turn) (*core.Run, error) {
	run := &core.Run{Arm: t.Arm, Round: t.Round, Devices: []string{}, Commands: make([]core.Outcome, len(x.request.Commands))}
	for c := range run.Commands {
		run.Commands[c] = core.Outcome{Command: core.Letter(c), Metrics: []core.Value{}}
	}
	meter := &core.Meter{}
	for _, step := range x.steps(t) {
		s := &stage{experiment: x, run: run, meter: meter}
		if err := s.conduct(ctx, step); err != nil {
			return nil, err
		}
		if run.Problem != "" {
			break
		}
	}
	run.Use = meter.Use()
	return run, nil
}

// conduct leases for a step, runs it, and notes what was measured.
func (s *stage) conduct(ctx context.Context, what step) (err error) {
	defer func() {
		if lerr := giveBack(s.seats); err == nil {
			err = lerr
		}
	}()
	if s.seats, err = s.take(ctx, what); err != nil {
		return cmp.Or(ctx.Err(), err)
	}
	for _, seat := range s.seats {
		for _, d := range seat.Plan.Devices {
			if id := string(d.UUID); !slices.Contains(s.run.Devices, id) {
				s.run.Devices = append(s.run.Devices, id)
			}
		}
	}
	s.shared = len(what.desks) < len(what.commands)
	s.begin()
	for i, c := range what.commands {
		if err = s.start(c, s.seats[min(i, len(s.seats)-1)]); err != nil {
			break
		}
	}
	if err == nil && s.request.Load != "" {
		s.begin()
		for _, m := range s.members {
			if err = s.startLoad(m); err != nil {
				break
			}
		}
	}
	interrupted := s.await(ctx, err != nil)
	if kerr := s.tree.Kill(job.Dying); kerr != nil { // what commands leave behind would disturb the next run
		s.host.Say(kerr.Error())
	}
	s.note()
	for _, m := range s.members {
		for _, pid := range m.pids {
			if pid != 0 {
				s.crew.bury(pid)
			}
		}
	}
	return cmp.Or(err, interrupted)
}

// take leases for a step. It waits for one lease at a time and holds none meanwhile: two experiments that held one each
// would wait for each other for ever.
func (s *stage) take(ctx context.Context, what step) (seats []*claim.Seat, err error) {
	name := s.name(what)
	for first := 0; ; {
		seats = make([]*claim.Seat, len(what.desks))
		if seats[first], err = what.desks[first].Wait(ctx, name, s.queued(s.host)); err != nil {
			return nil, err
		}
		busy := -1
		for i, desk := range what.desks {
			if i == first {
				continue
			}
			if seats[i], err = desk.TryNow(ctx, name); err != nil {
				seats[i], busy = nil, i
				break
			}
		}
		if busy < 0 {
			return seats, nil
		}
		var refusal *job.Refusal
		if !errors.As(err, &refusal) || refusal.Never {
			return given(seats), err
		}
		if err := giveBack(seats); err != nil {
			return nil, err
		}
		first = busy
	}
}

// given are those that there are.
func given(seats []*claim.Seat) []*claim.Seat {
	return slices.DeleteFunc(seats, func(s *claim.Seat) bool { return s == nil })
}

func giveBack(seats []*claim.Seat) (err error) {
	for _, seat := range given(seats) {
		if lerr := seat.Leave(); err == nil {
			err = lerr
		}
	}
	return err
}

// begin is when measuring begins.
func (s *stage) begin() {
	s.began = time.Now()
	s.sampled = s.began
}

// name is what the leases of a step are called.
func (s *stage) name(what step) string {
	var names []string
	for _, c := range what.commands {
		names = append(names, machine.BaseName(s.request.Commands[c].Argv))
	}
	return strings.Join(names, "+")
}

// start starts a command on a seat.
func (s *stage) start(c int, seat *claim.Seat) error {
	m, command := &member{command: c, seat: seat}, s.request.Commands[c]
	env := visible.Env(seat.Env).With(command.Env)
	if err := s.launch(m, itself, batch.Command{Path: s.paths[c], Dir: command.Dir, Argv: command.Argv, Env: env, Lease: seat.Lock}); err != nil {
		return err
	}
	s.members = append(s.members, m)
	if s.shared {
		return nil // the lease stays this process's
	}
	return seat.Entrust(m.pids[itself])
}

// startLoad starts what uses a command while it runs. It has no device.
func (s *stage) startLoad(m *member) error {
	env := visible.Env(claim.WithoutDevices(s.host, job.Spec{CPU: true})).With([]visible.Var{{Name: loaded, Value: s.request.Commands[m.command].Name}})
	return s.launch(m, load, batch.Command{Path: "/bin/sh", Argv: []string{"sh", "-c", s.request.Load}, Env: env})
}

// launch starts one process of a member, with its output in a file.
func (s *stage) launch(m *member, who int, command batch.Command) (err error) {
	name := fmt.Sprintf("%s-%d-%s%s.log", strings.ReplaceAll(string(s.run.Arm), ":", "-"), s.run.Round, core.Letter(m.command), []string{"", "-load"}[who])
	m.logs[who] = filepath.Join(s.output, name)
	if command.Log, err = sys.OpenFile(m.logs[who], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return fmt.Errorf("cannot keep the output of the commands: %w", err)
	}
	defer command.Log.Close() //nolint:errcheck // the command has its own
	m.began = time.Now()
	if m.pids[who], err = s.crew.start(command, s.null); err != nil {
		_ = os.Remove(m.logs[who])
		return fmt.Errorf("cannot run %q: %w", command.Argv[0], err)
	}
	return nil
}

// await waits for all processes, and measures meanwhile. When one fails, or the experiment is to end, all are ended; at once
// where one could not be started.
func (s *stage) await(ctx context.Context, incomplete bool) (interrupted error) {
	ended, left := make(chan exited), 0
	for _, m := range s.members {
		for who, pid := range m.pids {
			if pid != 0 {
				left++
				go func() {
					how, err := batch.Await(pid)
					ended <- exited{m, who, how, err, time.Now()}
				}()
			}
		}
	}
	tick := time.NewTicker(cmp.Or(s.host.Times.Sample, sampleEvery))
	defer tick.Stop()
	var kill <-chan time.Time
	stop := func() {
		if kill == nil {
			s.tree.Signal("SIGTERM")
			kill = time.After(grace)
		}
	}
	over := ctx.Done()
	if incomplete {
		stop()
	}
	for left > 0 {
		select {
		case e := <-ended:
			if left--; s.ended(e, kill != nil) {
				stop()
			}
		case <-tick.C:
			s.sample(ctx)
			s.progress(s.run.Arm, time.Since(s.began))
		case <-over:
			interrupted, over = ctx.Err(), nil
			stop()
		case <-kill:
			_ = s.tree.Kill(job.Dying)
		case <-s.again:
			_ = s.tree.Kill(job.Dying)
		}
	}
	return interrupted
}

// ended notes the end of a process. The answer is whether the others are to end too: the run has failed, or all load is done.
func (s *stage) ended(e exited, stopping bool) bool {
	m, served := e.of, s.request.Load != ""
	if !m.ended.IsZero() {
		return false // a command whose load is done, or a load whose command has ended
	}
	m.ended, m.how = e.at, e.how
	what := core.Letter(m.command)
	if e.who == load {
		what = "the load of " + what
	}
	how := ""
	switch {
	case e.err != nil:
		how, m.how.Code = e.err.Error(), -1
	case e.how.Signal != "":
		how = "was ended by " + e.how.Signal
	case e.how.Code != 0:
		how = fmt.Sprintf("ended with exit code %d", e.how.Code)
	case served && e.who == itself:
		how = "ended before its load"
	}
	if how != "" && !stopping {
		m.failed = true
		s.run.Problem = fmt.Sprintf("%s %s; its output: %s", what, how, m.logs[e.who])
	}
	return how != "" || served && !slices.ContainsFunc(s.members, func(m *member) bool { return m.ended.IsZero() })
}

// sample reads the devices of the run.
func (s *stage) sample(ctx context.Context) {
	m, partial, err := s.host.ReadFast(ctx, gpu.Query{What: gpu.Load | gpu.Processes})
	if err != nil || partial {
		return // the next reading stands for this time too
	}
	var devices []gpu.Device
	for _, seat := range s.seats {
		for _, given := range seat.Plan.Devices {
			d, slice, ok := m.Find(given.UUID)
			if !ok {
				return
			}
			read := *d
			if slice != nil {
				read.MemoryUsed = slice.MemoryUsed
			}
			i := slices.IndexFunc(devices, func(other gpu.Device) bool { return other.UUID == d.UUID })
			switch {
			case i < 0:
				devices = append(devices, read)
			case read.MemoryUsed != nil && (devices[i].MemoryUsed == nil || *devices[i].MemoryUsed < *read.MemoryUsed): // another slice of it
				devices[i].MemoryUsed = read.MemoryUsed
			}
		}
	}
	now := time.Now()
	s.meter.Add(now.Sub(s.sampled), devices)
	s.sampled = now
	for _, one := range s.members {
		one.measure(&m, s.host.Proc.Tree(one.pids[itself]))
	}
}

// measure notes the memory of the command's own processes on one device, where that is the most so far.
func (m *member) measure(machine *gpu.Machine, tree []int) {
	for _, given := range m.seat.Plan.Devices {
		var sum *gpu.Bytes
		for _, p := range machine.On(given.UUID) {
			if p.Memory != nil && slices.Contains(tree, p.PID) {
				if sum == nil {
					sum = new(gpu.Bytes)
				}
				*sum += *p.Memory
			}
		}
		if sum != nil && (m.peak == nil || *m.peak < *sum) {
			m.peak = sum
		}
	}
}

// note adds to the run what was measured in this step.
func (s *stage) note() {
	if len(s.members) == 0 {
		return
	}
	from, to := s.members[0].began, s.members[0].ended // in which all run
	last := to
	for _, m := range s.members[1:] {
		from, to, last = later(from, m.began), earlier(to, m.ended), later(last, m.ended)
	}
	s.run.Seconds += last.Sub(s.members[0].began).Seconds()
	s.meter.Rest(last.Sub(s.sampled))
	for _, m := range s.members {
		out := &s.run.Commands[m.command]
		out.Seconds, out.Memory, out.Signal = m.ended.Sub(m.began).Seconds(), m.peak, m.how.Signal
		if m.how.Signal == "" && m.how.Code >= 0 {
			out.Exit = &m.how.Code
		}
		if len(s.members) > 1 && out.Seconds > 0 {
			out.Company = new(max(0, to.Sub(from).Seconds()) / out.Seconds)
		}
		m.seat.Note(out.Exit, out.Signal, peakOf(m))
		s.readOutput(m, out)
	}
}

func peakOf(m *member) gpu.Bytes {
	if m.peak == nil {
		return 0
	}
	return *m.peak
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// readOutput finds the metrics in what a command printed, which is only kept where the run has failed.
func (s *stage) readOutput(m *member, out *core.Outcome) {
	if len(s.request.Metrics) > 0 {
		text := endOf(m.logs[itself])
		if m.logs[load] != "" {
			text = endOf(m.logs[load])
		}
		out.Read(s.request.Metrics, text)
	}
	if !m.failed {
		_ = os.Remove(m.logs[itself])
		_ = os.Remove(m.logs[load])
	}
}

// endOf reads the end of a file.
func endOf(path string) []byte {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close() //nolint:errcheck // read only
	if info, err := file.Stat(); err == nil && info.Size() > outputRead {
		_, _ = file.Seek(-outputRead, io.SeekEnd)
	}
	text, _ := io.ReadAll(io.LimitReader(file, outputRead))
	return text
}
