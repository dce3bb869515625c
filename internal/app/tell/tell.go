// Package tell tells the owner of the machine what gpuard serve has found: in the log, on the owner's terminals and by
// a webhook; and it warns and ends outsiders as root's policy says. It decides nothing, and whoever calls it waits for
// no terminal, no network and no process.
//
//	o.Tell = tell.New(ctx, o.Host).Tell
package tell

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"gpuard/internal/app/leases"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/leftover"
	"gpuard/internal/core/policy"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/trend"
	"gpuard/internal/host/tty"
	"gpuard/internal/host/webhook"
)

// Notice is the body of a post.
type Notice struct {
	Schema string `json:"schema"` // "gpuard.trouble/1"
	trend.Trouble
	// Name of the machine.
	Host string    `json:"host"`
	Time time.Time `json:"time"`
}

// OwnerNotifier is who is told.
type OwnerNotifier struct {
	ctx   context.Context
	host  *machine.Host
	name  string // of the machine
	posts chan webhookPost

	terminals tty.DevRoot
	mu        sync.Mutex
	// The last post has failed, and that was said.
	failing bool
}

type webhookPost struct {
	address string
	body    []byte
}

const (
	// Posts at the same time.
	maxPostsAtOnce = 4
	// Posts that wait for that; further ones are left out.
	maxWaitingPosts = 64
	killGrace       = 10 * time.Second
)

// New makes the owner of a machine, which is told until ctx ends.
func New(ctx context.Context, host *machine.Host) *OwnerNotifier {
	name, _ := os.Hostname()

	// A host remembers the configuration, for one caller at a time.
	own := *host
	o := &OwnerNotifier{ctx: ctx, host: &own, name: name, posts: make(chan webhookPost, maxWaitingPosts), terminals: tty.DevRoot(host.Root)}
	for range maxPostsAtOnce {
		go o.deliverPosts()
	}

	return o
}

// TellTroubles tells troubles, and does what their level says.
func (o *OwnerNotifier) TellTroubles(rules policy.Watch, troubles []trend.Trouble) {
	for _, t := range troubles {
		if t.Level == policy.End {
			go o.endOutsider(rules, t)
			continue
		}
		o.tellOnce(rules, t)
		if t.Outsider != nil && t.Level == policy.Warn {
			o.terminals.TellProcess(t.Outsider.PID, t.Outsider.Start, t.Outsider.UID, o.terminalLine(t.Outsider.Warning))
		}
	}
}

// terminalLine is a text as it is shown on a terminal that is not this process's.
func (o *OwnerNotifier) terminalLine(text string) string { return "gpuard on " + o.name + ": " + text }

// tellOnce tells one trouble once in each way.
func (o *OwnerNotifier) tellOnce(rules policy.Watch, t trend.Trouble) {
	o.host.Say(t.Text)
	if t.Again || !t.Level.AtLeast(policy.Report) || !o.host.IsHardware() {
		return
	}

	o.terminals.TellUser(uint32(os.Geteuid()), o.terminalLine(t.Text), tty.OwnTerminal()) //nolint:gosec // a uid
	if rules.Webhook == "" {
		return
	}

	body, err := json.Marshal(Notice{"gpuard.trouble/1", t, o.name, time.Now().UTC()})
	if err != nil {
		return
	}

	select {
	case o.posts <- webhookPost{rules.Webhook, body}:
	default:
		o.notePostResult(fmt.Errorf("cannot post to the webhook: %d posts wait for it already", maxWaitingPosts))
	}
}

// deliverPosts posts what waits, one after the other.
func (o *OwnerNotifier) deliverPosts() {
	for {
		select {
		case <-o.ctx.Done():
			return
		case p := <-o.posts:
			err := webhook.Post(o.ctx, p.address, p.body)
			if o.ctx.Err() == nil {
				o.notePostResult(err)
			}
		}
	}
}

// notePostResult notes how the last post went. A failure is said once, until one has arrived.
func (o *OwnerNotifier) notePostResult(err error) {
	o.mu.Lock()
	before := o.failing
	o.failing = err != nil
	o.mu.Unlock()
	if err != nil && !before {
		o.host.Say(err.Error() + "; what is wrong is still told here")
	}
}

// endOutsider ends an outsider and tells what became of it.
func (o *OwnerNotifier) endOutsider(rules policy.Watch, t trend.Trouble) {
	p := t.Outsider
	host := *o.host
	done, err := leases.EvictUnleased(o.ctx, &host, p.PID, p.Start, p.UID, min(killGrace, rules.Grace))
	if o.ctx.Err() != nil {
		return
	}

	t.Text, t.Level = outcomeText(p, done, err), policy.Report

	// That it could not be ended is posted once, and then its end.
	t.Again = t.Again && !done.Gone
	o.tellOnce(rules, t)
}

func outcomeText(p *trend.Outsider, done leftover.Eviction, err error) string {
	switch {
	case err != nil:
		return prose.Clean(err.Error())
	case !done.Gone:
		return fmt.Sprintf("cannot end process %d of %s (%s), which uses %s without a lease: %s", p.PID, p.User, p.Program, p.Place, done.Why)
	}
	return fmt.Sprintf("process %d of %s (%s) was ended: it used %s without a lease", p.PID, p.User, p.Program, p.Place)
}
