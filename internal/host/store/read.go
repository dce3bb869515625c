package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/job"
	"gpuard/internal/core/space"
	"gpuard/internal/host/sys"
)

// entryReader reads files of other users. A fault in their files becomes a Problem. A fault of this process (no free
// descriptor) is an error, because a lease that is not read would be given to a second holder.
type entryReader struct {
	// nil if no lock is open.
	lock *folderLock
	// The user ids that this user namespace can distinguish.
	ids space.IDs
	// The users with dead tickets to remove while reading; nil without the folder lock.
	sweep    func(uid uint32) bool
	problems []Problem
	// Number of problems by folder, to limit each folder's share.
	shown map[string]int
	// Names of the caller's folders that were read.
	mine []string
	// Number of folders that each owner made in user namespaces.
	spaces map[uint32]int
}

func (f *Folder) newReader() *entryReader { return &entryReader{lock: &f.lock, ids: f.ids} }

// isLocalFault reports whether err comes from this process or machine, and not from what the owner of a file did to it.
func isLocalFault(err error) bool {
	return slices.ContainsFunc([]error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS, unix.EINTR}, func(e error) bool { return errors.Is(err, e) })
}

// addProblem records a problem in a folder. After maxProblemsPerFolder of them it adds one for all others, without a
// name.
func (r *entryReader) addProblem(folder, name string, uid uint32, text string) {
	if r.shown == nil {
		r.shown = map[string]int{}
	}
	r.shown[folder]++

	switch n := r.shown[folder]; {
	case n <= maxProblemsPerFolder:
		r.problems = append(r.problems, Problem{Path: filepath.Join(folder, name), UID: uid, Text: text})
	case n == maxProblemsPerFolder+1:
		r.problems = append(r.problems, Problem{Path: folder, UID: uid, Text: "has more problems like these"})
	}
}

// readAllEntries reads the entries of every user in root/leases. It returns dead ones too, without content.
func (r *entryReader) readAllEntries(root *sys.Dir) ([]foundEntry, error) {
	var all []foundEntry
	err := r.eachUserFolder(root, "leases", func(dir *os.File, uid uint32) error {
		names, err := dir.Readdirnames(maxNamesPerUser)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}

		slices.Sort(names)
		entries, err := r.readEntries(int(dir.Fd()), dir.Name(), uid, names)
		all = append(all, entries...)

		return err
	})
	return all, err
}

// eachUserFolder calls each with the folder of every user in root/sub, in the order of the names.
func (r *entryReader) eachUserFolder(root *sys.Dir, sub string, each func(dir *os.File, uid uint32) error) error {
	dir, err := root.Dir(sub)
	if err != nil {
		return &os.PathError{Op: "cannot read", Path: filepath.Join(root.Name(), sub), Err: errors.Unwrap(err)}
	}

	defer dir.Close() //nolint:errcheck // read only
	fd, top := int(dir.Fd()), dir.Name()

	// Without a limit: a user could hide the folders of others after very many of their own.
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}

	slices.Sort(names)
	r.mine, r.spaces = nil, map[uint32]int{}

	for _, n := range names {
		if _, isUID := parseUIDName(n); !isUID && !isSpaceName(n) {
			r.noteStrayName(fd, top, n)
		} else if err := r.visitUserFolder(fd, top, n, each); err != nil {
			return err
		}
	}

	return nil
}

// parseUIDName parses the name of a user's folder, which is the uid outside of user namespaces.
func parseUIDName(name string) (uint32, bool) {
	uid, err := strconv.ParseUint(name, 10, 32)
	return uint32(uid), err == nil && strconv.FormatUint(uid, 10) == name
}

// noteStrayName records a name that is not that of a user's folder.
func (r *entryReader) noteStrayName(topFD int, top, name string) {
	if r.shown[top] > maxProblemsPerFolder {
		// Problem would not record it.
		return
	}
	if uid, err := fileOwner(topFD, name); !errors.Is(err, unix.ENOENT) {
		r.addProblem(top, name, uid, "is not a user's folder and is ignored")
	}
}

// fileOwner returns the owner without opening the file for reading: a file system that a user mounted need not answer.
func fileOwner(dirFD int, name string) (uint32, error) {
	fd, err := openIn(dirFD, name, unix.O_PATH)
	if err != nil {
		return 0, err
	}

	defer unix.Close(fd) //nolint:errcheck // nothing was opened
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)

	return st.Uid, err
}

