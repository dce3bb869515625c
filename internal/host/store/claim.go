package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// View is what a decision sees under the folder lock.
type View struct {
	Held       []job.Lease // live leases of everybody, in every candidate folder
	Problems   []Problem   // entries that count as nothing
	Generation Generation
	Changes    map[gpu.UUID]Change // by device; a device that is missing never changed
	Unknown    bool                // the record of changes was lost: everything may have changed
	Now        int64               // CLOCK_BOOTTIME in ns
	Last       []gpu.UUID          // devices of this user's previous claim
}

// Held is a lease together with the lock that keeps it alive.
type Held struct {
	Lease job.Lease
	Lock  *os.File // hold, pass on, or close to end the lease
}

// Generation reads the count without the lock; read the machine after it, and compare in the decision.
func (f *Folder) Generation(boot string) Generation {
	s, _ := f.readState(boot)
	return s.Generation
}

// Claimed reports whether the caller ever claimed here.
func (f *Folder) Claimed() bool {
	_, err := os.Lstat(f.userFolder(uint32(os.Geteuid())))
	return err == nil
}

// Leases lists what is alive now, without the folder lock: a lease may appear or end while it reads.
func (f *Folder) Leases() ([]job.Lease, []Problem) {
	all, problems := f.read()
	return live(all), problems
}

func (f *Folder) read() ([]found, []Problem) {
	all, problems := readAll(f.Path)
	for _, other := range f.Others {
		if _, err := check(other); err != nil {
			continue // no state folder, so no lease either
		}
		more, p := readAll(other)
		all, problems = append(all, more...), append(problems, p...)
	}
	return all, problems
}

func live(all []found) []job.Lease {
	leases := []job.Lease{}
	for _, e := range all {
		if e.alive {
			leases = append(leases, e.lease)
		}
	}
	return leases
}

// Claim lets decide choose under the folder lock and records what it returns, so that choosing and recording
// cannot be separated. decide gets everything alive and returns the lease to write (without id); its error
// is returned as it is and nothing is written. A full or unwritable folder leaves nothing behind.
func (f *Folder) Claim(boot string, decide func(View) (job.Lease, error)) (*Held, error) {
	if err := f.lock.acquire(f.Deadline); err != nil {
		return nil, err
	}
	defer f.lock.release()
	all, problems := f.read()
	uid := uint32(os.Geteuid())
	mine := f.userFolder(uid)
	f.sweep(all, mine)
	now := bootTime()
	s, known := f.readState(boot)
	held := live(all)
	s.observe(held, now)
	lease, err := decide(View{
		Held: held, Problems: problems, Generation: s.Generation, Changes: s.Devices,
		Unknown: !known, Now: now, Last: readLast(mine),
	})
	if err != nil {
		_ = f.writeState(s) // only a hint; the answer is decide's
		return nil, err
	}
	lease.UID, lease.Boot, lease.SinceBoot = uid, boot, now
	lease.ID = newID(all)
	if n := owned(held, uid); n >= entriesPerUser {
		return nil, fmt.Errorf("cannot claim: you hold %d leases already, which is the limit; end some first (gpuard status)", n)
	}
	s.claimed(&lease)
	lock, err := f.write(mine, &lease, s)
	if err != nil {
		return nil, err
	}
	return &Held{Lease: lease, Lock: lock}, nil
}

func owned(held []job.Lease, uid uint32) int {
	n := 0
	for i := range held {
		if held[i].UID == uid {
			n++
		}
	}
	return n
}

// idLetters leaves out what people confuse when reading aloud.
const idLetters = "abcdefghjkmnpqrstuvwxyz"

// newID is short because people type it, and unlike every id that has a file.
func newID(all []found) string {
	taken := make(map[string]bool, len(all))
	for i := range all {
		taken[all[i].lease.ID] = true
	}
	const tail = "23456789" + idLetters
	for {
		b := []byte{idLetters[rand.IntN(len(idLetters))], 0, 0, 0}
		for i := 1; i < len(b); i++ {
			b[i] = tail[rand.IntN(len(tail))]
		}
		if !taken[string(b)] {
			return string(b)
		}
	}
}

// write makes the pair: content first, the locked file last, because that one is the lease.
func (f *Folder) write(dir string, l *job.Lease, s state) (*os.File, error) {
	if err := ownFolder(dir, l.UID); err != nil {
		return nil, err
	}
	name := filepath.Join(dir, nameOf(l))
	fresh := filepath.Join(dir, newPrefix+l.ID)
	content, err := json.Marshal(l)
	if err == nil {
		err = writeNew(fresh+jsonSuffix, append(content, '\n'), 0o644)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot write the lease in %s: %w", dir, err)
	}
	lock, err := newLock(fresh + lockSuffix)
	if err == nil {
		err = f.writeState(s)
	}
	if err == nil {
		err = os.Rename(fresh+jsonSuffix, name+jsonSuffix)
	}
	if err == nil {
		err = os.Rename(fresh+lockSuffix, name+lockSuffix)
	}
	if err != nil {
		for _, p := range []string{fresh + jsonSuffix, fresh + lockSuffix, name + jsonSuffix} {
			_ = os.Remove(p)
		}
		if lock != nil {
			_ = lock.Close()
		}
		return nil, fmt.Errorf("cannot write the lease in %s: %w", dir, err)
	}
	writeLast(dir, l.Devices)
	return lock, nil
}

// newLock creates the file that carries the life, locked before anybody else can open it:
// a file that is born readable can be read-locked by another before its owner locks it.
func newLock(path string) (*os.File, error) {
	lock, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err = holdEntry(lock.Fd()); err == nil {
		err = lock.Chmod(0o644)
	}
	if err != nil {
		_ = lock.Close()
		_ = os.Remove(path)
		return nil, err
	}
	return lock, nil
}

// ownFolder makes leases/<uid>, or names whoever took its name.
func ownFolder(dir string, uid uint32) error {
	err := unix.Mkdir(dir, 0o755)
	if err == nil {
		return unix.Chmod(dir, 0o755)
	}
	if !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("cannot create %s: %w", dir, err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return fmt.Errorf("cannot use %s: %w", dir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Uid != uid {
		return fmt.Errorf("cannot use %s: it belongs to uid %d, not to you; ask them or root to remove it: sudo rm -r %s", dir, st.Uid, dir)
	}
	return nil
}

// sweep removes dead pairs and interrupted writes of our own (root: of everybody). The folder lock is held,
// so nobody is between creating and locking an entry.
func (f *Folder) sweep(all []found, mine string) {
	root := os.Geteuid() == 0
	for _, e := range all {
		if !e.alive && (root || e.dir == mine) {
			removePair(e.dir, e.name)
		}
	}
	alive := make(map[string]bool, len(all))
	for _, e := range all {
		alive[e.name] = e.alive
	}
	names, err := os.ReadDir(mine)
	if err != nil {
		return // no folder yet
	}
	for _, n := range names {
		name, isContent := strings.CutSuffix(n.Name(), jsonSuffix)
		if strings.HasPrefix(n.Name(), newPrefix) || (isContent && entryName(name) && !alive[name]) {
			_ = os.Remove(filepath.Join(mine, n.Name()))
		}
	}
}

func removePair(dir, name string) {
	_ = os.Remove(filepath.Join(dir, name+lockSuffix))
	_ = os.Remove(filepath.Join(dir, name+jsonSuffix))
}
