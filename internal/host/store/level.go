package store

import (
	"fmt"

	"gpuard/internal/core/job"
)

// Level records how hard the share of one's own lease is kept from now on. A lease that has ended stays away.
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
