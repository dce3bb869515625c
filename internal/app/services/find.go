package services

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"gpuard/internal/app/exit"
	"gpuard/internal/core/shellquote"
	"gpuard/internal/host/files"
)

// A project's file says what is run, so one that was found and not named must be the caller's own word: the file, and
// every folder from the current one up to it, belong to the caller or to root, and no other user can write them
// (docs/decisions/0023).

// fileNames are what a project's file may be called.
func fileNames() []string { return []string{"gpuard.yaml", "gpuard.yml"} }

// maxFileSize is more than any project's file, or file of variables, has.
const maxFileSize = 4 << 20

// readProjectFile reads the project's file that was named, or the first one here or above.
func (s *Projects) readProjectFile(path string) (file string, data []byte, err error) {
	if path == "" {
		return s.searchUpwards(nil)
	}

	file, err = namedFilePath(path)
	if err != nil {
		return "", nil, err
	}

	data, err = files.ReadNamed(file, maxFileSize)
	if err != nil {
		return "", nil, &exit.Usage{Text: fmt.Sprintf("cannot read %s: %v", file, err)}
	}

	return file, data, nil
}

// namedFilePath is the absolute path of a file that the caller named.
func namedFilePath(path string) (string, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return "", &exit.Usage{Text: fmt.Sprintf("cannot use %s as a project's file: it is a folder; name the file in it: --file %s", path, filepath.Join(path, fileNames()[0]))}
	}
	return absolutePath(path)
}

// searchUpwards finds the first project's file here or above and reads it. A path that known accepts is not read. A
// file that must not be used ends the search: what lies above it is not what the caller sees first.
func (s *Projects) searchUpwards(known func(file string) bool) (file string, data []byte, err error) {
	home, _ := s.Host.Env.Lookup("HOME")
	here, doubt := "", ""
	last, why, serr := files.WalkUp(home, func(d *files.Folder) bool {
		if here == "" {
			here = d.Path
		}

		if doubt == "" {
			doubt = s.accessProblem("its folder "+d.Path, d.Path, d.Access)
		}

		for _, name := range fileNames() {
			path := filepath.Join(d.Path, name)
			if known != nil && known(path) {
				file = path
				return true
			}
			data, err = s.readCandidate(d, name, doubt)
			if !errors.Is(err, os.ErrNotExist) {
				file = path
				return true
			}
		}

		err = nil

		return false
	})

	switch {
	case serr != nil:
		return "", nil, serr
	case err != nil:
		return "", nil, &exit.Usage{Text: err.Error()}
	case file == "":
		return "", nil, &exit.Usage{Text: fmt.Sprintf("cannot find a project: there is no gpuard.yaml in %s or above, up to %s (%s); write one, or name it: --file FILE", here, last, why)}
	}

	return file, data, nil
}

// readCandidate reads the file of a folder. doubt is what is wrong with the folders up to it. The error is
// os.ErrNotExist when there is no such file.
func (s *Projects) readCandidate(d *files.Folder, name, doubt string) ([]byte, error) {
	path := filepath.Join(d.Path, name)
	if doubt == "" {
		// Else not even a link is followed there.
		text, err := d.ReadFile(name)
		switch {
		case errors.Is(err, os.ErrNotExist):
			return nil, err
		case err != nil:
			return nil, fmt.Errorf("cannot read %s: %w", path, err)
		}
		doubt = s.accessProblem("it", path, text.Access)
		if doubt == "" {
			return text.Content, nil
		}
	} else {
		at, err := d.EntryAccess(name)
		if err != nil {
			return nil, os.ErrNotExist
		}
		if !at.IsOwnedBy(callerUID()) {
			// The mode of a link says nothing.
			doubt = "it belongs to " + s.Host.Names(at.UID)
		}
	}
	return nil, fmt.Errorf("cannot use %s: %s, and what it says would be run%s if you trust it: --file %s", path, doubt, s.missingFileAdvice(), shellquote.Sh(path))
}

// accessProblem says what speaks against a file or folder, with what mends it; "" nothing.
func (s *Projects) accessProblem(what, path string, at files.Access) string {
	switch {
	case !at.IsOwnedBy(callerUID()):
		return what + " belongs to " + s.Host.Names(at.UID)
	case at.CanOthersWrite() && at.UID == callerUID():
		return fmt.Sprintf("others than you can write %s (mode %#o; chmod go-w %s)", what, at.Mode, shellquote.Sh(path))
	case at.CanOthersWrite():
		return fmt.Sprintf("others than root can write %s (mode %#o)", what, at.Mode)
	}
	return ""
}

func callerUID() uint32 { return uint32(os.Geteuid()) } //nolint:gosec // a uid

// missingFileAdvice is the advice for a missing project; under sudo it is to do without.
func (s *Projects) missingFileAdvice() string {
	by, _ := s.Host.Env.Lookup("SUDO_UID")
	if _, err := strconv.ParseUint(by, 10, 32); err != nil || by == "0" || os.Geteuid() != 0 {
		return "; name it"
	}
	return " by root; leave out sudo, which gpuard does not need, or name it"
}
