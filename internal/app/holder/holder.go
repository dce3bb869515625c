// Package holder runs a holder: the process beside a command that keeps its lease locked until the command
// has ended, and frees it then. It chooses nothing; gpuard run starts it with the lease's lock already open.
package holder

import (
	"cmp"
	"context"
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

// HoldLease runs a holder: it keeps a reference to the lock of the lease until the command is gone,
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
	touchEvery, patience := cmp.Or(host.Times.Touch, 24*time.Hour), cmp.Or(host.Times.Again, 15*time.Second)
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
		// The measuring goroutine ends the MPS daemon; after a very short command it may not have begun yet.
		defer func() { <-measured }()
	}

	expired := make(chan bool, 1)
	go func() {
		expired <- endExpired(w.Process(), folder, lease, &orders, patience*2/3, over)
	}()

	err = w.Wait(touchEvery, func() { folder.TouchLease(lease) })

	// The goroutines above still read lease, so it is not assigned anew.
	last := lease
	if err == nil && orders.Containers != nil {
		last = keepForContainers(folder, lease, orders.Containers, touchEvery)
	}

	close(over)
	if err != nil {
		return err
	}
	if !<-expired && keepForNextStart(w, folder, last, orders.NextStart, patience) {
		return w.DropLease()
	}

	defer folder.AnnounceEnd(last)()

	// First the lock, so that the next claim finds it free without this process.
	if err := w.DropLease(); err != nil {
		return err
	}

	// Beside containers the watched process is only the client of the engine, whose exit code says nothing.
	if orders.Containers == nil {
		recordOutcomeOnEnd(folder, w)
	}

	return endOrNoteHolders(folder, last, orders.Starter, patience)
}

// endOrNoteHolders removes the files of a lease, or writes down which processes still hold it. A gpuard that supervises
// the command (starter) then releases the lease itself, or starts the command again on it. Getppid would not always name that one: on a
// busy machine a short command ends while this process is still the child of the fork between the two.
func endOrNoteHolders(folder *store.Folder, lease job.Lease, starter int, patience time.Duration) error {
	gone, err := folder.EndIfUnheld(lease, lease.Boot)
	if err == nil && !gone && lease.Apart {
		gone, err = endWhenStarterExits(folder, lease, patience)
	}

	if err != nil || gone {
		return err
	}

	return registry.NoteHolders(proc.New("/proc"), folder, lease, starter)
}

// endWhenStarterExits ends a reservation, or the lease of a process that gpuard has not started: only the process that
// made it can hold its lock as well, until it exits.
func endWhenStarterExits(folder *store.Folder, lease job.Lease, patience time.Duration) (gone bool, err error) {
	for pause := time.Millisecond; !gone && err == nil && pause < patience; pause *= 2 {
		time.Sleep(pause)
		gone, err = folder.EndIfUnheld(lease, lease.Boot)
	}
	return gone, err
}

// recordOutcomeOnEnd makes the line of the history carry the exit code or the signal of the command.
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
func keepForContainers(folder *store.Folder, lease job.Lease, w *engine.Watch, touchEvery time.Duration) job.Lease {
	// TouchLease needs only the place of the file, which stays the same.
	first := lease
	tick := time.NewTicker(touchEvery)
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
