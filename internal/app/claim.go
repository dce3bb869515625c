package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

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
	app     *App
	whose   subject
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
	env     visible.Env      // whose masks, lease and allocation count
	own     []int            // processes of a running subject
	trees   map[string][]int // of shared leases
	kept    *job.Kept        // by what the next start recognises the lease; nil: it ends with its command
	rules   rules            // of the configuration files
	line    *line            // who else waits for the same devices; nil when nobody does
}

// subject is the process for whose life the lease is.
type subject struct {
	pid     int
	start   uint64
	command string // base name
	running bool   // it may be on devices already, and then those are meant; its own environment counts
	apart   bool   // gpuard does not become it
}

// decision is the answer to a request.
type decision struct {
	Plan    job.Plan
	Machine gpu.Machine
	Held    *store.Held // nil when nothing was recorded
	Folder  *store.Folder
	Watch   *os.File // what is left of watching the folder, for the holder to close (store.Watcher.Leave); nil: nothing
}

// decided is the answer to a question.
func (q *question) decided(held *store.Held, folder *store.Folder) *decision {
	return &decision{Plan: q.plan, Machine: q.machine, Held: held, Folder: folder}
}

// unwatch closes what is left of watching, where no holder does it. Nobody waits for that.
func (d *decision) unwatch() {
	if d.Watch != nil {
		go d.Watch.Close() //nolint:errcheck // nothing was written
	}
}

// claim leases what spec asks for. Where nothing is free now it tries what is wanted instead, or waits, or returns a
// *job.Refusal; a *job.Late when the time for waiting ran out.
func (a *App) claim(ctx context.Context, spec job.Spec, whose subject) (*decision, error) {
	q, folder, boot, err := a.ask(ctx, spec, whose)
	if err != nil {
		return nil, err
	}
	c := &claiming{app: a, question: q, folder: folder, boot: boot}
	var d *decision
	if q.kept, err = a.keptFor(spec, q.rules.limits); err == nil && q.kept != nil {
		d, err = c.succeed(ctx)
	}
	if err == nil && d == nil {
		d, err = c.claim(ctx)
	}
	if err != nil {
		_ = folder.Close()
		return nil, a.named(folder, err)
	}
	return d, nil
}

// claiming is one request on its way to a lease.
type claiming struct {
	app      *App
	question *question
	folder   *store.Folder
	boot     string
}

