package runner

import (
	"errors"
	"fmt"
	"io"
	"os"

	"gpuard/internal/app/machine"
	"gpuard/internal/host/journal"
)

// Places of the owners of a folder's lock in its file.
const (
	KeeperPlace = 0
	runnerPlace = 1
)

// WriteLockOwner records in the file of a folder's lock that this process has it.
func WriteLockOwner(host *machine.Host, lock *os.File, place int) error {
	self, err := host.Proc.Stat(os.Getpid())
	if err != nil {
		return fmt.Errorf("cannot read when this process started: %w", err)
	}
	return journal.WriteLockOwner(lock, place, os.Getpid(), self.Start)
}

// awaitConductorEnd waits for the end of the conductor. A sweep then starts nothing new, because nobody sees it. A
// queue goes on: who hands in a job finds the lock that this process has, too, and starts no other keeper.
func (r *runner) awaitConductorEnd() {
	_, _ = io.Copy(io.Discard, os.NewFile(lifeFD, "life"))
	r.alone.Store(true)
	if r.Keep == nil {
		r.cancel()
	}
}

// handOffLock lets the lock of the folder go, and starts another keeper where a job was handed in meanwhile. Who hands
// one in later finds no lock.
func (r *runner) handOffLock() error {
	more := false
	err := r.Journal.WithLock(func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		err := r.catchUp()
		more = err == nil && r.State.HasStartable()

		return errors.Join(err, r.Lock.Close())
	})
	if err == nil && more {
		err = r.Keep()
	}

	return err
}
