package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/job"
	"gpuard/internal/host/sys"
)

// Waiting is a ticket of this process. It counts until it is withdrawn or the process ends, in whatever way. Its
// descriptors are closed on exec, so a command that replaces this process does not inherit it.
type Waiting struct {
	// The ticket as other processes read it.
	Ticket job.Ticket
	dir    *sys.Dir // tickets/<name>
	// The folder "gone" in it.
	pipes *sys.Dir
	name  string
	// Keeps the ticket alive.
	lock *os.File
	// Its end wakes the tickets behind this one.
	pipe *os.File
	gone map[string]bool // dead tickets ahead
	once sync.Once
}

// QueueTicket writes the ticket t; it sets id, owner and arrival. If the folder is full or cannot be written, no file
// remains.
func (f *Folder) QueueTicket(t job.Ticket) (*Waiting, error) {
	root, err := f.lockFolder()
	if err != nil {
		return nil, err
	}

	defer f.unlockFolder(root)
	uid := uint32(os.Geteuid())
	name, err := f.ownFolderName(root, "tickets")
	if err != nil {
		return nil, err
	}

	dir, err := openOwnFolder(root, "tickets", name)
	if err != nil {
		return nil, err
	}

	pipes, err := explainOwnError(dir.Own(goneFolder, 0o755))
	if err != nil {
		_ = dir.Close()
		return nil, err
	}

	t.UID = uid
	w := &Waiting{Ticket: t, dir: dir, pipes: pipes, gone: map[string]bool{}}
	if err := f.enqueueTicket(w); err != nil {
		_ = w.Withdraw()
		return nil, err
	}

	return w, nil
}

// enqueueTicket names the ticket and writes it. The folder lock is held.
func (f *Folder) enqueueTicket(w *Waiting) error {
	taken, err := f.ownTickets(w)
	if err != nil {
		return fmt.Errorf("cannot wait: your tickets cannot be read: %w", err)
	}
	if len(taken) >= maxTicketsPerUser {
		return fmt.Errorf("cannot wait: %d commands of yours are waiting already, which is the limit; end some first (gpuard status)", len(taken))
	}

	w.Ticket.ID = newID(taken)
	w.name = fmt.Sprintf("%0*x-%s", stampDigits, time.Now().UnixNano(), w.Ticket.ID)
	if err := checkTicket(&w.Ticket, w.Ticket.ID); err != nil {
		return fmt.Errorf("cannot wait: %w", err)
	}
	if err := w.writeTicket(); err != nil {
		return fmt.Errorf("cannot write a ticket in %s: %w", w.dir.Name(), err)
	}

	return nil
}

// ownTickets returns the ids of the caller's tickets that have a file, and removes leftover files. Only at the limit
// does it open every ticket to find the dead ones; otherwise a claim removes each when it comes to the front of the
// line.
func (f *Folder) ownTickets(w *Waiting) (map[string]bool, error) {
	r, dir, uid := f.newReader(), w.dir.File, w.Ticket.UID
	files, err := r.listTicketFiles(dir, uid)
	if err != nil {
		return nil, err
	}

	unlinkFiles(dir, files.waste...)
	taken := map[string]bool{}
	for _, name := range files.tickets {
		if len(files.tickets) >= maxTicketsPerUser {
			if t, err := r.readTicket(int(dir.Fd()), name, uid); t == nil && err == nil {
				unlinkFiles(dir, name+ticketSuffix, name+devicesSuffix)
				continue
			}
		}
		taken[name[stampDigits+1:]] = true
	}

	return taken, sweepPipes(w.pipes.File, files.tickets)
}

// sweepPipes removes FIFOs that have no ticket.
func sweepPipes(dir *os.File, tickets []string) error {
	pipes, err := dir.Readdirnames(-1)
	for _, n := range pipes {
		if _, known := slices.BinarySearch(tickets, n); !known {
			unlinkFiles(dir, n)
		}
	}
	return err
}

// writeTicket makes the files of a ticket. After an error it is none.
func (w *Waiting) writeTicket() error {
	content, err := encodeEntry(w.Ticket)
	if err != nil {
		return err
	}

	fresh := newPrefix + w.name + ticketSuffix
	err = w.publishTicket(fresh, content)
	if err != nil {
		_ = w.dir.Remove(fresh)
		return err
	}

	return nil
}

// publishTicket makes the FIFO first and the locked file last, because that file makes it a ticket.
func (w *Waiting) publishTicket(fresh string, content []byte) (err error) {
	w.pipe, err = newPipe(w.pipes, w.name)
	if err != nil {
		return err
	}

	w.lock, err = createLock(w.dir, fresh, content)
	if err != nil {
		return err
	}

	err = w.dir.Rename(fresh, w.name+ticketSuffix)
	if err != nil {
		return err
	}

	var st unix.Stat_t
	err = unix.Fstat(int(w.lock.Fd()), &st)
	if err != nil {
		return err
	}

	w.Ticket.Arrival = st.Ctim.Nano()

	return nil
}

