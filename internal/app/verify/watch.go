package verify

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/proof"
	"gpuard/internal/core/visible"
)

// treeWatch reads one process tree repeatedly, until the answer is clear.
type treeWatch struct {
	host  *machine.Host
	facts proof.Facts
	// The start of the first process.
	start uint64
	// That the job was started with.
	env visible.Env
	// What it shows was read.
	promised bool
	lease    *job.Lease
	// Hear the framework too, although the answer is clear.
	thorough bool
	// The answer ends the job, so one that more patience could change is none yet.
	acts  bool
	ended <-chan struct{}
	// The end of the first process, for which it waits.
	ending  func() (signal string, known bool)
	began   time.Time
	members map[int]*jobProcess
	seen    map[processDevice]*proof.Sighting
	// Readings since a process was first seen on a device.
	settled int
	// Readings in a row that failed to get the driver's list.
	failing int
	witness frameworkProbe
}

// jobProcess is a process of the job, also after its parent has ended.
type jobProcess struct {
	start uint64
	// CPU time when it was found, and since.
	before, spent time.Duration
}

type processDevice struct {
	pid int
	gpu gpu.UUID
}

// newWatch begins with the first process of a job. ended is closed at its end, and ending tells then how that was.
func newWatch(host *machine.Host, pid int, start uint64, patience time.Duration, ended <-chan struct{}, ending func() (string, bool)) *treeWatch {
	w := &treeWatch{host: host, start: start, ended: ended, ending: ending, began: time.Now(), members: map[int]*jobProcess{}, seen: map[processDevice]*proof.Sighting{}}
	w.facts.PID, w.facts.Patience = pid, patience
	w.facts.Command = commandOf(host, pid)

	return w
}

// commandOf is the base name of a process's command.
func commandOf(host *machine.Host, pid int) string {
	return machine.BaseName(strings.Fields(host.Proc.DescribeProcess(pid).Command))
}

// watchUntilClear reads at short intervals first, because jobs may be short, and at longer ones later.
func (w *treeWatch) watchUntilClear(ctx context.Context) *Verification {
	ctx, cancel := context.WithCancel(ctx)
	defer w.endWitness(cancel)
	longest := cmp.Or(w.host.Times.Verify, 500*time.Millisecond)
	for pause := longest / 10; ; pause = min(2*pause, longest) {
		w.readOnce(ctx)
		finding := proof.Judge(w.facts)
		if w.isDone(finding) || ctx.Err() != nil {
			return w.newVerification(finding)
		}

		select {
		case <-time.After(pause):
		case <-ctx.Done():
		case <-w.ended:
			// Its descendants may live on.
			w.ended = nil
		case said := <-w.witness.answers:
			w.witness.asking = false
			w.facts.Frameworks = append(w.facts.Frameworks, said...)
		}

	}
}

// isDone reports whether no more readings are needed: they could neither change the answer nor add to it.
func (w *treeWatch) isDone(f proof.Finding) bool {
	over := w.facts.Ended || w.facts.Watched >= w.facts.Patience
	waiting := w.witness.asking && w.thorough
	switch f.Verdict {
	case proof.OutsideLease, proof.WrongDevice:
		return true
	case proof.Proven:
		return over || w.settled > 1 && !waiting
	case proof.NotMeasurable:
		return w.facts.Ended || !waiting && (w.failing > 1 || w.settled > 1)
	case proof.CPU:
		// A script may check its framework first, and start its GPU job later.
		return !waiting && (over || !w.acts)
	}

	return over && !w.witness.asking
}

// readOnce reads the driver's list once, and procfs before and after it, because processes come and go.
func (w *treeWatch) readOnce(ctx context.Context) {
	f := &w.facts
	w.readTree()
	what := gpu.Processes
	if initial, err := w.host.Proc.InitialPIDNamespace(); err == nil && !initial {
		what |= gpu.Load
	}

	m, err := w.host.Read(ctx, what)
	f.Watched = time.Since(w.began)
	f.Age, _ = w.host.Proc.ProcessAge(f.PID)
	w.noteMachine(m, err)
	if len(w.seen) > 0 {
		w.settled++
	}

	alive := w.readTree()
	if alive {
		// It may have become another program, as under env or a script.
		f.Command = cmp.Or(commandOf(w.host, f.PID), f.Command)
	}

	for _, p := range m.Processes {
		w.noteProcess(m, p)
	}

	f.Sightings = w.sightings()
	if f.Unlisted == "" && alive {
		f.Looks++
	}

	f.Ended = !alive
	if f.Ended {
		signal, known := w.ending()
		f.Signal, f.Unheard = signal, !known
	}

	w.findFrameworks(ctx)
}

// noteMachine notes what the machine says, but for its processes.
func (w *treeWatch) noteMachine(m gpu.Machine, err error) {
	f := &w.facts
	f.Unlisted, f.Mend = "", ""
	if err != nil {
		f.Unlisted, f.Mend = err.Error(), exit.Remedy(err)
		w.failing++
		return
	}

	f.Machine = m
	if !w.promised && f.Unread == "" {
		w.readPromise()
	}

	if w.lease != nil {
		f.Lease, f.Leased = w.lease.ID, append([]gpu.UUID{}, w.lease.Devices...)
	}

	f.Unlisted = w.host.UnlistedReason(m, slices.Concat(f.Promised, f.Leased))
	if f.Unlisted == "" {
		w.failing = 0
		return
	}

	w.failing++
}
