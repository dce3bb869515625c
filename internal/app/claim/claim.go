// Package claim turns a request into a lease: it reads the machine, decides under the folder lock, waits in the queue where
// that is wanted, and prepares the variables. It does not start commands.
//
//	d, err := claim.Claim(ctx, host, spec, claim.Subject{PID: os.Getpid(), Start: self.Start, Command: "python"})
//	if err != nil { ... } // *job.Refusal: why not; *job.Late: --wait ran out
//	vars, err := claim.Variables(ctx, host, spec, d)
package claim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/app/registry"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/store"
)

// rereads is how often a device that changed after the reading is read again.
const rereads = 3

// errStale says that a device of the answer changed between the reading and the folder lock.
var errStale = errors.New("the machine changed while it was being read")

// question is one request and what was read for it.
type question struct {
	host    *machine.Host
	whose   Subject
	spec    job.Spec
	machine gpu.Machine
	read    time.Time // when machine was
	names   map[uint32]string
	since   store.Generation
	partial bool              // some devices were late, and were not waited for
	last    bool              // no more rereads: decide on what there is
	missing []gpu.UUID        // devices that others have seen since, and that machine does not have
	unseen  map[gpu.UUID]bool // those that cannot be seen from here (a container)
	seen    store.View
	stays   bool // a lease of those that were seen does not end by itself, though its command is gone
	plan    job.Plan
	env     visible.Env      // its masks, lease and allocation count
	own     []int            // processes of a running subject
	trees   map[string][]int // of shared leases
	kept    *job.Kept        // by what the next start recognises the lease; nil: it ends with its command
	rules   machine.Rules    // of the configuration files
	line    *line            // the queue for the same devices; nil if it is empty
}

// Subject is the process that the lease is for: it ends with the process.
type Subject struct {
	PID     int
	Start   uint64
	Command string // base name
	Running bool   // it may be on devices already, and then those are meant; its own environment counts
	Apart   bool   // gpuard does not become it
}

// Decision is the answer to a request.
type Decision struct {
	Plan    job.Plan
	Machine gpu.Machine
	Held    *store.Held // nil when nothing was recorded
	Folder  *store.Folder
	Watch   *os.File // what is left of watching the folder, for the holder to close (store.Watcher.Leave); nil: nothing
}

// decided is the answer to a question.
func (q *question) decided(held *store.Held, folder *store.Folder) *Decision {
	return &Decision{Plan: q.plan, Machine: q.machine, Held: held, Folder: folder}
}

// Unwatch closes the inotify descriptor where no holder does it. The close is slow, so it runs in the background.
func (d *Decision) Unwatch() {
	if d.Watch != nil {
		go d.Watch.Close() //nolint:errcheck // nothing was written
	}
}

// Claim leases what spec asks for. Where nothing is free now it tries what is wanted instead, or waits, or returns a
// *job.Refusal; a *job.Late when the time for waiting ran out.
func Claim(ctx context.Context, host *machine.Host, spec job.Spec, whose Subject) (*Decision, error) {
	q, folder, boot, err := ask(ctx, host, spec, whose)
	if err != nil {
		return nil, err
	}
	c := &claiming{host: host, question: q, folder: folder, boot: boot}
	var d *Decision
	if q.kept, err = keptFor(host, spec, q.rules.Limits); err == nil && q.kept != nil {
		d, err = c.succeed(ctx)
	}
	if err == nil && d == nil {
		d, err = c.claim(ctx)
	}
	if err != nil {
		_ = folder.Close()
		return nil, registry.NameLockHolder(host, folder, err)
	}
	return d, nil
}

// claiming is one request on its way to a lease.
type claiming struct {
	host     *machine.Host
	question *question
	folder   *store.Folder
	boot     string
}

