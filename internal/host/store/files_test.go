package store

import (
	"os"
	"path/filepath"

	"gpuard/internal/core/job"
	"gpuard/internal/host/sys"
)

// newLock is createLock by path, for tests.
func newLock(path string, content []byte) (*os.File, error) {
	dir, err := sys.FollowDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close() //nolint:errcheck // nothing is written through it
	return createLock(dir, filepath.Base(path), content)
}

// writeNew is sys.Dir.Write by path, for tests.
func writeNew(path string, data []byte, mode os.FileMode) error {
	dir, err := sys.FollowDir(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // nothing is written through it
	return dir.Write(filepath.Base(path), data, uint32(mode))
}

// dropPair removes a pair as a claim does, for tests.
func (f *Folder) dropPair(l *job.Lease, name string) error {
	root, err := f.openFolder()
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // nothing is written through it
	_, err = f.removePair(root, l, name)
	return err
}
