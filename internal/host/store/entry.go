package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/job"
)

// An entry is a pair: NAME.json is the content, NAME.lock is empty and carries the life.
// NAME is the lease id, "-", and the hash of each device joined by "+".
const (
	lockSuffix = ".lock"
	jsonSuffix = ".json"
	newPrefix  = ".new-"
)

// entryName is what Claim writes; anything else in a lease folder is not a lease.
func entryName(name string) bool { return entryPattern.MatchString(name) }

var entryPattern = regexp.MustCompile(`^[a-z][0-9a-z]{3,7}-(many|[0-9a-f]{8}(\+[0-9a-f]{8})*)$`)

// maxHashes keeps file names below NAME_MAX (255).
const maxHashes = 24

func nameOf(l *job.Lease) string {
	if len(l.Devices) > maxHashes {
		return l.ID + "-" + job.ManyDevices
	}
	hashes := make([]string, len(l.Devices))
	for i, d := range l.Devices {
		hashes[i] = job.DeviceHash(d)
	}
	return l.ID + "-" + strings.Join(hashes, "+")
}

// found is one entry of a user's folder.
type found struct {
	dir   string // leases/<uid>
	name  string
	alive bool
	lease job.Lease
}

// readAll reads the entries of every user under root/leases. Dead ones are returned too, without content.
func readAll(root string) ([]found, []Problem) {
	top := filepath.Join(root, "leases")
	fd, err := unix.Open(top, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, []Problem{{Path: top, Text: "cannot be read: " + err.Error()}}
	}
	dir := os.NewFile(uintptr(fd), top)
	defer dir.Close() //nolint:errcheck // read only
	names, err := dir.Readdirnames(foldersRead)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, []Problem{{Path: top, Text: "cannot be read: " + err.Error()}}
	}
	slices.Sort(names)
	var all []found
	var problems []Problem
	for _, n := range names {
		entries, p := readUser(fd, top, n)
		all = append(all, entries...)
		problems = append(problems, p...)
	}
	return all, problems
}

// readUser reads leases/<uid>, which must belong to that uid or counts as nothing.
func readUser(topFD int, top, name string) ([]found, []Problem) {
	path := filepath.Join(top, name)
	var st unix.Stat_t
	if err := unix.Fstatat(topFD, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, nil // gone since the listing
	}
	uid, err := strconv.ParseUint(name, 10, 32)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || (uint64(st.Uid) != uid && st.Uid != 0) {
		return nil, []Problem{{Path: path, UID: st.Uid, Text: "is not a lease folder of its owner and is ignored"}}
	}
	fd, err := unix.Openat(topFD, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, []Problem{{Path: path, UID: st.Uid, Text: "cannot be read and is ignored: " + err.Error()}}
	}
	dir := os.NewFile(uintptr(fd), path)
	defer dir.Close() //nolint:errcheck // read only
	if unix.Fstat(fd, &st) != nil || (uint64(st.Uid) != uid && st.Uid != 0) {
		return nil, []Problem{{Path: path, UID: st.Uid, Text: "is not a lease folder of its owner and is ignored"}}
	}
	names, _ := dir.Readdirnames(8 * entriesPerUser)
	slices.Sort(names)
	return readEntries(fd, path, uint32(uid), names)
}

func readEntries(fd int, path string, uid uint32, names []string) ([]found, []Problem) {
	var all []found
	var problems []Problem
	read := 0
	for _, n := range names {
		name, isLock := strings.CutSuffix(n, lockSuffix)
		if !isLock || !entryName(name) {
			continue
		}
		if read++; read > entriesPerUser {
			problems = append(problems, Problem{Path: path, UID: uid, Text: fmt.Sprintf("has more than %d entries; the rest is ignored", entriesPerUser)})
			break
		}
		e, problem := readOne(fd, path, name, uid)
		if problem != "" {
			problems = append(problems, Problem{Path: filepath.Join(path, n), UID: uid, Text: problem})
		}
		if e != nil {
			all = append(all, *e)
		}
	}
	return all, problems
}

// readOne probes one pair. nil means that it counts as nothing.
func readOne(dirFD int, dir, name string, uid uint32) (*found, string) {
	lockFD, err := openRegular(dirFD, name+lockSuffix, &uid)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, ""
		}
		return nil, "counts as nothing: " + err.Error()
	}
	defer unix.Close(lockFD) //nolint:errcheck // read only
	alive, err := held(lockFD)
	if err != nil {
		return nil, "counts as nothing: cannot ask for its lock: " + err.Error()
	}
	e := &found{dir: dir, name: name, alive: alive}
	id, hashes, _ := strings.Cut(name, "-")
	e.lease = job.Lease{ID: id, Hashes: strings.Split(hashes, "+")}
	e.lease.UID = uid
	if !alive {
		return e, ""
	}
	data, err := readEntry(dirFD, name+jsonSuffix, &uid)
	if err == nil {
		err = decodeLease(data, &e.lease)
	}
	if err != nil {
		e.lease.Unreadable = true
		return e, "has unreadable content, its devices stay busy: " + err.Error()
	}
	return e, ""
}

// decodeLease accepts content only if it names the same lease and devices as the file name.
func decodeLease(data []byte, l *job.Lease) error {
	read := *l
	if err := json.Unmarshal(data, &read); err != nil {
		return err
	}
	if name := nameOf(&read); name != l.ID+"-"+strings.Join(l.Hashes, "+") {
		return errors.New("content and file name differ")
	}
	*l = read
	return nil
}

// openRegular opens another user's file so that nothing they put there can hang or lead us away.
func openRegular(dirFD int, name string, owner *uint32) (int, error) {
	fd, err := unix.Openat(dirFD, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil {
		switch {
		case st.Mode&unix.S_IFMT != unix.S_IFREG:
			err = errors.New("not a regular file")
		case owner != nil && st.Uid != *owner && st.Uid != 0:
			err = fmt.Errorf("it belongs to uid %d", st.Uid)
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// readEntry reads a small regular file, at most entrySize bytes.
func readEntry(dirFD int, name string, owner *uint32) ([]byte, error) {
	fd, err := openRegular(dirFD, name, owner)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close() //nolint:errcheck // read only
	data, err := io.ReadAll(io.LimitReader(f, entrySize+1))
	if err == nil && len(data) > entrySize {
		err = fmt.Errorf("larger than %d KiB", entrySize>>10)
	}
	return data, err
}
