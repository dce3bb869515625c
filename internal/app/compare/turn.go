package compare

import (
	"cmp"
	"context"
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
	"gpuard/internal/host/batch"
)

// sampleEvery is the time between two readings of the devices.
const sampleEvery = 500 * time.Millisecond

// grace is the time between SIGTERM and SIGKILL.
const grace = 10 * time.Second

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
	log          string
	pid          int
	began, ended time.Time
	how          batch.Ended
	err          error
	peak         *gpu.Bytes
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
		for _, seat := range s.seats {
			if lerr := seat.Leave(); err == nil {
				err = lerr
			}
		}
	}()
	for _, desk := range what.desks {
		seat, err := desk.Wait(ctx, s.name(what), s.queued(s.host))
		if err != nil {
			return cmp.Or(ctx.Err(), err)
		}
		s.seats = append(s.seats, seat)
		for _, d := range seat.Plan.Devices {
			if id := string(d.UUID); !slices.Contains(s.run.Devices, id) {
				s.run.Devices = append(s.run.Devices, id)
			}
		}
	}
	s.began = time.Now()
	s.sampled, s.shared = s.began, len(what.desks) < len(what.commands)
	for i, c := range what.commands {
		if err = s.start(c, s.seats[min(i, len(s.seats)-1)]); err != nil {
			break
		}
	}
	interrupted := s.await(ctx, len(s.members) < len(what.commands))
	if kerr := s.tree.Kill(job.Dying); kerr != nil { // what commands leave behind would disturb the next run
		s.host.Say(kerr.Error())
	}
	s.note()
	for _, m := range s.members {
		s.crew.bury(m.pid)
	}
	return cmp.Or(err, interrupted)
}

// name is what the leases of a step are called.
func (s *stage) name(what step) string {
	var names []string
	for _, c := range what.commands {
		names = append(names, machine.BaseName(s.request.Commands[c]))
	}
	return strings.Join(names, "+")
}

// start starts a command on a seat.
func (s *stage) start(c int, seat *claim.Seat) error {
	m := &member{command: c, seat: seat}
	m.log = filepath.Join(s.output, fmt.Sprintf("%s-%d-%s.log", strings.ReplaceAll(string(s.run.Arm), ":", "-"), s.run.Round, core.Letter(c)))
	log, err := os.OpenFile(m.log, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("cannot keep the output of the commands: %w", err)
	}
	defer log.Close() //nolint:errcheck // the command has its own
	m.began = time.Now()
	m.pid, err = s.crew.start(batch.Command{Path: s.paths[c], Argv: s.request.Commands[c], Env: seat.Env, Log: log, Lease: seat.Lock}, s.null)
	if err != nil {
		_ = os.Remove(m.log)
		return fmt.Errorf("cannot run %q: %w", s.request.Commands[c][0], err)
	}
	s.members = append(s.members, m)
	if s.shared {
		return nil // the lease stays this process's
	}
	return seat.Entrust(m.pid)
}

// await waits for all members, and measures meanwhile. When one fails, or the experiment is to end, all are ended; at once
// where one could not be started.
func (s *stage) await(ctx context.Context, incomplete bool) (interrupted error) {
	ended := make(chan *member, len(s.members))
	for _, m := range s.members {
		go func() {
			m.how, m.err = batch.Await(m.pid)
			m.ended = time.Now()
			ended <- m
		}()
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
	for left := len(s.members); left > 0; {
		select {
		case m := <-ended:
			if left--; s.failed(m, kill != nil) {
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

// failed notes why the run does not count, unless its commands were ended before.
func (s *stage) failed(m *member, ending bool) bool {
	how := ""
	switch {
	case m.err != nil:
		how = m.err.Error()
	case m.how.Signal != "":
		how = "was ended by " + m.how.Signal
	case m.how.Code != 0:
		how = fmt.Sprintf("ended with exit code %d", m.how.Code)
	}
	if how != "" && !ending {
		s.run.Problem = fmt.Sprintf("%s %s; its output: %s", core.Letter(m.command), how, m.log)
	}
	return how != ""
}

// sample reads the devices of the run.
func (s *stage) sample(ctx context.Context) {
	m, partial, err := s.host.ReadFast(ctx, gpu.Load|gpu.Processes)
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
		one.measure(&m, s.host.Proc.Tree(one.pid))
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
		if m.how.Signal == "" && m.err == nil {
			out.Exit = &m.how.Code
		}
		if len(s.members) > 1 && out.Seconds > 0 {
			out.Company = new(max(0, to.Sub(from).Seconds()) / out.Seconds)
		}
		m.seat.Note(out.Exit, out.Signal, peakOf(m), nil)
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
		text := endOf(m.log)
		for _, metric := range s.request.Metrics {
			if v := metric.In(text); v != nil {
				out.Metrics = append(out.Metrics, core.Value{Metric: metric.Name, Value: *v})
			}
		}
	}
	if s.run.Problem == "" || !strings.HasSuffix(s.run.Problem, m.log) {
		_ = os.Remove(m.log)
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
