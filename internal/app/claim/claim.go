// Package claim turns a request into a lease: it reads the machine, decides under the folder lock, waits in the queue
// where that is wanted, and prepares the variables. It does not start commands.
//
//	d, err := claim.Claim(ctx, host, spec, claim.Subject{PID: os.Getpid(), Start: self.Start, Command: "python"})
//	if err != nil { ... } // *job.Refusal: why not; *job.Late: --wait ran out
//	vars, err := claim.LeaseVariables(ctx, host, spec, d)
package claim

import (
	"cmp"
	"context"
	"errors"
	"os"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/app/registry"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/isolate"
	"gpuard/internal/core/job"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/isolation"
	"gpuard/internal/host/store"
)

// rereads is how often a device that changed after the reading is read again.
const rereads = 3

// errStale says that a device of the answer changed between the reading and the folder lock.
var errStale = errors.New("the machine changed while it was being read")

// request is one request and what was read for it.
type request struct {
	host    *machine.Host
	subject Subject
	spec    job.Spec
	machine gpu.Machine
	readAt  time.Time // when machine was
	// When each device was read that was not read again then.
	older map[gpu.UUID]readMoment
	// The answer has no more than the identity of devices that the request does not name.
	narrow bool
	names  map[uint32]string
	since  store.Generation
	// Some devices were late, and were not waited for.
	partial bool
	// No more rereads: decide on what there is.
	final bool
	// Devices that others have seen since, and that machine does not have.
	absent []gpu.UUID
	// Those that cannot be seen from here (a container).
	invisible map[gpu.UUID]bool
	view      store.View
	// A lease of those that were seen does not end by itself, though its command is gone.
	stuckLease bool
	plan       job.Plan
	// Its masks, lease and allocation count.
	env visible.Env
	// Processes of a running subject.
	own   []int
	trees map[string][]int // of shared leases
	// What the next start recognises the lease by; nil: it ends with its command.
	keptLease *job.Kept
	// The rules of the configuration files.
	rules machine.Rules
	// The queue for the same devices; nil if it is empty.
	queue *queueView
}

// Subject is the process that the lease is for: it ends with the process.
type Subject struct {
	PID     int
	Start   uint64
	Command string // base name
	// It may be on devices already, and then those are meant; its own environment counts.
	Running bool
	// gpuard does not become it.
	Apart bool
}

// Decision is the answer to a request.
type Decision struct {
	Plan    job.Plan
	Machine gpu.Machine
	// nil when nothing was recorded.
	Held   *store.Held
	Folder *store.Folder
	// That the command is started behind (LeaseVariables).
	Wall isolation.Wall
	// What is left of watching the folder, for the holder to close (store.Watcher.Leave); nil: nothing.
	Watch *os.File
}

// newDecision is the answer to a question.
func (q *request) newDecision(held *store.Held, folder *store.Folder) *Decision {
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
	q, folder, boot, err := newRequest(ctx, host, spec, whose, firstQuery(host, spec, whose))
	if refusal := unavailableRefusal(spec, err); refusal != nil {
		return useCPU(host, refusal), nil
	}
	if err != nil {
		return nil, err
	}

	c := &claimer{host: host, request: q, folder: folder, boot: boot}
	var d *Decision
	q.keptLease, err = keptRequest(host, spec, q.rules.Limits)
	if err == nil && q.keptLease != nil {
		d, err = c.takeOverKept(ctx)
	}

	if err == nil && d == nil {
		d, err = c.claimOrWait(ctx)
	}

	if err != nil {
		_ = folder.Close()
		return nil, registry.NameLockHolder(host, folder, err)
	}

	if d.Held == nil {
		// Fallen back to the CPU.
		_ = folder.Close()
	}

	return d, nil
}

// claimer is one request on its way to a lease.
type claimer struct {
	host    *machine.Host
	request *request
	folder  *store.Folder
	boot    string
}

