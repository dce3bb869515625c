package leases

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/holder"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/job"
	"gpuard/internal/host/daemonize"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/proc"
)

// ReserveFlag is the first argument of the process that a reservation is for: it sleeps until the time is over.
const ReserveFlag = "__reserve"

// Reserve leases for spec.Timeout, or until Release. spec.Name is what others see of it.
func Reserve(ctx context.Context, host *machine.Host, spec job.Spec) (*HeldLease, error) {
	self, err := host.Proc.Stat(os.Getpid())
	if err != nil {
		return nil, err
	}

	spec, err = claim.SettleQuota(ctx, host, spec, false)
	if err != nil {
		return nil, err
	}

	d, err := claim.Claim(ctx, host, spec, claim.Subject{PID: os.Getpid(), Start: self.Start, Command: spec.Name, Apart: true})
	if err != nil {
		return nil, err
	}

	defer d.Folder.Close() //nolint:errcheck // the holder has its own
	d.Unwatch()
	h := &HeldLease{Schema: reserveSchema, Lease: d.Held.Lease.ID, Plan: d.Plan, Until: new(time.Now().Add(spec.Timeout).Truncate(time.Second))}
	h.PID, err = handToSleeper(host, d, spec.Timeout)
	if err != nil {
		_ = d.Folder.Release(d.Held.Lease, d.Held.Lease.Boot)
		return nil, err
	}

	return h, nil
}

// handToSleeper gives the lease to a process that sleeps for so long.
func handToSleeper(host *machine.Host, d *claim.Decision, most time.Duration) (pid int, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return 0, err
	}

	defer null.Close() //nolint:errcheck // nothing was written
	p, err := daemonize.StartBackground(host.Name, host.Env, null, ReserveFlag, strconv.FormatInt(int64(most/time.Millisecond), 10))
	if err != nil {
		return 0, err
	}

	defer func() {
		if err != nil {
			_ = p.Kill()
		}
		_ = p.Release()
	}()

	pidfd, err := launch.OpenPidfd(p.Pid)
	if err != nil {
		return 0, err
	}

	defer pidfd.Close() //nolint:errcheck // the holder has its own
	stat, err := host.Proc.Stat(p.Pid)
	if err != nil {
		return 0, err
	}

	lease, err := d.Folder.TransferLease(d.Held.Lease, p.Pid, stat.Start, most)
	if err != nil {
		return 0, err
	}

	words, err := (&holder.Orders{Folder: d.Folder.Path, Lease: lease.ID, Starter: os.Getpid()}).Words()
	if err != nil {
		return 0, err
	}

	fd, err := launch.DupInheritable(d.Held.Lock)
	if err != nil {
		return 0, err
	}

	err = launch.StartHolderFor(pidfd, fd, words...)

	return p.Pid, err
}

// SleepOut is the life of the process of a reservation. A machine that sleeps does not stop its time.
func SleepOut(milliseconds string) error {
	if err := daemonize.BeginBackground("gpu-reserved"); err != nil {
		return err
	}
	most, err := strconv.ParseInt(milliseconds, 10, 64)
	if err != nil {
		return fmt.Errorf("cannot sleep: %w", err)
	}

	processes := proc.New("/proc")
	began, err := processes.Uptime()
	for err == nil {
		var now time.Duration
		now, err = processes.Uptime()
		left := began + time.Duration(most)*time.Millisecond - now
		if left <= 0 {
			break
		}

		time.Sleep(min(left, time.Minute))
	}

	return err
}

// wakeSleeper ends the process of a reservation that was given back.
func wakeSleeper(host *machine.Host, l job.Lease) {
	p, err := os.FindProcess(l.PID)
	if err != nil || !l.IsReservation() || l.Namespace != host.Proc.PIDNamespace() || !slices.Contains(host.Proc.Arguments(l.PID), ReserveFlag) || !host.Proc.IsAlive(l.PID, l.Start) {
		return
	}

	// It has nothing to clean up, and one that is just starting may miss another signal.
	_ = p.Kill()
	_ = p.Release()
}
