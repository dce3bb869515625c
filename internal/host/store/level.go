package store

import (
	"fmt"

	"gpuard/internal/core/job"
)

// Level records the quota of a lease of the caller from now on. It does nothing if the lease is gone.
func (f *Folder) Level(id string, q job.Quota) error {
	root, err := f.acquire()
	if err != nil {
		return err
	}
	defer f.release(root)
	l, found := f.Own(id)
	if !found || l.Quota == q {
		return nil
	}
	l.Quota = q
	if err := f.rewriteLease(root, l); err != nil {
		return fmt.Errorf("cannot note how hard the share of lease %s is kept: %w", id, err)
	}
	return nil
}