func (c *claimer) claimOrWait(ctx context.Context) (*Decision, error) {
	d, err := c.claimNow(ctx)
	var refusal *job.Refusal
	if errors.As(err, &refusal) {
		d, err = c.fallBack(ctx, refusal)
	}

	if errors.As(err, &refusal) && !refusal.Never && c.request.spec.Waiting.Waits() {
		d, err = c.waitInQueue(ctx, refusal)
	}

	return d, err
}

// claimNow claims what is free. It tries again while the machine changes or a lease is about to end.
func (c *claimer) claimNow(ctx context.Context) (*Decision, error) {
	patience := c.request.newPatience()

	// Of an earlier attempt for something else.
	c.request.final = false

	for stale := 0; ; {
		held, err := claimLocked(c.host, c.request, c.folder, c.boot, nil)
		if err == nil {
			if c.request.partial {
				c.host.ReportSilent(c.request.machine, 0)
			}
			return c.request.newDecision(held, c.folder), nil
		}

		var refusal *job.Refusal
		refused, isStale, why := errors.As(err, &refusal), errors.Is(err, errStale), mayHaveChanged
		switch {
		case (refused || isStale) && c.request.narrow:
			// The answer rests on other devices, too.
			if err := c.readWhole(ctx); err != nil {
				return nil, err
			}
			continue
		case isStale:
			why, stale = readingTooOld, stale+1
			c.request.final = stale >= rereads
		case refused && c.request.partial && machine.SilentMatters(c.request.machine, refusal):
			if err := c.rereadAll(ctx); err != nil {
				return nil, err
			}
			continue
		case refused && c.endsSoon(&patience, refusal):
			if err := patience.waitPause(ctx); err != nil {
				return nil, err
			}
		case refused:
			return nil, c.request.withHolders(c.folder, refusal)
		default:
			return nil, err
		}

		if err := c.rereadChanged(ctx, why, c.host.ReadFor); err != nil {
			return nil, err
		}
	}
}

// endsSoon reports whether what is in the way is about to be over. What may take seconds is waited for in the line, or
// others would go before.
func (c *claimer) endsSoon(p *retryLimit, refusal *job.Refusal) bool {
	e := c.request.firstEnding(refusal)
	return (e == endingLease || !c.request.spec.Waiting.Waits()) && p.shouldRetry(e)
}

// newRequest reads the machine, after the count of changes so that a change meanwhile is noticed.
func newRequest(ctx context.Context, host *machine.Host, spec job.Spec, whose Subject, first gpu.Query) (*request, *store.Folder, string, error) {
	boot, err := host.Proc.BootID()
	if err != nil {
		return nil, nil, "", err
	}

	rules, err := host.Rules()
	if err != nil {
		return nil, nil, "", err
	}

	rule, err := host.IsolationRule()
	if err != nil {
		return nil, nil, "", err
	}

	refusal := isolate.Unwalled(spec.Isolate.Level(), rule)
	if refusal != nil {
		return nil, nil, "", refusal
	}

	var folder *store.Folder
	q := &request{host: host, subject: whose, spec: spec, env: host.UnmaskedEnv(), rules: rules, narrow: first.Only != nil}
	if env, err := host.Proc.Environ(whose.PID); whose.Running && err == nil {
		// As far as it was not changed since its start, which cannot be seen.
		q.env, _, _ = visible.Env(env).LiftLogin()
	}

	var unusable error
	if host.IsHardware() {
		// Its folder does not depend on the devices; where there is none yet, nothing can have changed.
		folder, unusable = host.Folder(gpu.Machine{}, false)
		if folder != nil {
			q.since = folder.Generation(boot)
		}
	}

	q.machine, q.partial, err = readFirst(ctx, host, first)
	q.readAt = time.Now()
	if err != nil {
		return q, folder, boot, err
	}
	if unusable != nil {
		// Only now: if no device can be read, a usable folder would not help.
		return q, folder, boot, unusable
	}

	if folder == nil {
		folder, err = host.Folder(q.machine, true)
	} else {
		path, _, _ := host.StateFolder(q.machine)
		err = host.CheckShared(path)
	}

	if err != nil {
		return q, folder, boot, err
	}

	sayFolderNotes(host, folder)

	return q, folder, boot, nil
}

