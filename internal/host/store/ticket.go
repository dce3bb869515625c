package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/job"
	"gpuard/internal/host/sys"
)

// A ticket is one file, NAME.ticket: its content is written once, and the lock on it carries the life. NAME is the moment at
// which it was made in 16 hex digits, "-", and the id. So the names in the order of the alphabet are the tickets in the order
// of their arrival, and whoever wants the first few opens no others. That order counts only among tickets of one user, who
// could as well have made them in another order; between users counts the kernel's time of the file.
//
// Beside it there may be NAME.devices (see Renew).
//
// In the folder "gone" beside it lies a FIFO of that NAME for the user's own processes (see Behind).
const (
	ticketSuffix = ".ticket"
	goneFolder   = "gone"
	stampDigits  = 16

	shownPerUser   = 256                   // tickets that a listing for people looks at; a claim looks at queue.Compete
	ticketsPerUser = 2000                  // that a user may have
	ticketNames    = 3*ticketsPerUser + 64 // of files in a user's folder that are read
	vainPerUser    = 256                   // that are dead or count as nothing and are opened on the way to the live ones
)

func ticketName(name string) bool {
	stamp, id, cut := strings.Cut(name, "-")
	return cut && len(stamp) == stampDigits && plainASCII(stamp, 'f') && plainID(id)
}

// Tickets lists who waits now, at most 256 of each user in the order of their arrival, without the folder lock.
func (f *Folder) Tickets() ([]job.Ticket, []Problem) {
	var all []job.Ticket
	var problems []Problem
	root, err := f.open()
	if err == nil {
		defer root.Close() //nolint:errcheck // read only
		all, problems, err = f.tickets(root, shownPerUser, nil)
	}
	if err != nil {
		problems = append(problems, Problem{Path: f.Path, UID: uint32(os.Geteuid()), Text: "its tickets cannot be read completely: " + err.Error()})
	}
	return all, problems
}

// tickets reads the first live ones of each user, and removes dead ones of those whom sweep names.
func (f *Folder) tickets(root *sys.Dir, limit int, sweep func(uid uint32) bool) ([]job.Ticket, []Problem, error) {
	r := f.reader()
	r.sweep = sweep
	all := []job.Ticket{}
	err := r.users(root, "tickets", func(dir *os.File, uid uint32) error {
		more, err := r.firstTickets(dir, uid, limit)
		all = append(all, more...)
		return err
	})
	return all, r.problems, err
}

func (r *reader) firstTickets(dir *os.File, uid uint32, limit int) ([]job.Ticket, error) {
	files, err := r.ticketFiles(dir, uid)
	if err != nil {
		return nil, err
	}
	sweep := r.sweep != nil && r.sweep(uid)
	if sweep {
		remove(dir, files.waste...)
	}
	var tickets []job.Ticket
	vain, seen := 0, map[string]bool{}
	for _, name := range files.tickets {
		if len(tickets) == limit || vain == vainPerUser {
			break
		}
		t, err := r.ticket(int(dir.Fd()), name, uid)
		if err == nil && t != nil && files.renewed[name] {
			err = r.renewed(int(dir.Fd()), dir.Name(), name, t)
		}
		switch {
		case errors.Is(err, errFolderLock):
			r.problem(dir.Name(), name+ticketSuffix, uid, "is the folder lock under a second name; everything in this folder is ignored")
			return nil, nil
		case err != nil && ours(err):
			return nil, err
		case err != nil:
			r.problem(dir.Name(), name+ticketSuffix, uid, "counts as nothing: "+err.Error())
		case t != nil && seen[t.ID]:
			r.problem(dir.Name(), name+ticketSuffix, uid, "counts as nothing: there is an earlier ticket of this id")
		case t != nil:
			seen[t.ID] = true
			tickets = append(tickets, *t)
			continue
		case sweep:
			remove(dir, name+ticketSuffix, name+devicesSuffix)
			continue
		}
		vain++
	}
	return tickets, nil
}

// ticketFiles are the files in a user's folder.
type ticketFiles struct {
	tickets []string        // names without suffix, in the order of arrival
	renewed map[string]bool // those that have a second file
	waste   []string        // files of interrupted writes, and second files without a ticket
}

// ticketFiles lists a user's folder.
func (r *reader) ticketFiles(dir *os.File, uid uint32) (ticketFiles, error) {
	f := ticketFiles{renewed: map[string]bool{}}
	names, err := dir.Readdirnames(ticketNames)
	if err != nil && !errors.Is(err, io.EOF) {
		return f, err
	}
	for _, n := range names {
		name, suffix := n[:len(n)-len(filepath.Ext(n))], filepath.Ext(n)
		switch {
		case suffix == ticketSuffix && ticketName(name):
			f.tickets = append(f.tickets, name)
		case suffix == devicesSuffix && ticketName(name):
			f.renewed[name] = true
		case strings.HasPrefix(n, newPrefix):
			f.waste = append(f.waste, n)
		case n != goneFolder:
			r.problem(dir.Name(), n, uid, "is not a ticket and is ignored")
		}
	}
	if len(names) == ticketNames {
		r.problems = append(r.problems, Problem{Path: dir.Name(), UID: uid, Text: fmt.Sprintf("has more than %d files; what is above that is ignored", ticketNames)})
	}
	slices.Sort(f.tickets)
	for name := range f.renewed {
		if _, found := slices.BinarySearch(f.tickets, name); !found && len(names) < ticketNames {
			f.waste = append(f.waste, name+devicesSuffix)
		}
	}
	return f, nil
}

// remove takes files away that are dead or were never finished: the folder lock is held, so nobody is writing them. It works
// at the folder's descriptor, as root does it in folders of others. What stays is dead all the same.
func remove(dir *os.File, names ...string) {
	for _, n := range names {
		_ = unix.Unlinkat(int(dir.Fd()), n, 0)
	}
}

// ticket opens and probes one; nil without an error means that it is dead or gone.
func (r *reader) ticket(dirFD int, name string, uid uint32) (*job.Ticket, error) {
	fd, err := r.openRegular(dirFD, name+ticketSuffix, &uid)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close() //nolint:errcheck // read only
	alive, err := held(fd)
	if err != nil || !alive {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, entrySize+1))
	if err == nil && len(data) > entrySize {
		err = fmt.Errorf("larger than %d KiB", entrySize>>10)
	}
	t := job.Ticket{}
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	if err == nil {
		err = plausible(&t, name[stampDigits+1:])
	}
	if err != nil {
		return nil, err
	}
	t.UID, t.Arrival = uid, st.Ctim.Nano()
	return &t, nil
}

// plausible refuses content that no gpuard writes, so that those who decide need not think of it.
func plausible(t *job.Ticket, id string) error {
	switch {
	case t.ID != id:
		return errors.New("content and file name differ")
	case t.Count < 1 || t.Count > len(t.Devices) || len(t.Devices) > devicesRecorded:
		return fmt.Errorf("it waits for %d of %d devices", t.Count, len(t.Devices))
	case t.Timeout < 0 || t.Memory < 0 || t.Share < 0:
		return errors.New("it has a negative time or size")
	}
	if len(t.Known) > devicesRecorded {
		return fmt.Errorf("it knows %d devices", len(t.Known))
	}
	for _, d := range slices.Concat(t.Devices, t.Known) {
		if len(d) > deviceSize {
			return fmt.Errorf("names a device with more than %d characters", deviceSize)
		}
	}
	return nil
}
