package store

import (
	"fmt"

	"gpuard/internal/core/job"
)

// NoteSeen records where the job of a lease of the caller was seen at work. It does nothing if the lease is gone.
func (f *Folder) NoteSeen(id, verdict, text string) error {
	root, err := f.lockFolder()
	if err != nil {
		return err
	}

	defer f.unlockFolder(root)
	l, found := f.Own(id)
	if !found || l.Seen == verdict && l.SeenText == text {
		return nil
	}

	l.Seen, l.SeenText = verdict, text
	err = f.rewriteLease(root, l)
	if err != nil {
		return fmt.Errorf("cannot note where the job of lease %s works: %w", id, err)
	}

	return nil
}

// SetQuota records the quota of a lease of the caller from now on. It does nothing if the lease is gone.
func (f *Folder) SetQuota(id string, q job.Quota) error {
	root, err := f.lockFolder()
	if err != nil {
		return err
	}

	defer f.unlockFolder(root)
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