// sayFolderNotes says how others may share the GPUs of this machine, and before the first claim who owns the folder.
func sayFolderNotes(host *machine.Host, folder *store.Folder) {
	if note := host.SharingNote(folder.Path); note != "" {
		host.Say(note)
	}
	if folder.HasClaimed() {
		return
	}
	if note := host.OwnerNote(folder.Path, folder.Owner); note != "" {
		host.Say(note)
	}
}

// WhatToRead is what a decision needs to know: how devices are connected, and to which processors, only where several
// are asked for, or several processes.
func WhatToRead(spec job.Spec) gpu.What {
	what := gpu.Identity | gpu.Quick | gpu.Processes | gpu.Faults | gpu.Deciding
	if spec.GPUs > 1 || spec.Ranks != nil {
		what |= gpu.Links
	}
	return what
}

// claimLocked decides under the folder lock.
func claimLocked(host *machine.Host, q *request, folder *store.Folder, boot string, mine *store.Waiting) (*store.Held, error) {
	held, _ := folder.Leases()
	q.names = registry.OwnerNames(host, held)
	q.readTrees(held)
	if q.subject.Running {
		q.own = host.Proc.ProcessTree(q.subject.PID)
	}

	trace, err := openTrace(host)
	if err != nil {
		return nil, err
	}

	// When the folder is not locked any more.
	defer trace.writeDecisions()
	if mine != nil {
		// It may have waited for long.
		if rules, err := host.Rules(); err == nil {
			// Else a file is just being written, and the rules before it count.
			q.rules = rules
		}
	}

	now := time.Now()
	lease, err := folder.Claim(boot, mine, func(v store.View) (job.Lease, error) {
		q.view = v
		if q.narrow && len(v.Tickets) > 0 {
			// Whose turn it is rests on all devices.
			return job.Lease{}, errStale
		}
		if err := q.refuseIfHeld(v.Held, now); err != nil {
			return job.Lease{}, err
		}

		q.queue = q.viewQueue(v, mine, now)
		plan, refusal := q.decidePlan(v.Held, v.Last, now)
		if q.queue.mayStart() && q.isStale(v, plan, refusal) {
			return job.Lease{}, errStale
		}

		q.queue.storeTurn(&v, refusal)
		trace.addDecision(q.queue, plan, refusal)
		if refusal != nil {
			return job.Lease{}, refusal
		}

		q.plan = plan
		parent := ""
		if above := q.enclosingLeases(v.Held); len(above) > 0 {
			parent = above[0]
		}

		return job.Lease{
			Devices: plan.UUIDs(), Parent: parent, Allocation: q.allocationID(), Apart: q.subject.Apart, Share: plan.Share, Quota: plan.Quota, Isolation: plan.Isolation,
			PID: q.subject.PID, Start: q.subject.Start, Namespace: host.Proc.PIDNamespace(), Command: q.subject.Command, Since: now.Truncate(time.Millisecond),
			Kept: q.keptLease, Indexes: deviceIndexes(plan), Memory: q.spec.Memory, Time: cmp.Or(q.spec.Time, q.spec.Timeout),
		}, nil
	})

	if err != nil && mine == nil && q.foundReady() {
		wakeQueue(host, q, folder, boot)
	}

	return lease, q.completeRefusal(err, now)
}

// completeRefusal is a refusal with the names of users in it, and with a lease of this shell that is over: its mask may
// be what hides other devices. Any other error stays as it is.
func (q *request) completeRefusal(err error, now time.Time) error {
	var refusal *job.Refusal
	if !errors.As(err, &refusal) {
		return err
	}

	if q.queue.nameOwners(q.host.Names) {
		if _, named := q.decidePlan(q.view.Held, q.view.Last, now); named != nil {
			err = named
		}
	}

	if note := q.lostLease(q.view.Held); note.Text != "" && errors.As(err, &refusal) {
		refusal.Remedy += "; " + note.Text + ", and the mask of this shell may be from it: add --any"
	}

	return err
}
