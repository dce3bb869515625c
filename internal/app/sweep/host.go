package sweep

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"gpuard/internal/app/exit"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/sys"
)

// hostFile names the host that runs the sweep. Its folder may be shared by several (NFS), and another one sees neither
// the runs that go on nor, on some file systems, the lock: it would do those runs at the same time.
const hostFile = "host"

// takeHost refuses the sweep of another host, and makes one without a host this one's. What another scheduler started
// has no host: it ends that itself before it goes on elsewhere.
func (s *Sweep) takeHost() error {
	if err := s.Host.Proc.CheckClock(); err != nil {
		return err
	}

	own := s.Host.HostFolder() + "\n" + s.Host.BootMark() + "\n"
	path := filepath.Join(s.Dir, hostFile)
	text, err := sys.ReadSome(path, 256)
	if errors.Is(err, os.ErrNotExist) && visible.Allocation(s.Host.Env) == "" {
		err = s.writeHost(own)
		if errors.Is(err, os.ErrExist) {
			// Another host was faster.
			text, err = sys.ReadSome(path, 256)
		} else {
			return err
		}
	}

	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !isSameHost(string(text), own):
		return exit.Usagef("cannot use %s: it is a sweep of the host %s, where its runs may go on; resume it there: gpuard sweep --resume %[1]s, or when nothing of it runs there any more: rm %[3]s",
			s.Dir, s.Host.NameOfHost(strings.TrimSpace(strings.SplitN(string(text), "\n", 2)[0])), path)
	}

	return nil
}

func (s *Sweep) writeHost(text string) error {
	dir, err := sys.OpenOwnFolder(s.Dir, 0)
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // nothing is written through it

	return dir.Write(hostFile, []byte(text), 0o600)
}

// isSameHost compares two texts of a hostFile: the name of a host's folder, and what tells one boot of it from all
// others, by which it is known under another name too. An earlier gpuard wrote the name alone.
func isSameHost(one, other string) bool {
	a, b := strings.Split(one+"\n", "\n"), strings.Split(other+"\n", "\n")
	return a[0] == b[0] || a[1] != "" && a[1] == b[1]
}
