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
)

// The place of a ticket in the line is the kernel's time of its file, so that file is never written again. Where the machine has
// other devices than when it was written, its owner puts the devices into a second file beside it, NAME.devices, which counts
// in place of those in the ticket. An owner gains nothing by changing it: a ticket may name every device from its beginning.
const devicesSuffix = ".devices"

// renewal is the content of that file.
type renewal struct {
	Devices []gpu.UUID `json:"devices"`
	Known   []gpu.UUID `json:"known"`
}

// Renew writes down which devices could serve the ticket by now, and which ones that was decided about. Its place stays.
func (f *Folder) Renew(w *Waiting, boot string, devices, known []gpu.UUID) error {
	t := w.Ticket
	t.Devices, t.Known = devices, known
	if err := plausible(&t, t.ID); err != nil {
		return fmt.Errorf("cannot renew the ticket %s: %w", t.ID, err)
	}
	content, err := json.Marshal(renewal{devices, known})
	if err != nil {
		return err
	}
	root, err := f.acquire()
	if err != nil {
		return err
	}
	defer f.release(root)
	if err := replace(w.dir, w.name+devicesSuffix, newPrefix+w.name+devicesSuffix, append(content, '\n')); err != nil {
		return fmt.Errorf("cannot renew the ticket %s: %w", t.ID, err)
	}
	w.Ticket = t
	s, _ := f.readState(boot)
	delete(s.Turn.Unsure, t.Key())
	return f.writeState(s)
}

// renewed reads the second file of a ticket into it. What is wrong with that file is its owner's problem; the ticket counts as
// it was written.
func (r *reader) renewed(dirFD int, dir, name string, t *job.Ticket) error {
	data, err := r.readEntry(dirFD, name+devicesSuffix, &t.UID)
	var now renewal
	if err == nil {
		err = json.Unmarshal(data, &now)
	}
	changed := *t
	changed.Devices, changed.Known = now.Devices, now.Known
	if err == nil {
		err = plausible(&changed, t.ID)
	}
	switch {
	case err == nil:
		*t = changed
	case errors.Is(err, os.ErrNotExist): // withdrawn since the listing
	case errors.Is(err, errFolderLock), ours(err):
		return err
	default:
		r.problem(dir, name+devicesSuffix, t.UID, "is ignored: "+err.Error())
	}
	return nil
}

// Call wakes all who watch the folder, and lets those look at these devices again who have read them before: they appeared, or
// can be given again. No lease or ticket has ended, so nothing else would tell. Where waking fails, the first in line finds
// it at its next look.
func (f *Folder) Call(boot string, ids ...gpu.UUID) error {
	root, err := f.acquire()
	if err != nil {
		return err
	}
	defer f.release(root)
	s, _ := f.readState(boot)
	s.changed(ids)
	if err := f.writeState(s); err != nil {
		return err
	}
	if name, err := f.ownName(root, "tickets"); err == nil {
		if dir, err := ownFolder(root, "tickets", name); err == nil {
			defer dir.Close() //nolint:errcheck // nothing is written through it
			_ = dir.Write(callName, nil, 0o600)
			_ = dir.Remove(callName)
		}
	}
	return nil
}

// callName is the file whose removal wakes all who watch.
const callName = newPrefix + "call"

// Sight is what can be seen of a folder without its lock and without reading what users wrote.
type Sight struct {
	Leased  map[string]bool // job.DeviceHash of every device with a live lease, and job.ManyDevices
	Changes map[gpu.UUID]Change
}

// Sight looks at the leases of all candidate folders by their names and locks alone.
func (f *Folder) Sight(boot string) (Sight, error) {
	s, complete := f.readState(boot)
	if !complete {
		return Sight{}, errors.New("cannot read the record of changes")
	}
	seen := Sight{Leased: map[string]bool{}, Changes: s.Devices}
	for _, path := range append([]string{f.Path}, f.Others...) {
		err := f.eachUser(path, "leases", func(r *reader, dir *os.File, uid uint32) error { return seen.add(r, dir, uid) })
		if err != nil && path == f.Path {
			return Sight{}, err
		}
	}
	return seen, nil
}

// eachUser calls each with the folder of every user below path.
func (f *Folder) eachUser(path, sub string, each func(r *reader, dir *os.File, uid uint32) error) error {
	root, err := openRoot(path)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // read only
	r := f.reader()
	return r.users(root, sub, func(dir *os.File, uid uint32) error { return each(r, dir, uid) })
}

// add notes the live leases of one user.
func (s *Sight) add(r *reader, dir *os.File, uid uint32) error {
	names, err := dir.Readdirnames(namesPerUser)
	if err != nil && len(names) == 0 {
		return nil //nolint:nilerr // an empty folder, or one that says nothing
	}
	for _, n := range names {
		name, isLock := strings.CutSuffix(n, lockSuffix)
		if !isLock || !entryName(name) {
			continue
		}
		fd, err := r.openRegular(int(dir.Fd()), n, &uid)
		if err != nil {
			continue
		}
		alive, err := held(fd)
		_ = unix.Close(fd)
		if err == nil && alive {
			_, hashes, _ := strings.Cut(name, "-")
			for _, h := range strings.Split(hashes, "+") {
				s.Leased[h] = true
			}
		}
	}
	return nil
}

// Left counts those of the tickets whose files are still there.
func (f *Folder) Left(tickets []job.Ticket) (n int) {
	if len(tickets) == 0 {
		return 0
	}
	type key struct {
		uid uint32
		id  string
	}
	there := map[key]bool{}
	_ = f.eachUser(f.Path, "tickets", func(_ *reader, dir *os.File, uid uint32) error {
		if !slices.ContainsFunc(tickets, func(t job.Ticket) bool { return t.UID == uid }) {
			return nil
		}
		names, _ := dir.Readdirnames(ticketNames)
		for _, n := range names {
			if name, isTicket := strings.CutSuffix(n, ticketSuffix); isTicket && ticketName(name) {
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
