package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/queue"
	"gpuard/internal/host/sys"
)

// View is the state that a decision gets, read under the folder lock.
type View struct {
	// Live leases of all users, in every candidate folder.
	Held []job.Lease
	// Entries that are ignored or damaged.
	Problems   []Problem
	Generation Generation
	// The last change of each device; a device that is missing never changed.
	Changes map[gpu.UUID]Change
	// The record of changes was lost: everything may have changed.
	Unknown bool
	// CLOCK_BOOTTIME in ns.
	Now int64
	// Devices of this user's previous claim.
	Last []gpu.UUID
	// Live tickets of all users in this folder, at most the first 16 of each user.
	Tickets []job.Ticket
	// A decision may change it in place; it is recorded even if the decision is an error.
	Turn *queue.Turn
}

// Held is a lease and the lock that keeps it alive.
type Held struct {
	Lease job.Lease
	// Keep it open, pass it to a child, or close it to end the lease.
	Lock *os.File
}

// Generation reads the count without the folder lock. Read the machine after it, and compare the count with
// View.Generation in the decision. It returns 0 if the record is just being written: then everything counts as changed.
func (f *Folder) Generation(boot string) Generation {
	if s, complete := f.readState(boot); complete {
		return s.Generation
	}
	return 0
}

// Turn returns the state of the line at the last decision, read without the folder lock.
func (f *Folder) Turn(boot string) queue.Turn {
	s, _ := f.readState(boot)
	return s.Turn
}

// LastDevices returns the devices of the caller's previous claim.
func (f *Folder) LastDevices() []gpu.UUID {
	root, err := f.openFolder()
	if err != nil {
		return nil
	}

	defer root.Close() //nolint:errcheck // read only
	name, err := f.ownFolderName(root, "leases")
	if err != nil {
		return nil
	}

	return f.readLast(root, name)
}

// HasClaimed reports whether the caller ever claimed here.
func (f *Folder) HasClaimed() bool {
	root, err := f.openFolder()
	if err != nil {
		return false
	}

	defer root.Close() //nolint:errcheck // read only
	name, err := f.ownFolderName(root, "leases")
	if err != nil {
		return false
	}

	dir, err := root.Dir("leases/" + name)
	if err != nil {
		return false
	}

	_ = dir.Close()

	return true
}

// Leases lists the live leases of all users. It does not take the folder lock: a lease may appear or end while it
// reads.
func (f *Folder) Leases() ([]job.Lease, []Problem) {
	own, others, problems, err := f.readLeases()
	if err != nil {
		problems = append(problems, Problem{Path: f.Path, UID: uint32(os.Geteuid()), Text: "cannot be read completely: " + err.Error()})
	}

	return liveLeases(own, others), problems
}

// readLeases returns also with an error what it could read.
func (f *Folder) readLeases() (own, others []foundEntry, problems []Problem, err error) {
	root, err := f.openFolder()
	if err != nil {
		return nil, nil, nil, err
	}

	defer root.Close() //nolint:errcheck // read only
	r, own, others, err := f.readFolder(root)

	return own, others, r.problems, err
}

// readFolder returns the entries of this folder and those of the other state folders apart, because the folder lock
// protects only the entries of this one.
func (f *Folder) readFolder(root *sys.Dir) (r *entryReader, own, others []foundEntry, err error) {
	r = f.newReader()
	own, err = r.readAllEntries(root)
	if err != nil {
		return r, own, nil, err
	}

	mine := r.mine
	others, err = f.readOthers(root, r)
	r.mine = mine

	return r, own, others, err
}

// readOthers reads the other state folders. A broken one holds no lease and must not prevent claims in this one.
func (f *Folder) readOthers(root *sys.Dir, r *entryReader) ([]foundEntry, error) {
	var all []foundEntry
	here, err := root.Status()
	if err != nil {
		return nil, &os.PathError{Op: "cannot use the state folder", Path: f.Path, Err: err}
	}

	for _, other := range f.Others {
		more, uid, err := r.readOtherFolder(other, &here)
		if err != nil && isLocalFault(err) {
			return nil, err
		}
		if err != nil {
			r.problems = append(r.problems, Problem{Path: other, UID: uid, Text: "its leases do not count: " + err.Error()})
		}
		all = append(all, more...)
	}

	return all, nil
}