// newPipe makes a FIFO that only this user can open. It opens the FIFO for reading and writing, which needs no other
// process at the other end (fifo(7)).
func newPipe(dir *sys.Dir, name string) (*os.File, error) {
	if err := dir.Mkfifo(name); err != nil {
		return nil, err
	}

	fd, err := dir.Open(name, unix.O_RDWR)
	if err != nil {
		_ = dir.Remove(name)
		return nil, err
	}

	// The pipes of one user share a limit of memory (pipe(7), pipe-user-pages-soft); nothing is ever written to this
	// one.
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, os.Getpagesize())

	return os.NewFile(uintptr(fd), name), nil
}

// Withdraw removes the ticket. It takes no lock and never waits, so it can be called just before the process stops or
// ends. A second call does nothing.
func (w *Waiting) Withdraw() (err error) {
	w.once.Do(func() {
		err = w.dir.Remove(w.name + ticketSuffix)

		// Ignored without a ticket.
		_ = w.dir.Remove(w.name + devicesSuffix)
		if perr := w.pipes.Remove(w.name); err == nil || errors.Is(err, unix.ENOENT) {
			err = perr
		}

		if errors.Is(err, unix.ENOENT) {
			err = nil
		}

		for _, file := range []*os.File{w.pipe, w.lock, w.pipes.File, w.dir.File} {
			if file != nil {
				_ = file.Close()
			}
		}
	})
	if err != nil {
		return fmt.Errorf("cannot remove the ticket %s in %s, which counts no more: %w", w.Ticket.ID, w.dir.Name(), err)
	}
	return nil
}

// WaitBehind returns once fewer than n live tickets of the same user are ahead of this one, or with the cause of ctx.
// Until then it waits for the end of any of the n tickets just ahead. While all n are alive, n tickets are ahead; with
// fewer to wait for, a stopped one could hide that the others ended. The n just ahead are the last ones to end as the
// line moves at its front, so they wake this waiter least often. Each ticket has a FIFO: its reader sees the end of the
// writer, however that ended. A thread can wait for only one file lock, and that wait cannot be cancelled.
func (w *Waiting) WaitBehind(ctx context.Context, n int) error {
	for {
		ahead, err := w.openPipesAhead(max(n, 1))
		switch {
		case err != nil:
		case len(ahead) < max(n, 1):
			n = 0
		default:
			err = waitForAnyEnd(ctx, ahead)
		}

		for _, file := range ahead {
			_ = file.Close()
		}
		if err != nil || n == 0 {
			return err
		}
	}
}

// openPipesAhead opens the FIFOs of the live tickets just ahead, nearest first and at most n.
func (w *Waiting) openPipesAhead(n int) (pipes []*os.File, err error) {
	dir, err := w.dir.Dir(".")
	if err != nil {
		return nil, err
	}

	defer dir.Close() //nolint:errcheck // read only
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}

	var before []string
	for _, file := range names {
		name, isTicket := strings.CutSuffix(file, ticketSuffix)
		if isTicket && isTicketName(name) && name < w.name && !w.gone[name] {
			before = append(before, name)
		}
	}

	slices.Sort(before)

	for _, name := range slices.Backward(before) {
		if len(pipes) == n {
			break
		}
		pipe, err := openPipe(int(dir.Fd()), filepath.Join(goneFolder, name))
		switch {
		case err != nil && isLocalFault(err):
			return pipes, fmt.Errorf("cannot wait behind the ticket %s: %w", name, err)
		case err != nil:
			w.gone[name] = true
		default:
			pipes = append(pipes, pipe)
		}
	}

	return pipes, nil
}

// openPipe opens a FIFO for reading. It is an error if the FIFO has no writer any more.
func openPipe(dirFD int, name string) (*os.File, error) {
	fd, err := openIn(dirFD, name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}

	// poll does not report a writer that was gone before the open (Linux fs/pipe.c, pipe_poll); read returns 0 bytes.
	if n, rerr := unix.Read(fd, make([]byte, 1)); n <= 0 && !errors.Is(rerr, unix.EAGAIN) {
		_ = unix.Close(fd)
		return nil, errors.New("no writer")
	}

	return os.NewFile(uintptr(fd), name), nil
}

func waitForAnyEnd(ctx context.Context, pipes []*os.File) error {
	ended := make(chan struct{}, len(pipes))
	for _, p := range pipes {
		go func() {
			// Returns when the writers are gone or the caller closes it.
			_, _ = p.Read(make([]byte, 1))
			ended <- struct{}{}
		}()
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