func (c *claiming) claim(ctx context.Context) (*decision, error) {
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

// now claims what is free, and looks again while the machine changes or something is about to end.
func (c *claiming) now(ctx context.Context) (*decision, error) {
	patience := c.question.patience()
	for stale := 0; ; {
		c.question.last = stale >= rereads
		held, err := c.app.record(c.question, c.folder, c.boot, nil)
		if err == nil {
			if c.question.partial {
				c.app.tellSilent(c.question.machine, 0)
			}
			return c.question.decided(held, c.folder), nil
		}
		var refusal *job.Refusal
		switch {
		case errors.Is(err, errStale):
			stale++
		case errors.As(err, &refusal) && c.question.partial && heldUp(c.question.machine, refusal):
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
		if err := c.read(ctx, c.app.machine); err != nil {
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
func (c *claiming) read(ctx context.Context, machine Reader) error {
	q, what, since := c.question, reading(c.question.spec), c.folder.Generation(c.boot)
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
	c.question.machine, err = c.app.whole(ctx, reading(c.question.spec))
	c.question.read = time.Now()
	return err
}

// ask reads the machine, after the count of changes so that a change meanwhile is noticed.
func (a *App) ask(ctx context.Context, spec job.Spec, whose subject) (*question, *store.Folder, string, error) {
	boot, err := a.Proc.BootID()
	if err != nil {
		return nil, nil, "", err
	}
	rules, err := a.rules()
	if err != nil {
		return nil, nil, "", err
	}
	var folder *store.Folder
	q := &question{app: a, whose: whose, spec: spec, env: a.unmasked(), rules: rules}
	if env, err := a.Proc.Environ(whose.pid); whose.running && err == nil {
		q.env, _, _ = visible.Env(env).Lift() // as far as it was not changed since its start, which cannot be seen
	}
	var unusable error
	if a.hardware() { // its folder does not depend on the devices; where there is none yet, nothing can have changed
		if folder, unusable = a.folder(gpu.Machine{}, false); folder != nil {
			q.since = folder.Generation(boot)
		}
	}
	if q.machine, q.partial, err = a.glance(ctx, reading(spec)); err != nil && q.partial {
		q.partial = false
		q.machine, err = a.whole(ctx, reading(spec))
	}
	q.read = time.Now()
	if err == nil { // where devices cannot be read at all, mending the folder would help nobody
		err = unusable
	}
	if err == nil && folder == nil {
		folder, err = a.folder(q.machine, true)
	} else if err == nil {
		path, _, _ := a.place(q.machine)
		err = a.shared(path)
	}
	if err == nil {
		if note := a.doubt(folder.Path); note != "" {
			a.Say(note)
		}
	}
	if err == nil && !folder.Claimed() {
		if note := a.unprotected(folder.Path, folder.Owner); note != "" {
			a.Say(note)
		}
	}
	return q, folder, boot, err
}

// reading is what a decision needs to know: how devices are connected, and to which processors, only where several are asked
// for, or several processes.
func reading(spec job.Spec) gpu.What {
	what := gpu.Identity | gpu.Load | gpu.Processes | gpu.Health
	if spec.GPUs > 1 || spec.Ranks != nil {
		what |= gpu.Links
	}
	return what
}

// record decides under the folder lock.
func (a *App) record(q *question, folder *store.Folder, boot string, mine *store.Waiting) (*store.Held, error) {
	held, _ := folder.Leases()
	q.names = a.ownerNames(held)
	q.trees = a.trees(held)
	if q.whose.running {
		q.own = a.Proc.Tree(q.whose.pid)
	}
	trace, err := a.openTrace()
	if err != nil {
		return nil, err
	}
	defer trace.write() // when the folder is not locked any more
	if mine != nil {    // it may have waited for long
		if rules, err := a.rules(); err == nil { // else a file is just being written, and the rules before it count
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
			Devices: given(plan), Parent: parent, Allocation: q.allocation(), Apart: q.whose.apart, Share: plan.Share, Quota: plan.Quota,
			PID: q.whose.pid, Start: q.whose.start, Namespace: a.Proc.Namespace(), Command: q.whose.command, Since: now.Truncate(time.Millisecond),
			Kept: q.kept,
		}, nil
	})
	if err != nil && mine == nil && q.surprise() {
		a.call(q, folder, boot)
	}
	var refusal *job.Refusal
	if errors.As(err, &refusal) && q.line.name(a.Names) { // the same answer, with names in it
		if _, named := q.decide(q.seen.Held, q.seen.Last, now); named != nil {
			err = named
		}
	}
	return lease, err
}

// context is what decides beside the request, and what is odd about masks.
func (q *question) context(held []job.Lease, now time.Time) (in pick.Context, notes []visible.Note) {
	in = pick.Context{Now: now, UID: uint32(os.Geteuid()), Tolerate: q.rules.tolerate, Allocation: q.allocation(), Trees: q.trees,
		Limits: q.rules.limits, Endless: q.whose.pid != 0, Moving: q.spec.Moving}
	if q.spec.Any {
		return in, nil
	}
	in.Hidden, notes = q.hidden()
	in.Ancestors = q.within(held)
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
		return q.app.hardware() && (v.Unknown || v.Changes[id].Generation > q.since)
	}
	if refusal == nil { // what has come without a lease since the reading is in no record
		return time.Since(q.read) > freshness || slices.ContainsFunc(given(plan), changed)
	}
	if q.app.hardware() { // an invented machine is read for each look
		if q.missing = q.appeared(v.Changes, known(q.machine)); len(q.missing) > 0 {
			return true
		}
	}
	// A device held by a lease is busy whatever the reading says; others may be free by now.
	return slices.ContainsFunc(refusal.Reasons, func(r job.Reason) bool {
		return r.Verdict == job.Busy && r.Lease == "" && changed(r.UUID)
	})
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

func (a *App) ownerNames(held []job.Lease) map[uint32]string {
	names := map[uint32]string{}
	for _, l := range held {
		if _, known := names[l.UID]; !known {
			names[l.UID] = a.Names(l.UID)
		}
	}
	return names
}

// named adds to a lock's PID whose it is: the package that knows the lock does not know processes.
func (a *App) named(folder *store.Folder, err error) error {
	var locked *store.LockedError
	if !errors.As(err, &locked) {
		return err
	}
	if top, uid, n := folder.Crowd(); n > 0 {
		return fmt.Errorf("%w; %s has put %d folders there that are read at each claim: sudo find %s -mindepth 1 -maxdepth 1 -user %s -delete",
			locked, a.Names(uid), n, top, a.Names(uid))
	}
	switch dev, ino, serr := folder.Lock(); {
	case locked.PID != 0:
		p := a.Proc.Describe(locked.PID)
		if p.Stopped {
			return fmt.Errorf("%w: it is %s's %s, which is stopped; continue it (kill -CONT %d) or ask its owner, then try again", locked, p.User, p.Command, p.PID)
		}
		return fmt.Errorf("%w: it is %s's %s; end it (kill %d) or ask its owner, then try again", locked, p.User, p.Command, p.PID)
	case locked.Hidden && serr == nil:
		for _, p := range a.Proc.OpenBy(dev, ino) {
			if p.PID != os.Getpid() {
				return fmt.Errorf("%w; %s's %s (process %d) has it open", locked, p.User, p.Command, p.PID)
			}
		}
	}
	return err
}