func (c *claiming) claim(ctx context.Context) (*Decision, error) {
	d, err := c.now(ctx)
	var refusal *job.Refusal
	if errors.As(err, &refusal) {
		d, err = c.instead(ctx, refusal)
	}
	if errors.As(err, &refusal) && !refusal.Never && c.question.spec.Waiting.Waits() {
		d, err = c.wait(ctx, refusal)
	}
	return d, err
}

// now claims what is free. It tries again while the machine changes or a lease is about to end.
func (c *claiming) now(ctx context.Context) (*Decision, error) {
	patience := c.question.patience()
	for stale := 0; ; {
		c.question.last = stale >= rereads
		held, err := record(c.host, c.question, c.folder, c.boot, nil)
		if err == nil {
			if c.question.partial {
				c.host.ReportSilent(c.question.machine, 0)
			}
			return c.question.decided(held, c.folder), nil
		}
		var refusal *job.Refusal
		switch {
		case errors.Is(err, errStale):
			stale++
		case errors.As(err, &refusal) && c.question.partial && machine.SilentMatters(c.question.machine, refusal):
			if err := c.readWhole(ctx); err != nil {
				return nil, err
			}
			continue
		case errors.As(err, &refusal) && c.passing(&patience, refusal):
			if err := patience.pause(ctx); err != nil {
				return nil, err
			}
		case refusal != nil:
			return nil, c.question.attended(c.folder, refusal)
		default:
			return nil, err
		}
		if err := c.read(ctx, c.host.Read); err != nil {
			return nil, err
		}
	}
}

// passing reports whether what is in the way is about to be over. What may take seconds is waited for in the line, or others
// would go before.
func (c *claiming) passing(p *patience, refusal *job.Refusal) bool {
	e := c.question.ending(refusal)
	return (e == endingLease || !c.question.spec.Waiting.Waits()) && p.lasts(e)
}

// read reads the machine again, by machine or glance. Where that fails, the last reading stays.
func (c *claiming) read(ctx context.Context, machine machine.Reader) error {
	q, what, since := c.question, Needed(c.question.spec), c.folder.Generation(c.boot)
	if len(q.missing) > 0 {
		what |= gpu.Anew
	}
	m, err := machine(ctx, what)
	if err == nil {
		q.machine, q.since, q.read = m, since, time.Now()
		q.settle()
	}
	return err
}

// readWhole waits for devices that were late.
func (c *claiming) readWhole(ctx context.Context) (err error) {
	c.question.since, c.question.partial = c.folder.Generation(c.boot), false
	c.question.machine, err = c.host.ReadAll(ctx, Needed(c.question.spec))
	c.question.read = time.Now()
	return err
}

// ask reads the machine, after the count of changes so that a change meanwhile is noticed.
func ask(ctx context.Context, host *machine.Host, spec job.Spec, whose Subject) (*question, *store.Folder, string, error) {
	boot, err := host.Proc.BootID()
	if err != nil {
		return nil, nil, "", err
	}
	rules, err := host.Rules()
	if err != nil {
		return nil, nil, "", err
	}
	var folder *store.Folder
	q := &question{host: host, whose: whose, spec: spec, env: host.Unmasked(), rules: rules}
	if env, err := host.Proc.Environ(whose.PID); whose.Running && err == nil {
		q.env, _, _ = visible.Env(env).Lift() // as far as it was not changed since its start, which cannot be seen
	}
	var unusable error
	if host.Hardware() { // its folder does not depend on the devices; where there is none yet, nothing can have changed
		if folder, unusable = host.Folder(gpu.Machine{}, false); folder != nil {
			q.since = folder.Generation(boot)
		}
	}
	if q.machine, q.partial, err = host.ReadFast(ctx, Needed(spec)); err != nil && q.partial {
		q.partial = false
		q.machine, err = host.ReadAll(ctx, Needed(spec))
	}
	q.read = time.Now()
	if err == nil { // if no device can be read, a usable folder would not help
		err = unusable
	}
	if err == nil && folder == nil {
		folder, err = host.Folder(q.machine, true)
	} else if err == nil {
		path, _, _ := host.StateFolder(q.machine)
		err = host.CheckShared(path)
	}
	if err == nil {
		if note := host.SharingNote(folder.Path); note != "" {
			host.Say(note)
		}
	}
	if err == nil && !folder.Claimed() {
		if note := host.OwnerNote(folder.Path, folder.Owner); note != "" {
			host.Say(note)
		}
	}
	return q, folder, boot, err
}

