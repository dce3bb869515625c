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

// A ticket is one file, NAME.ticket: its content is written once, and the lock on it keeps the ticket alive. NAME is
// the time at which it was made in 16 hex digits, "-", and the id. So the tickets sorted by name are in the order of
// their arrival, and a reader of the first few opens no others. That order counts only among tickets of one user, who
// chooses it; between users the kernel's time of the file counts.
//
// A ticket may have a second file NAME.devices (see RenewTicket).
//
// The folder "gone" has a FIFO called NAME for other processes of the same user (see WaitBehind).
const (
	ticketSuffix = ".ticket"
	goneFolder   = "gone"
	stampDigits  = 16

	// Tickets that a listing for people reads; a claim reads queue.MaxCompeting.
	maxListedTickets = 256
	// Tickets that a user may have.
	maxTicketsPerUser = 2000
	// File names that are read of a user's folder.
	maxTicketNames = 3*maxTicketsPerUser + 64
	// Dead or damaged tickets that are opened while searching for live ones.
	maxVainReads = 256
)

func isTicketName(name string) bool {
	stamp, id, cut := strings.Cut(name, "-")
	return cut && len(stamp) == stampDigits && isPlainASCII(stamp, 'f') && isPlainID(id)
}

// Tickets lists the live tickets, at most 256 of each user in the order of their arrival, without the folder lock.
func (f *Folder) Tickets() ([]job.Ticket, []Problem) {
	all, problems, err := f.listTickets()
	if err != nil {
		problems = append(problems, Problem{Path: f.Path, UID: uint32(os.Geteuid()), Text: "its tickets cannot be read completely: " + err.Error()})
	}

	return all, problems
}

// listTickets returns also with an error what it could read.
func (f *Folder) listTickets() ([]job.Ticket, []Problem, error) {
	root, err := f.openFolder()
	if err != nil {
		return nil, nil, err
	}

	defer root.Close() //nolint:errcheck // read only

	return f.readTickets(root, maxListedTickets, nil)
}

// readTickets reads the first live tickets of each user, and removes dead tickets of the users for whom sweep is true.
func (f *Folder) readTickets(root *sys.Dir, limit int, sweep func(uid uint32) bool) ([]job.Ticket, []Problem, error) {
	r := f.newReader()
	r.sweep = sweep
	all := []job.Ticket{}
	err := r.eachUserFolder(root, "tickets", func(dir *os.File, uid uint32) error {
		more, err := r.firstTickets(dir, uid, limit)
		all = append(all, more...)
		return err
	})

	return all, r.problems, err
}

func (r *entryReader) firstTickets(dir *os.File, uid uint32, limit int) ([]job.Ticket, error) {
	files, err := r.listTicketFiles(dir, uid)
	if err != nil {
		return nil, err
	}

	sweep := r.sweep != nil && r.sweep(uid)
	if sweep {
		unlinkFiles(dir, files.waste...)
	}

	var tickets []job.Ticket
	vain, seen := 0, map[string]bool{}
	for _, name := range files.tickets {
		if len(tickets) == limit || vain == maxVainReads {
			break
		}

		t, err := r.readTicket(int(dir.Fd()), name, uid)
		if err == nil && t != nil && files.renewed[name] {
			err = r.readRenewal(int(dir.Fd()), dir.Name(), name, t)
		}

		switch {
		case errors.Is(err, errFolderLock):
			r.addProblem(dir.Name(), name+ticketSuffix, uid, "is the folder lock under a second name; everything in this folder is ignored")
			return nil, nil
		case err != nil && isLocalFault(err):
			return nil, err
		case err != nil:
			r.addProblem(dir.Name(), name+ticketSuffix, uid, "counts as nothing: "+err.Error())
		case t != nil && seen[t.ID]:
			r.addProblem(dir.Name(), name+ticketSuffix, uid, "counts as nothing: there is an earlier ticket of this id")
		case t != nil:
			seen[t.ID] = true
			tickets = append(tickets, *t)
			continue
		case sweep:
			unlinkFiles(dir, name+ticketSuffix, name+devicesSuffix)
			continue
		}

		vain++
	}

	return tickets, nil
}

