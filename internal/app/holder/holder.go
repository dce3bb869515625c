// Package holder is the life of a holder: the process beside a command that keeps its lease locked until the command
// has ended, and frees it then. It chooses nothing; gpuard run starts it with the lease's lock already open.
package holder

import (
	"cmp"
	"context"
	"os"
	"time"

	"gpuard/internal/app/engine"
	"gpuard/internal/app/machine"
	"gpuard/internal/app/measure"
	"gpuard/internal/app/registry"
	"gpuard/internal/core/job"
	"gpuard/internal/host/daemonize"
	"gpuard/internal/host/isolation"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/proc"
	"gpuard/internal/host/store"
)

// HoldLease is the life of a holder process: it keeps a reference to the lock of the lease until the command is gone,
// removes the lease, and records the processes that still hold it. words are a pidfd, the descriptor of the lock, the
// state folder and the lease. It touches the lease once a day, because systemd-tmpfiles removes old files.
func HoldLease(_ context.Context, host *machine.Host, words []string, orders Orders) error {
	orders.Folder, orders.Lease = words[2], words[3]
	w, err := launch.InheritWatch(words[0], words[1])
	if err != nil {
		return err
	}

	daemonize.IgnoreEndSignals("gpu-holder")
	folder, err := store.Open(orders.Folder, nil, time.Minute)
	if err != nil {
		return err
	}

	host.NoteEnds(folder)
	touch, most := cmp.Or(host.Times.Touch, 24*time.Hour), cmp.Or(host.Times.Again, 15*time.Second)
	lease, found := folder.Own(orders.Lease)
	if !found {
		// Released before we looked.
		return nil
	}

	if lease.Isolation == job.Cgroup {
		// After the lock is free: the next claim does not wait for it.
		defer isolation.SweepGroups()
	}

	over, measured := make(chan struct{}), make(chan struct{})
	go func() {
		measure.GuardLease(host, w.Process(), folder, lease, over)
		close(measured)
	}()

	if lease.Quota == job.MPS {
		// What measures ends the daemon, and may not even have begun when the command was short.
		defer func() { <-measured }()
	}

	expired := make(chan bool, 1)
	go func() {
		expired <- endExpired(w.Process(), folder, lease, &orders, most*2/3, over)
	}()

	err = w.Wait(touch, func() { folder.TouchLease(lease) })

	// The goroutines above still read lease, so it is not assigned anew.
	last := lease
	if err == nil && orders.Containers != nil {
		last = keepForContainers(folder, lease, orders.Containers, touch)
	}

	close(over)
	if err != nil {
		return err
	}
	if !<-expired && keepForNextStart(w, folder, last, orders.NextStart, most) {
		return w.DropLease()
	}

	defer folder.AnnounceEnd(last)()

	// First the lock, so that the next claim finds it free without this process.
	if err := w.DropLease(); err != nil {
		return err
	}

	if orders.Containers == nil {
		// Of a container, the watched process is only the engine's client, whose exit code says nothing.
		recordOutcomeOnEnd(folder, w)
	}

	return endOrNoteHolders(folder, last, most)
}

// endOrNoteHolders removes the files of a lease, or writes down which processes still hold it. A supervising gpuard
// releases it then itself, or starts the command again with it.
func endOrNoteHolders(folder *store.Folder, lease job.Lease, most time.Duration) error {
	gone, err := folder.EndIfUnheld(lease, lease.Boot)
	if err == nil && !gone && lease.Apart {
		gone, err = endWhenStarterExits(folder, lease, most)
	}

	if err != nil || gone {
		return err
	}

	return registry.NoteHolders(proc.New("/proc"), folder, lease, os.Getppid())
}

// endWhenStarterExits ends a reservation, or the lease of a process that gpuard has not started: only who began it can
// have its lock too, until its exit.
func endWhenStarterExits(folder *store.Folder, lease job.Lease, most time.Duration) (gone bool, err error) {
	for pause := time.Millisecond; !gone && err == nil && pause < most; pause *= 2 {
		time.Sleep(pause)
		gone, err = folder.EndIfUnheld(lease, lease.Boot)
	}
	return gone, err
}

// recordOutcomeOnEnd has the line of the history say how the command ended.
func recordOutcomeOnEnd(folder *store.Folder, w *launch.HolderWatch) {
	write := folder.Ended
	folder.Ended = func(list []store.EndedLease) {
		for i := range list {
			list[i].Lease.Exit, list[i].Lease.Signal = w.Outcome()
		}
		write(list)
	}
}

// keepForContainers keeps the lease until no container of it lives. Meanwhile the lease is that of the container's
// first process.
func keepForContainers(folder *store.Folder, lease job.Lease, w *engine.Watch, touch time.Duration) job.Lease {
	// Where its file is does not change.
	first := lease
	tick := time.NewTicker(touch)
	defer tick.Stop()
	go func() {
		for range tick.C {
			folder.TouchLease(first)
		}
	}()

	processes := proc.New("/proc")
	w.AwaitEnd(context.Background(), func(pid int) {
		s, err := processes.Stat(pid)
		if err != nil || lease.PID == pid && lease.Start == s.Start {
			return
		}

		now, err := folder.TransferLease(lease, pid, s.Start, 0)
		if err != nil {
			return
		}

		lease = now
	})

	return lease
}