// Needed is what a decision needs to know: how devices are connected, and to which processors, only where several are asked
// for, or several processes.
func Needed(spec job.Spec) gpu.What {
	what := gpu.Identity | gpu.Load | gpu.Processes | gpu.Health
	if spec.GPUs > 1 || spec.Ranks != nil {
		what |= gpu.Links
	}
	return what
}

// record decides under the folder lock.
func record(host *machine.Host, q *question, folder *store.Folder, boot string, mine *store.Waiting) (*store.Held, error) {
	held, _ := folder.Leases()
	q.names = registry.OwnerNames(host, held)
	q.trees = registry.Trees(host, held)
	if q.whose.Running {
		q.own = host.Proc.Tree(q.whose.PID)
	}
	trace, err := openTrace(host)
	if err != nil {
		return nil, err
	}
	defer trace.write() // when the folder is not locked any more
	if mine != nil {    // it may have waited for long
		if rules, err := host.Rules(); err == nil { // else a file is just being written, and the rules before it count
			q.rules = rules
		}
	}
	now := time.Now()
	lease, err := folder.Claim(boot, mine, func(v store.View) (job.Lease, error) {
		q.seen = v
		if err := q.already(v.Held, now); err != nil {
			return job.Lease{}, err
		}
		q.line = q.inLine(v, mine, now)
		plan, refusal := q.decide(v.Held, v.Last, now)
		if q.line.mine() && q.stale(v, plan, refusal) {
			return job.Lease{}, errStale
		}
		q.line.record(&v, refusal)
		trace.add(q.line, plan, refusal)
		if refusal != nil {
			return job.Lease{}, refusal
		}
		q.plan = plan
		parent := ""
		if above := q.within(v.Held); len(above) > 0 {
			parent = above[0]
		}
		return job.Lease{
			Devices: plan.UUIDs(), Parent: parent, Allocation: q.allocation(), Apart: q.whose.Apart, Share: plan.Share, Quota: plan.Quota,
			PID: q.whose.PID, Start: q.whose.Start, Namespace: host.Proc.Namespace(), Command: q.whose.Command, Since: now.Truncate(time.Millisecond),
			Kept: q.kept,
		}, nil
	})
	if err != nil && mine == nil && q.surprise() {
		call(host, q, folder, boot)
	}
	var refusal *job.Refusal
	if errors.As(err, &refusal) && q.line.name(host.Names) { // the same answer, with names in it
		if _, named := q.decide(q.seen.Held, q.seen.Last, now); named != nil {
			err = named
		}
	}
	return lease, err
}

// context collects what a decision needs besides the request, and notes about strange masks.
func (q *question) context(held []job.Lease, now time.Time) (in pick.Context, notes []visible.Note) {
	in = pick.Context{Now: now, UID: uint32(os.Geteuid()), Tolerate: q.rules.Tolerate, Allocation: q.allocation(), Trees: q.trees,
		Limits: q.rules.Limits, Endless: q.whose.PID != 0, Moving: q.spec.Moving}
	if q.spec.Any {
		return in, nil
	}
	in.Hidden, notes = q.hidden()
	in.Ancestors = q.within(held)
	if note := q.lost(held); note.Text != "" {
		notes = append(notes, note)
	}
	for i := range held {
		if len(in.Ancestors) > 0 && held[i].ID == in.Ancestors[0] {
			in.Parent = &held[i]
		}
	}
	return in, notes
}