// visitUserFolder calls each with a user's folder in top and its owner. A folder that is known to belong to another
// user is ignored.
func (r *entryReader) visitUserFolder(topFD int, top, name string, each func(dir *os.File, uid uint32) error) error {
	path := filepath.Join(top, name)
	fd, err := openIn(topFD, name, unix.O_RDONLY|unix.O_DIRECTORY)
	switch {
	case errors.Is(err, unix.ENOENT):
		// Gone since the listing.
		return nil
	case err != nil && isLocalFault(err):
		return &os.PathError{Op: "cannot read", Path: path, Err: err}
	case err != nil:
		whose, oerr := fileOwner(topFD, name)
		if oerr != nil {
			whose, _ = parseUIDName(name)
		}
		r.addProblem(top, name, whose, "cannot be read as a user's folder and is ignored: "+err.Error())

		return nil
	}

	dir := os.NewFile(uintptr(fd), path)
	defer dir.Close() //nolint:errcheck // read only
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}

	uid, counts := folderOwner(r.ids, name, st.Uid)
	if !counts {
		r.addProblem(top, name, st.Uid, fmt.Sprintf("is not a folder of uid %s and is ignored", name))
		return nil
	}

	if isSpaceName(name) && !r.ids.Hides(st.Uid) {
		// No limit for hidden owners: the folders may be of different users.
		r.spaces[uid]++
		if r.spaces[uid] > maxFoldersPerOwner {
			r.addProblem(top, name, uid, fmt.Sprintf("is one of more than %d folders of this user from user namespaces and is ignored", maxFoldersPerOwner))
			return nil
		}
	}

	if uid == uint32(os.Geteuid()) {
		r.mine = append(r.mine, name)
	}

	return each(dir, uid)
}

func (r *entryReader) readEntries(fd int, path string, uid uint32, names []string) ([]foundEntry, error) {
	var all []foundEntry
	alive := 0
	for _, n := range names {
		name, isLock := strings.CutSuffix(n, lockSuffix)
		if !isLock || !isEntryName(name) {
			if !isLeaseFileName(n) {
				r.addProblem(path, n, uid, "is not a lease and is ignored")
			}
			continue
		}

		e, err := r.readLeasePair(fd, path, name, uid, alive < maxEntriesPerUser)
		switch {
		case err != nil && isLocalFault(err):
			return nil, err
		case errors.Is(err, errFolderLock):
			r.addProblem(path, n, uid, "is the folder lock under a second name; everything in this folder is ignored")
			return nil, nil
		case err != nil:
			r.addProblem(path, n, uid, err.Error())
		}

		if e == nil {
			continue
		}

		all = append(all, *e)
		if e.alive {
			alive++
		}
	}

	switch {
	case len(names) == maxNamesPerUser:
		r.problems = append(r.problems, Problem{Path: path, UID: uid, Text: fmt.Sprintf("has more than %d files; what is above that is ignored", maxNamesPerUser)})
	case alive > maxEntriesPerUser:
		r.problems = append(r.problems, Problem{Path: path, UID: uid, Text: fmt.Sprintf("has more than %d leases; those above that keep their devices busy, and nothing else is read of them", maxEntriesPerUser)})
	}

	return all, nil
}

// isLeaseFileName reports whether n is the name of a file, other than a lock, that a claim makes in its folder.
func isLeaseFileName(n string) bool {
	name, isContent := strings.CutSuffix(n, jsonSuffix)
	return n == lastName || n == measureName || strings.HasPrefix(n, newPrefix) || isContent && isEntryName(name)
}

// readLeasePair reads one pair, with or without the content of a live one. Without an entry, it counts as nothing; an
// entry that comes with an error counts as a lease.
func (r *entryReader) readLeasePair(dirFD int, dir, name string, uid uint32, content bool) (*foundEntry, error) {
	lockFD, err := r.openRegular(dirFD, name+lockSuffix, &uid)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		return nil, fmt.Errorf("counts as nothing: %w", err)
	}

	defer unix.Close(lockFD) //nolint:errcheck // read only
	alive, err := isEntryLocked(lockFD)
	if err != nil {
		return nil, fmt.Errorf("counts as nothing: cannot ask for its lock: %w", err)
	}

	e := &foundEntry{dir: dir, name: name, alive: alive}
	id, hashes, _ := strings.Cut(name, "-")
	e.lease = job.Lease{ID: id, UID: uid, Folder: filepath.Base(dir), Hashes: strings.Split(hashes, "+")}
	if !alive {
		return e, nil
	}

	if !content {
		// Its devices stay busy, whatever it says: a lease that does not count would be given again.
		e.lease.Unreadable = true
		return e, nil
	}

	err = r.readLease(dirFD, name, &uid, &e.lease)
	if errors.Is(err, os.ErrNotExist) && unix.Faccessat(dirFD, name+lockSuffix, unix.F_OK, unix.AT_SYMLINK_NOFOLLOW) != nil {
		// It ended while it was read.
		return nil, nil
	}

	if err != nil && !isLocalFault(err) {
		e.lease.Unreadable = true
		err = fmt.Errorf("has unreadable content, its devices stay busy: %w", err)
	}

	return e, err
}

func (r *entryReader) readLease(dirFD int, name string, uid *uint32, l *job.Lease) error {
	data, err := r.readEntry(dirFD, name+jsonSuffix, uid)
	if err != nil {
		return err
	}

	return decodeLease(data, l)
}
