package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/host/sys"
)

// The kernel's time of its file decides the place of a ticket in the line, so that file is never written again. If the
// devices of the machine change, the owner writes them into a second file, NAME.devices, which replaces those in the
// ticket. The owner gains nothing by a false one: a ticket may name every device from its start.
const devicesSuffix = ".devices"

// ticketRenewal is the content of that file.
type ticketRenewal struct {
	Devices []gpu.UUID `json:"devices"`
	Known   []gpu.UUID `json:"known"`
}

// RenewTicket records the devices that can serve the ticket now, and all devices that were considered (known). The
// ticket keeps its place in the line.
func (f *Folder) RenewTicket(w *Waiting, boot string, devices, known []gpu.UUID) error {
	t := w.Ticket
	t.Devices, t.Known = devices, known
	if err := checkTicket(&t, t.ID); err != nil {
		return fmt.Errorf("cannot renew the ticket %s: %w", t.ID, err)
	}

	content, err := json.Marshal(ticketRenewal{devices, known})
	if err != nil {
		return err
	}

	root, err := f.lockFolder()
	if err != nil {
		return err
	}

	defer f.unlockFolder(root)
	if err := replaceFile(w.dir, w.name+devicesSuffix, newPrefix+w.name+devicesSuffix, append(content, '\n')); err != nil {
		return fmt.Errorf("cannot renew the ticket %s: %w", t.ID, err)
	}

	w.Ticket = t
	s, _ := f.readState(boot)
	delete(s.Turn.Unsure, t.Key())

	return f.writeState(s)
}

// readRenewal reads the second file of a ticket into t. If that file is damaged, it is reported as a problem of its
// owner, and the ticket counts as it was written.
func (r *entryReader) readRenewal(dirFD int, dir, name string, t *job.Ticket) error {
	renewed, err := r.renewedTicket(dirFD, name, t)
	switch {
	case err == nil:
		*t = renewed
	case errors.Is(err, os.ErrNotExist):
		// Withdrawn since the listing.
	case errors.Is(err, errFolderLock), isLocalFault(err):
		return err
	default:
		r.addProblem(dir, name+devicesSuffix, t.UID, "is ignored: "+err.Error())
	}

	return nil
}

// renewedTicket returns t with what its second file says.
func (r *entryReader) renewedTicket(dirFD int, name string, t *job.Ticket) (renewed job.Ticket, err error) {
	data, err := r.readEntry(dirFD, name+devicesSuffix, &t.UID)
	if err != nil {
		return renewed, err
	}

	var now ticketRenewal
	err = json.Unmarshal(data, &now)
	if err != nil {
		return renewed, err
	}

	renewed = *t
	renewed.Devices, renewed.Known = now.Devices, now.Known

	err = checkTicket(&renewed, t.ID)

	return renewed, err
}

// AnnounceChange records a change of the devices ids, which makes readings before it stale, and wakes every watcher of
// the folder: the devices appeared, or may be leased again. No lease or ticket ended, so no other event reports it. If
// waking fails, the first waiter in line finds the change at its next poll.
func (f *Folder) AnnounceChange(boot string, ids ...gpu.UUID) error {
	root, err := f.lockFolder()
	if err != nil {
		return err
	}

	defer f.unlockFolder(root)
	s, _ := f.readState(boot)
	s.recordChange(ids)
	if err := f.writeState(s); err != nil {
		return err
	}

	f.wakeWatchers(root)

	return nil
}

func (f *Folder) wakeWatchers(root *sys.Dir) {
	name, err := f.ownFolderName(root, "tickets")
	if err != nil {
		return
	}

	dir, err := openOwnFolder(root, "tickets", name)
	if err != nil {
		return
	}

	defer dir.Close() //nolint:errcheck // nothing is written through it
	_ = dir.Write(callName, nil, 0o600)
	_ = dir.Remove(callName)
}

// callName is the file whose removal wakes the watchers.
const callName = newPrefix + "call"

// UnlockedView is what can be read without the folder lock and without opening what users wrote into their leases.
type UnlockedView struct {
	// job.DeviceHash of every device with a live lease, and job.ManyDevices.
	Leased  map[string]bool
	Changes map[gpu.UUID]Change
}

// ReadSight reads the leases of this and the other state folders by their file names and locks only.
func (f *Folder) ReadSight(boot string) (UnlockedView, error) {
	s, complete := f.readState(boot)
	if !complete {
		return UnlockedView{}, errors.New("cannot read the record of changes")
	}

	seen := UnlockedView{Leased: map[string]bool{}, Changes: s.Devices}
	for _, path := range append([]string{f.Path}, f.Others...) {
		err := f.eachUser(path, "leases", func(r *entryReader, dir *os.File, uid uint32) error { return seen.addUserLeases(r, dir, uid) })
		if err != nil && path == f.Path {
			return UnlockedView{}, err
		}
	}

	return seen, nil
}

// eachUser calls each with the folder of every user below path.
func (f *Folder) eachUser(path, sub string, each func(r *entryReader, dir *os.File, uid uint32) error) error {
	root, err := openRoot(path)
	if err != nil {
		return err
	}

	defer root.Close() //nolint:errcheck // read only
	r := f.newReader()

	return r.eachUserFolder(root, sub, func(dir *os.File, uid uint32) error { return each(r, dir, uid) })
}

// addUserLeases notes the live leases of one user.
func (u *UnlockedView) addUserLeases(r *entryReader, dir *os.File, uid uint32) error {
	names, err := dir.Readdirnames(maxNamesPerUser)
	if err != nil && len(names) == 0 {
		return nil //nolint:nilerr // an empty folder (io.EOF), or one that cannot be read
	}

	for _, n := range names {
		name, isLock := strings.CutSuffix(n, lockSuffix)
		if !isLock || !isEntryName(name) {
			continue
		}

		fd, err := r.openRegular(int(dir.Fd()), n, &uid)
		if err != nil {
			continue
		}

		alive, err := isEntryLocked(fd)
		_ = unix.Close(fd)
		if err == nil && alive {
			_, hashes, _ := strings.Cut(name, "-")
			for _, h := range strings.Split(hashes, "+") {
				u.Leased[h] = true
			}
		}
	}

	return nil
}

// CountRemaining counts the tickets that still have a file.
func (f *Folder) CountRemaining(tickets []job.Ticket) (n int) {
	if len(tickets) == 0 {
		return 0
	}

	type key struct {
		uid uint32
		id  string
	}

	there := map[key]bool{}
	_ = f.eachUser(f.Path, "tickets", func(_ *entryReader, dir *os.File, uid uint32) error {
		if !slices.ContainsFunc(tickets, func(t job.Ticket) bool { return t.UID == uid }) {
			return nil
		}
		names, _ := dir.Readdirnames(maxTicketNames)
		for _, n := range names {
			if name, isTicket := strings.CutSuffix(n, ticketSuffix); isTicket && isTicketName(name) {
				there[key{uid, name[stampDigits+1:]}] = true
			}
		}

		return nil
	})

	for _, t := range tickets {
		if there[key{t.UID, t.ID}] {
			n++
		}
	}

	return n
}
