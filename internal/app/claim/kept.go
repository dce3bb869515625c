package claim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/app/registry"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/policy"
)

// A lease that outlives its command (--keep-while FILE), for programs that are ended and started again as a matter of
// course, such as the kernels of Jupyter. The holder keeps it while FILE is there, and the next run of the same user
// with the same FILE and the same request takes it over, under the folder lock and without a word between the two
// processes.

// keptRequest is how the lease of a spec is recognised by the next start; nil where it is not kept. Where other rules
// bind the user by then, it is another request.
func keptRequest(host *machine.Host, spec job.Spec, limits policy.Limits) (*job.Kept, error) {
	if spec.KeepWhile == "" {
		return nil, nil //nolint:nilnil // not asked for
	}

	inside, _ := host.Env.Lookup("GPUARD_LEASE")

	// It may differ in what makes no difference, such as a port.
	spec.Command = nil
	limits = slices.Clone(limits)
	for i := range limits {
		// The place of a rule makes no difference either.
		limits[i].At, limits[i].Name = policy.Place{}, ""
	}

	request, err := json.Marshal(struct {
		job.Spec
		Inside string
		Limits policy.Limits
	}{spec, inside, limits})

	if err != nil {
		return nil, err
	}

	return &job.Kept{File: hashHex([]byte(spec.KeepWhile)), Request: hashHex(request)}, nil
}

func hashHex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// connectionFile is the last argument that names a file *.json, as a word of its own or after an =; "" for none. VS
// Code puts quotes around a path with blanks, and no shell removes them.
func connectionFile(command []string) (found string) {
	for _, word := range command[min(1, len(command)):] {
		if name, value, ok := strings.Cut(word, "="); ok && strings.HasPrefix(name, "-") {
			word = value
		}
		if len(word) > 1 && word[0] == '"' && word[len(word)-1] == '"' {
			word = word[1 : len(word)-1]
		}
		if info, err := os.Stat(word); err == nil && info.Mode().IsRegular() && filepath.Ext(word) == ".json" {
			found = word
		}
	}
	return found
}

// KeptFile finds the file that the lease of a spec is kept for.
func KeptFile(host *machine.Host, spec job.Spec) (string, error) {
	if !spec.IsKeptByKernel() {
		return realPath(spec.KeepWhile)
	}
	file := connectionFile(spec.Command)
	if file == "" {
		host.Say("no connection file is among the arguments of " + machine.BaseName(spec.Command) + ", so its lease ends with it, also at a restart")
		return "", nil
	}

	return realPath(file)
}

// realPath is the real place of a file that need not be there yet.
func realPath(path string) (string, error) {
	file, err := resolveFolder(path)
	if err != nil {
		return "", exit.Usagef("cannot use --keep-while %s: %v; name a file that is there as long as the command may be started again", path, err)
	}

	return file, nil
}

func resolveFolder(path string) (string, error) {
	whole, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}

	dir, err := filepath.EvalSymlinks(filepath.Dir(whole))
	if err != nil {
		return "", err
	}

	return filepath.Join(dir, filepath.Base(whole)), nil
}

// takeOverKept takes over the lease that an earlier start of the same left. One that is for another request is given
// back. The answer is nil where there is none.
func (c *claimer) takeOverKept(ctx context.Context) (*Decision, error) {
	q, kept := c.request, c.request.keptLease
	now, err := c.host.Proc.Uptime()
	if err != nil {
		return nil, err
	}

	// /proc/uptime is cut to hundredths of a second, and a lease has its begin in nanoseconds.
	now += 10 * time.Millisecond
	held, err := c.folder.TakeOverLease(c.boot, func(own []job.Lease) (other *job.Lease, take bool) {
		for _, l := range own {
			if l.Kept == nil || l.Kept.File != kept.File || l.Namespace != c.host.Proc.PIDNamespace() || registry.IsCommandAlive(c.host, l) {
				continue
			}

			if l.Kept.Request != kept.Request || q.spec.Timeout > 0 && int64(now) >= l.DueTime(q.spec.Timeout) {
				other = &l
				continue
			}

			l.PID, l.Start, l.Command, l.Ended, l.HeldBy, l.Kept = q.subject.PID, q.subject.Start, q.subject.Command, false, nil, kept
			l.Seen, l.SeenText = "", ""

			return &l, true
		}
		return other, false
	})

	if err != nil || held == nil {
		return nil, err
	}

	why, err := c.unfitReason(ctx, held.Lease.Devices)

	if err == nil && why == "" {
		q.plan = planOf(q.machine, held.Lease.Devices)
		q.plan.Share, q.plan.Quota, q.plan.Isolation = held.Lease.Share, held.Lease.Quota, q.spec.Isolate.Level()
		return q.newDecision(held, c.folder), nil
	}

	// No job may be started there now: the lease is of no use, and another is asked for.
	_ = c.folder.Release(held.Lease, c.boot)
	_ = held.Lock.Close()
	if err != nil {
		return nil, err
	}

	c.host.Say(fmt.Sprintf("%s: gave lease %s back; in line again", why, held.Lease.ID))

	return nil, err
}

// unfitReason says why no job may be started on the devices. Before it says so it reads all of the machine.
func (c *claimer) unfitReason(ctx context.Context, devices []gpu.UUID) (string, error) {
	q := c.request
	why := UnfitReason(q.machine, devices)
	if why == "" || !q.partial {
		return why, nil
	}

	err := c.rereadAll(ctx)
	if err != nil {
		return why, err
	}

	return UnfitReason(q.machine, devices), nil
}