// readOtherFolder reads another state folder, unless its path leads to this one.
func (r *entryReader) readOtherFolder(path string, here *unix.Stat_t) (all []foundEntry, owner uint32, err error) {
	root, err := openRoot(path)
	if err != nil {
		var st unix.Stat_t
		if unix.Lstat(path, &st) != nil && errors.Is(err, unix.ENOENT) {
			return nil, 0, nil
		}
		return nil, st.Uid, notFolderError(path, err)
	}

	defer root.Close() //nolint:errcheck // read only
	st, err := root.Status()
	if err != nil || st.Dev == here.Dev && st.Ino == here.Ino {
		return nil, st.Uid, err
	}

	_, err = r.checkFolder(root)
	if err != nil {
		return nil, st.Uid, err
	}

	all, err = r.readAllEntries(root)

	return all, st.Uid, err
}

func liveLeases(lists ...[]foundEntry) []job.Lease {
	leases := []job.Lease{}
	for _, all := range lists {
		for _, e := range all {
			if e.alive {
				leases = append(leases, e.lease)
			}
		}
	}
	return leases
}

// Claim calls decide and writes the lease that it returns, both under the folder lock: no other claim comes in between.
// decide gets the live leases and tickets and returns the lease without an id. Its error is returned as it is, and
// no lease is written. If the folder is full or cannot be written, no file remains. decide is called again if a lease
// appeared in another state folder in the meantime. mine is the caller's ticket or nil; once the lease is written, it
// is withdrawn before the folder lock is released.
func (f *Folder) Claim(boot string, mine *Waiting, decide func(View) (job.Lease, error)) (*Held, error) {
	root, err := f.lockFolder()
	if err != nil {
		return nil, err
	}

	defer f.unlockFolder(root)
	held, err := f.claimWithRetry(root, boot, decide)
	if err == nil && mine != nil {
		// A file that remains is dead: its lock is closed.
		_ = mine.Withdraw()
	}

	return held, err
}

func (f *Folder) claimWithRetry(root *sys.Dir, boot string, decide func(View) (job.Lease, error)) (*Held, error) {
	for try := 1; ; try++ {
		lease, before, err := f.draftLease(root, boot, decide)
		if err != nil {
			return nil, err
		}

		held, err := f.writeLease(root, lease)
		if err != nil || len(f.Others) == 0 {
			return held, err
		}

		// The lock of this folder does not stop a claim in another one. But both claims write their lease before they
		// read the other folder again, so at least one of them sees the other's lease and removes its own.
		after, err := f.readOthers(root, f.newReader())
		if err == nil && !hasNewLease(before, after) {
			return held, nil
		}

		// Nobody has had it.
		_, _ = f.removePair(root, &held.Lease, entryNameOf(&held.Lease))
		_ = held.Lock.Close()
		if err == nil && try == 8 {
			err = fmt.Errorf("leases appear again and again in another state folder of this machine; try again, and while no lease is alive remove all but one of them: %s", strings.Join(append([]string{f.Path}, f.Others...), ", "))
		}

		if err != nil {
			return nil, fmt.Errorf("cannot claim: %w", err)
		}

		time.Sleep(rand.N(time.Duration(try) * 4 * time.Millisecond))
	}
}

// draftLease gets the lease to write from the caller's decide, and returns it with the entries of the other state folders
// at that time.
func (f *Folder) draftLease(root *sys.Dir, boot string, decide func(View) (job.Lease, error)) (*leaseDraft, []foundEntry, error) {
	folder, err := f.ownFolderName(root, "leases")
	if err != nil {
		return nil, nil, err
	}

	r, own, others, err := f.readFolder(root)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot claim: the leases cannot be read: %w", err)
	}

	uid, problems := uint32(os.Geteuid()), r.problems
	f.sweepOwnLeases(root, own, r.mine, uid)
	now := bootTime()
	tickets, more, err := f.readTickets(root, queue.MaxCompeting, func(u uint32) bool { return uid == 0 || u == uid })
	if err != nil {
		return nil, nil, fmt.Errorf("cannot claim: the tickets cannot be read: %w", err)
	}

	problems = append(problems, more...)
	s, complete := f.readState(boot)
	held := liveLeases(own, others)
	s.updateLive(held, now)
	forgetTickets(&s.Turn, tickets)
	lease, err := decide(View{
		Held: held, Problems: problems, Generation: s.Generation, Changes: s.Devices,
		Unknown: !complete, Now: now, Last: f.readLast(root, folder), Tickets: tickets, Turn: &s.Turn,
	})

	if err != nil {
		// Only a hint: the caller gets the error of decide.
		_ = f.writeState(s)
		return nil, nil, err
	}

	if len(lease.Devices) == 0 {
		return nil, nil, errors.New("cannot claim: the lease names no device")
	}
	if n := countOwned(held, uid); n >= maxEntriesPerUser {
		return nil, nil, fmt.Errorf("cannot claim: you hold %d leases already, which is the limit; end some first (gpuard status)", n)
	}

	lease.UID, lease.Folder, lease.Boot, lease.SinceBoot = uid, folder, boot, now
	lease.ID = newID(idsOf(own, others))
	s.recordClaim(&lease)

	return &leaseDraft{lease, s}, others, nil
}