// listTicketFiles lists the files in a user's folder by kind.
type ticketFiles struct {
	// Names without suffix, in the order of arrival.
	tickets []string
	// The tickets that have a second file.
	renewed map[string]bool
	// Files of interrupted writes, and second files without a ticket.
	waste []string
}

// listTicketFiles lists a user's folder.
func (r *entryReader) listTicketFiles(dir *os.File, uid uint32) (ticketFiles, error) {
	f := ticketFiles{renewed: map[string]bool{}}
	names, err := dir.Readdirnames(maxTicketNames)
	if err != nil && !errors.Is(err, io.EOF) {
		return f, err
	}

	for _, n := range names {
		name, suffix := n[:len(n)-len(filepath.Ext(n))], filepath.Ext(n)
		switch {
		case suffix == ticketSuffix && isTicketName(name):
			f.tickets = append(f.tickets, name)
		case suffix == devicesSuffix && isTicketName(name):
			f.renewed[name] = true
		case strings.HasPrefix(n, newPrefix):
			f.waste = append(f.waste, n)
		case n != goneFolder:
			r.addProblem(dir.Name(), n, uid, "is not a ticket and is ignored")
		}
	}

	if len(names) == maxTicketNames {
		r.problems = append(r.problems, Problem{Path: dir.Name(), UID: uid, Text: fmt.Sprintf("has more than %d files; what is above that is ignored", maxTicketNames)})
	}

	slices.Sort(f.tickets)

	for name := range f.renewed {
		if _, found := slices.BinarySearch(f.tickets, name); !found && len(names) < maxTicketNames {
			f.waste = append(f.waste, name+devicesSuffix)
		}
	}

	return f, nil
}

// unlinkFiles removes files that are dead or were never finished. The folder lock is held, so no process is writing
// them. It works by the folder's descriptor, because root does it in folders of other users. A file that remains is
// dead.
func unlinkFiles(dir *os.File, names ...string) {
	for _, n := range names {
		_ = unix.Unlinkat(int(dir.Fd()), n, 0)
	}
}

// readTicket reads one ticket; nil without an error means that it is dead or gone.
func (r *entryReader) readTicket(dirFD int, name string, uid uint32) (*job.Ticket, error) {
	fd, err := r.openRegular(dirFD, name+ticketSuffix, &uid)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}

	file := os.NewFile(uintptr(fd), name)
	defer file.Close() //nolint:errcheck // read only
	alive, err := isEntryLocked(fd)
	if err != nil || !alive {
		return nil, err
	}

	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}

	data, err := io.ReadAll(io.LimitReader(file, maxEntrySize+1))
	if err == nil && len(data) > maxEntrySize {
		err = fmt.Errorf("larger than %d KiB", maxEntrySize>>10)
	}

	t := job.Ticket{}
	if err != nil {
		return nil, err
	}

	err = json.Unmarshal(data, &t)
	if err != nil {
		return nil, err
	}

	err = checkTicket(&t, name[stampDigits+1:])
	if err != nil {
		return nil, err
	}

	t.UID, t.Arrival = uid, st.Ctim.Nano()

	return &t, nil
}

// checkTicket refuses content that gpuard never writes, so that decisions need not check for it.
func checkTicket(t *job.Ticket, id string) error {
	switch {
	case t.ID != id:
		return errors.New("content and file name differ")
	case t.Count < 1 || t.Count > len(t.Devices) || len(t.Devices) > maxDevicesRecorded:
		return fmt.Errorf("it waits for %d of %d devices", t.Count, len(t.Devices))
	case t.Timeout < 0 || t.Memory < 0 || t.Share < 0:
		return errors.New("it has a negative time or size")
	}
	if len(t.Known) > maxDevicesRecorded {
		return fmt.Errorf("it knows %d devices", len(t.Known))
	}

	for _, d := range slices.Concat(t.Devices, t.Known) {
		if len(d) > maxDeviceIDLength {
			return fmt.Errorf("names a device with more than %d characters", maxDeviceIDLength)
		}
	}

	return nil
}