// decide is the pure part, with everything it needs at hand.
func (q *question) decide(held []job.Lease, last []gpu.UUID, now time.Time) (job.Plan, *job.Refusal) {
	held = slices.Clone(held)
	for i := range held {
		if held[i].User = q.names[held[i].UID]; held[i].User == "" {
			held[i].User = fmt.Sprint(held[i].UID)
		}
	}
	in, notes := q.context(held, now)
	in.Last = last
	if q.line != nil {
		in.Kept, in.Waiting = q.line.kept, len(q.line.asked.Tickets) > 1
	}
	spec := q.spec
	if in.Own = q.own; len(spec.Devices) == 0 && spec.MIG == "" {
		spec.Devices = slices.DeleteFunc(q.machine.Under(q.own), func(id string) bool { // of the rest of its tree
			return slices.ContainsFunc(held, func(l job.Lease) bool { return l.Holds(gpu.UUID(id)) })
		})
		if len(spec.Devices) > 0 {
			spec.GPUs = 0
		}
	}
	plan, refusal := pick.Place(spec, q.machine, held, in)
	q.masked(refusal)
	if q.machine.Source == "nvidia-smi" { // why, and that it is slow
		plan.Notes = append(plan.Notes, q.machine.Problems...)
	}
	for _, n := range notes { // a mask with a surprise in it is the caller's, and they should know
		plan.Notes = append(plan.Notes, n.Text)
	}
	return plan, refusal
}

// stale compares what the answer rests on with the record of changes. Leases change nothing of what is read about an invented
// machine, but people drain its devices too, and write its file anew.
func (q *question) stale(v store.View, plan job.Plan, refusal *job.Refusal) bool {
	if refusal == nil && q.drainedSince(plan) {
		return true // also where there are to be no more rereads: the next one knows it
	}
	if q.last {
		return false
	}
	changed := func(id gpu.UUID) bool {
		return q.host.Hardware() && (v.Unknown || v.Changes[id].Generation > q.since)
	}
	if refusal == nil { // what has come without a lease since the reading is in no record
		return time.Since(q.read) > machine.Fresh || slices.ContainsFunc(plan.UUIDs(), changed)
	}
	if q.host.Hardware() { // an invented machine is read for each attempt
		if q.missing = q.appeared(v.Changes, known(q.machine)); len(q.missing) > 0 {
			return true
		}
	}
	// A device held by a lease is busy whatever the reading says; others may be free by now.
	return slices.ContainsFunc(refusal.Reasons, func(r job.Reason) bool {
		return r.Verdict == job.Busy && r.Lease == "" && changed(r.UUID)
	})
}

// lost is a note if the lease that GPUARD_LEASE names is over, while its variables still show its devices. It is the only
// sign for a shell whose holder was killed.
func (q *question) lost(held []job.Lease) (note visible.Note) {
	id, set := q.env.Lookup("GPUARD_LEASE")
	if !set || id == "" || q.host.PrivateState || slices.ContainsFunc(held, func(l job.Lease) bool { return l.ID == id }) {
		return note
	}
	return visible.Note{Code: visible.CodeLeaseGone, Text: fmt.Sprintf("lease %s, which GPUARD_LEASE names, is over: its GPUs may be another job's by now", gpu.Brief(gpu.Clean(id)))}
}

// within lists the lease this process, or the running one, is inside of and the leases that one is a part of, innermost first.
// A GPUARD_LEASE of another user, or of a lease that has ended, means nothing.
func (q *question) within(held []job.Lease) []string {
	next, _ := q.env.Lookup("GPUARD_LEASE")
	uid := uint32(os.Geteuid())
	var above []string
	for next != "" && !q.spec.Any && !slices.Contains(above, next) {
		i := slices.IndexFunc(held, func(l job.Lease) bool { return l.ID == next && l.UID == uid && !l.Unreadable })
		if i < 0 {
			break
		}
		above = append(above, next)
		next = held[i].Parent
	}
	return above
}

func (q *question) allocation() string {
	if q.spec.Any {
		return ""
	}
	return visible.Allocation(q.env)
}