// leaseDraft is a lease that is decided and not yet written, and the record of changes to write with it.
type leaseDraft struct {
	lease job.Lease
	state lockState
}

func hasNewLease(before, after []foundEntry) bool {
	return slices.ContainsFunc(after, func(e foundEntry) bool {
		return e.alive && !slices.ContainsFunc(before, func(b foundEntry) bool { return b.alive && b.dir == e.dir && b.name == e.name })
	})
}

func countOwned(held []job.Lease, uid uint32) int {
	n := 0
	for i := range held {
		if held[i].UID == uid {
			n++
		}
	}
	return n
}

// idLetters leaves out letters that people confuse.
const idLetters = "abcdefghjkmnpqrstuvwxyz"

func idsOf(lists ...[]foundEntry) map[string]bool {
	taken := map[string]bool{}
	for _, all := range lists {
		for i := range all {
			taken[all[i].lease.ID] = true
		}
	}
	return taken
}

// newID returns an id that is not in taken. It is short because people type it.
func newID(taken map[string]bool) string {
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

// writeLease makes the two files of a lease.
func (f *Folder) writeLease(root *sys.Dir, d *leaseDraft) (*Held, error) {
	l := &d.lease
	dir, err := openOwnFolder(root, "leases", folderName(l))
	if err != nil {
		return nil, err
	}

	defer dir.Close() //nolint:errcheck // nothing is written through it
	lock, err := f.writeLeaseFiles(dir, d)
	if err != nil {
		return nil, fmt.Errorf("cannot write the lease in %s: %w", dir.Name(), err)
	}

	writeLast(dir, l.Devices)

	return &Held{Lease: *l, Lock: lock}, nil
}

// writeLeaseFiles makes the content first and the locked file last, because that file makes it a lease. After an error
// it leaves neither.
func (f *Folder) writeLeaseFiles(dir *sys.Dir, d *leaseDraft) (*os.File, error) {
	name, fresh := entryNameOf(&d.lease), newPrefix+d.lease.ID
	content, err := encodeEntry(&d.lease)
	if err != nil {
		return nil, err
	}

	err = dir.Write(fresh+jsonSuffix, content, 0o644)
	if err != nil {
		return nil, err
	}

	removeFiles := func() {
		for _, n := range []string{fresh + jsonSuffix, fresh + lockSuffix, name + jsonSuffix} {
			_ = dir.Remove(n)
		}
	}

	lock, err := createLock(dir, fresh+lockSuffix, nil)
	if err != nil {
		removeFiles()
		return nil, err
	}

	err = f.publishLease(dir, d.state, fresh, name)
	if err != nil {
		removeFiles()
		_ = lock.Close()
		return nil, err
	}

	return lock, nil
}

// publishLease writes the state and gives the two files of a lease their names.
func (f *Folder) publishLease(dir *sys.Dir, state lockState, fresh, name string) error {
	err := f.writeState(state)
	if err != nil {
		return err
	}

	err = dir.Rename(fresh+jsonSuffix, name+jsonSuffix)
	if err != nil {
		return err
	}

	return dir.Rename(fresh+lockSuffix, name+lockSuffix)
}

// sweepOwnLeases removes the caller's dead pairs (as root, those of all users) and what interrupted writes of the
// caller left. The folder lock is held, so no process is between creating an entry and locking it.
func (f *Folder) sweepOwnLeases(root *sys.Dir, own []foundEntry, mine []string, uid uint32) {
	for _, e := range own {
		if !e.alive && (uid == 0 || e.lease.UID == uid) {
			f.removeDeadLease(root, e)
		}
	}
	for _, name := range mine {
		f.removeLeftovers(root, name, uid)
	}
}

// removeLeftovers removes what interrupted writes left in a folder of the caller.
func (f *Folder) removeLeftovers(root *sys.Dir, name string, uid uint32) {
	dir, err := f.openUser(root, "leases", name, uid)
	if err != nil {
		// Gone, or another user's by now: writeLease will report it.
		return
	}

	defer dir.Close() //nolint:errcheck // read only
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return
	}

	locked := make(map[string]bool, len(names))
	for _, n := range names {
		if name, isLock := strings.CutSuffix(n, lockSuffix); isLock {
			locked[name] = true
		}
	}

	for _, n := range names {
		name, isContent := strings.CutSuffix(n, jsonSuffix)
		if strings.HasPrefix(n, newPrefix) || isContent && isEntryName(name) && !locked[name] {
			_ = dir.Remove(n)
		}
	}
}
