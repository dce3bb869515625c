// Package projectdir keeps the wanted and the actual state of the services of a project: small files and locks in a
// folder that only its owner can enter. Each living supervisor, keeper and command holds a lock, which the kernel drops
// when the process ends. A change of a file or the end of a lock wakes the watchers. The package decides nothing and
// starts nothing.
//
//	f, err := project.MakeFolder(top, project.ID(file))
//	lock, err := f.Edit(time.Second)
//	wanted, err := f.ReadWanted() // change it, then:
//	err = f.SetWanted(wanted)
//	lock.Release()
package projectdir

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"gpuard/internal/host/sys"
)

// Folder is the folder of one project.
type Folder struct{ Path string }

// The names of its files and folders.
const (
	wantedFile      = "project.json"
	environmentFile = "environment"
	placementFile   = "placement.json"
	editLock        = "edit"
	supervisorLock  = "supervisor"
	instancesFolder = "instances"
	recordFile      = "record.json"
	endFile         = "end"
	hurryFile       = "now"
	// Held by the keeper alone.
	keeperLock = "lock"
	// Held by the command too, and by what that starts.
	lifeLock = "life"
	logFile  = "log"
)

// ID returns the name of the project of a file. It depends on the file's absolute path, not on its content.
func ID(file string) string {
	clean := strings.Map(func(r rune) rune {
		if strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789_-", r) {
			return r
		}
		return '-'
	}, strings.ToLower(filepath.Base(filepath.Dir(file))))
	sum := sha256.Sum256([]byte(file))
	return clean[:min(len(clean), 32)] + "-" + hex.EncodeToString(sum[:6])
}

// MakeFolder opens the folder of a project in top. It makes the folder and top if they are missing, but no folder above
// top.
func MakeFolder(top, id string) (*Folder, error) {
	path := filepath.Join(top, id)
	for _, dir := range []string{top, path, filepath.Join(path, instancesFolder)} {
		if err := makeMissingFolder(dir); err != nil {
			return nil, fmt.Errorf("cannot make the project's folder: %w; set GPUARD_STATE to a folder that you can write", err)
		}
		if err := checkPrivate(dir); err != nil {
			return nil, err
		}
	}
	return &Folder{path}, nil
}

// makeMissingFolder makes one folder, where it is missing.
func makeMissingFolder(dir string) error {
	dir = filepath.Clean(dir)
	above, err := sys.FollowDir(filepath.Dir(dir))
	if err != nil {
		return err
	}

	defer above.Close() //nolint:errcheck // nothing is written through it
	if err := above.Mkdir(filepath.Base(dir), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}

	return nil
}

// Open opens the folder of a project. The error is os.ErrNotExist if there is none.
func Open(path string) (*Folder, error) {
	for _, dir := range []string{filepath.Dir(path), path, filepath.Join(path, instancesFolder)} {
		if err := checkPrivate(dir); err != nil {
			return nil, err
		}
	}
	return &Folder{path}, nil
}

// checkPrivate returns an error for a folder that other users could have filled.
func checkPrivate(dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return fmt.Errorf("cannot use the project's folder: %w", &os.PathError{Op: "open", Path: dir, Err: err})
	}

	switch {
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("cannot use the project's folder: %w", &sys.ForeignError{Path: dir, UID: st.Uid})
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("cannot use the project's folder %s: it is not a folder; remove it", dir)
	case st.Mode&0o077 != 0:
		return fmt.Errorf("cannot use the project's folder %s: others may enter it; chmod 700 %s", dir, dir)
	}

	return nil
}

// ID returns the id of the project, see the function ID.
func (f *Folder) ID() string { return filepath.Base(f.Path) }

// Instances lists the instances that have a folder.
func (f *Folder) Instances() []string {
	entries, _ := os.ReadDir(filepath.Join(f.Path, instancesFolder))
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}

	return names
}

// LogPath returns the file for the output of an instance, unless its service names another one.
func (f *Folder) LogPath(instance string) string { return f.instancePath(instance, logFile) }

func (f *Folder) filePath(name string) string { return filepath.Join(f.Path, name) }

func (f *Folder) instancePath(instance, name string) string {
	return filepath.Join(f.Path, instancesFolder, instance, name)
}
