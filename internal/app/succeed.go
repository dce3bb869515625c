package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/core/job"
	"gpuard/internal/core/policy"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/proc"
	"gpuard/internal/host/store"
)

// A lease that outlives its command (--keep-while FILE), for programs that are ended and started again as a matter of course,
// such as the kernels of Jupyter. The holder keeps it while FILE is there, and the next run of the same user with the same
// FILE and the same request takes it over, under the folder lock and without a word between the two processes.

// keptFor is how the lease of a spec is recognised by the next start; nil where it is not kept. Where other rules bind the user
// by then, it is another request.
func (a *App) keptFor(spec job.Spec, limits policy.Limits) (*job.Kept, error) {
	if spec.KeepWhile == "" {
		return nil, nil //nolint:nilnil // not asked for
	}
	inside, _ := a.Env.Lookup("GPUARD_LEASE")
	spec.Command = nil // it may differ in what makes no difference, such as a port
	limits = slices.Clone(limits)
	for i := range limits {
		limits[i].At, limits[i].Name = policy.Place{}, "" // where they stand makes no difference either
	}
	request, err := json.Marshal(struct {
		job.Spec
		Inside string
		Limits policy.Limits
	}{spec, inside, limits})
	if err != nil {
		return nil, err
	}
	return &job.Kept{File: digest([]byte(spec.KeepWhile)), Request: digest(request)}, nil
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// connectionFile is the last file *.json that is named by an argument, as a word of its own or behind an =; "" for none.
// VS Code puts quotes around a path with blanks, which only the kernel takes off.
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

// kept finds the file that the lease of a spec is kept for.
func (a *App) kept(spec job.Spec) (string, error) {
	if spec.KeepWhile != job.OfKernel {
		return resolved(spec.KeepWhile)
	}
	file := connectionFile(spec.Command)
	if file == "" {
		a.Say("no connection file is among the arguments of " + baseName(spec.Command) + ", so its lease ends with it, also at a restart")
		return "", nil
	}
	return resolved(file)
}

// resolved is the real place of a file that need not be there yet.
func resolved(path string) (string, error) {
	whole, err := filepath.Abs(path)
	if err == nil {
		var dir string
		if dir, err = filepath.EvalSymlinks(filepath.Dir(whole)); err == nil {
			return filepath.Join(dir, filepath.Base(whole)), nil
		}
	}
	return "", usagef("cannot use --keep-while %s: %v; name a file that is there as long as the command may be started again", path, err)
}

// succeed takes over the lease that an earlier start of the same left. One that is for another request is given back. The
// answer is nil where there is none.
func (c *claiming) succeed(ctx context.Context) (*decision, error) {
	q, kept := c.question, c.question.kept
	now, err := c.app.Proc.Uptime()
	if err != nil {
		return nil, err
	}
	held, err := c.folder.Succeed(c.boot, func(own []job.Lease) (other *job.Lease, take bool) {
		for _, l := range own {
			if l.Kept == nil || l.Kept.File != kept.File || l.Namespace != c.app.Proc.Namespace() || c.app.commandAlive(l) {
				continue
			}
			if l.Kept.Request != kept.Request || q.spec.Timeout > 0 && int64(now) >= due(l, q.spec.Timeout) {
				other = &l
				continue
			}
			l.PID, l.Start, l.Command, l.Ended, l.HeldBy, l.Kept = q.whose.pid, q.whose.start, q.whose.command, false, nil, kept
			return &l, true
		}
		return other, false
	})
	if err != nil || held == nil {
		return nil, err
	}
	why := unfit(q.machine, held.Lease.Devices)
	if why != "" && q.partial {
		if err = c.readWhole(ctx); err == nil {
			why = unfit(q.machine, held.Lease.Devices)
		}
	}
	if err == nil && why == "" {
		q.plan = planOf(q.machine, held.Lease.Devices)
		q.plan.Share, q.plan.Quota = held.Lease.Share, held.Lease.Quota
		return q.decided(held, c.folder), nil
	}
	// No job may be started there now: the lease is of no use, and another is asked for.
	_ = c.folder.Release(held.Lease, c.boot)
	_ = held.Lock.Close()
	if err == nil {
		c.app.Say(fmt.Sprintf("%s: gave lease %s back; in line again", why, held.Lease.ID))
	}
	return nil, err
}

// outlive keeps the lease of a command that has ended while a next start of it may come, and reports whether the lease is
// somebody else's business now. args are those of afterlife.
func outlive(w *launch.Watch, folder *store.Folder, lease job.Lease, args []string, most time.Duration) bool {
	if len(args) == 0 {
		return false
	}
	parent, err := sameProcess(args[1], args[2])
	if err != nil {
		return false
	}
	defer parent.Close()                                                        //nolint:errcheck // close-on-exec anyway
	_ = folder.Await(lease, time.Now().Add(most).Truncate(time.Second), w.Gone) // for people; it is kept all the same
	w.Linger(args[0], parent, most, most/15)
	return w.Gone()
}

// sameProcess opens a process that is named by number and start.
func sameProcess(number, start string) (*os.File, error) {
	pid, err := strconv.Atoi(number)
	if err != nil {
		return nil, err
	}
	pidfd, err := launch.Pidfd(pid)
	if err != nil {
		return nil, err
	}
	if s, err := proc.New("/proc").Stat(pid); err != nil || strconv.FormatUint(s.Start, 10) != start {
		_ = pidfd.Close()
		return nil, fmt.Errorf("process %d is another one", pid)
	}
	return pidfd, nil
}
