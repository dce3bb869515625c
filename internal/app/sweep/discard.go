package sweep

import (
	"os"
	"path/filepath"

	"gpuard/internal/host/sys"
)

// discardFolder removes what the sweep made in its folder, and the folder if nothing else is in it. That it is still
// the same folder is told by the lock: where others may write in the folder above, they could have put another one in
// its place.
func (s *Sweep) discardFolder() {
	root, err := os.OpenRoot(s.Dir)
	if err != nil {
		return
	}

	defer root.Close() //nolint:errcheck // nothing is written through it
	mine, err := s.Lock.Stat()
	if err != nil {
		return
	}
	if there, err := root.Lstat(lockFile); err != nil || !os.SameFile(mine, there) {
		return
	}

	for _, name := range []string{"runs", journalFile, requestFile, hostFile, lockFile} {
		_ = root.RemoveAll(name)
	}

	above, err := sys.FollowDir(filepath.Dir(s.Dir))
	if err != nil {
		return
	}

	_ = above.Rmdir(filepath.Base(s.Dir))
	_ = above.Close()
}
