package store

import (
	"context"
	"encoding/json"
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
	"gpuard/internal/core/space"
)

// Waiting is a ticket of this process. It counts until it is withdrawn or the process ends, however that happens; the
// command that a process becomes does not inherit it.
type Waiting struct {
	Ticket job.Ticket // as others see it
	ids    space.IDs  // that can be told apart here
	dir    string     // tickets/<name>
	name   string
	lock   *os.File        // its life
	pipe   *os.File        // its life too, for those behind it
	gone   map[string]bool // tickets ahead that have been found dead
	once   sync.Once
}

// Queue writes the ticket t; id, owner and arrival are set here. A folder that is full or cannot be written leaves nothing behind.
func (f *Folder) Queue(t job.Ticket) (*Waiting, error) {
	if err := f.acquire(); err != nil {
		return nil, err
	}
	defer f.lock.release()
	uid := uint32(os.Geteuid())
	name, err := f.ownName("tickets")
	if err != nil {
		return nil, err
	}
	dir := f.ticketsNamed(name)
	for _, d := range []string{dir, filepath.Join(dir, goneFolder)} {
		if err := ownFolder(d, uid); err != nil {
			return nil, err
		}
	}
	taken, err := f.ownTickets(dir, uid)
	if err != nil {
		return nil, fmt.Errorf("cannot wait: your tickets cannot be read: %w", err)
	}
	if len(taken) >= ticketsPerUser {
		return nil, fmt.Errorf("cannot wait: %d commands of yours are waiting already, which is the limit; end some first (gpuard status)", len(taken))
	}
	t.ID, t.UID = newID(taken), uid
	w := &Waiting{Ticket: t, ids: f.ids, dir: dir, name: fmt.Sprintf("%0*x-%s", stampDigits, time.Now().UnixNano(), t.ID), gone: map[string]bool{}}
	if err := plausible(&t, t.ID); err != nil {
		return nil, fmt.Errorf("cannot wait: %w", err)
	}
	if err := w.write(); err != nil {
		return nil, fmt.Errorf("cannot write a ticket in %s: %w", dir, err)
	}
	return w, nil
}

// ownTickets are the ids that have a file, after what is left of others was removed. Only at the limit every ticket is opened
// to find the dead ones: elsewhere they go as they come to the front.
func (f *Folder) ownTickets(path string, uid uint32) (map[string]bool, error) {
	r := f.reader()
	dir, err := openOwn(f.ids, path, uid)
	if err != nil {
		return nil, err
	}
	defer dir.Close() //nolint:errcheck // read only
	names, started, err := r.ticketNames(dir, uid)
	if err != nil {
		return nil, err
	}
	remove(dir, started...)
	taken := map[string]bool{}
	for _, name := range names {
		if len(names) >= ticketsPerUser {
			if t, err := r.ticket(int(dir.Fd()), name, uid); t == nil && err == nil {
				remove(dir, name+ticketSuffix)
				continue
			}
		}
		taken[name[stampDigits+1:]] = true
	}
	return taken, sweepPipes(f.ids, dir.Name(), uid, names)
}

// sweepPipes removes the FIFOs without a ticket.
func sweepPipes(ids space.IDs, path string, uid uint32, tickets []string) error {
	dir, err := openOwn(ids, filepath.Join(path, goneFolder), uid)
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // read only
	pipes, err := dir.Readdirnames(-1)
	for _, n := range pipes {
		if _, known := slices.BinarySearch(tickets, n); !known {
			remove(dir, n)
		}
	}
	return err
}

// openOwn opens a folder of the caller's own.
func openOwn(ids space.IDs, path string, uid uint32) (*os.File, error) {
	fd, err := openUser(ids, path, uid)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// write makes the FIFO first and the locked ticket last, because that one is what counts.
func (w *Waiting) write() error {
	content, err := json.Marshal(w.Ticket)
	if err != nil {
		return err
	}
	if len(content) >= entrySize {
		return fmt.Errorf("its content is larger than %d KiB", entrySize>>10)
	}
	path, fresh := filepath.Join(w.dir, w.name+ticketSuffix), filepath.Join(w.dir, newPrefix+w.name+ticketSuffix)
	w.pipe, err = newPipe(w.pipePath())
	if err == nil {
		w.lock, err = newLock(fresh, append(content, '\n'))
	}
	if err == nil {
		err = os.Rename(fresh, path)
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(int(w.lock.Fd()), &st)
	}
	if err != nil {
		_ = os.Remove(fresh)
		_ = w.Withdraw()
		return err
	}
	w.Ticket.Arrival = st.Ctim.Nano()
	return nil
}

func (w *Waiting) pipePath() string { return filepath.Join(w.dir, goneFolder, w.name) }

// newPipe makes a FIFO that nobody else can open, and opens both ends, so that nothing waits for another process.
func newPipe(path string) (*os.File, error) {
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return nil, &os.PathError{Op: "mkfifo", Path: path, Err: err}
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		_ = os.Remove(path)
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	// Pipes of one user share an allowance of memory (pipe(7), pipe-user-pages-soft); nothing is ever written to this one.
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, os.Getpagesize())
	return os.NewFile(uintptr(fd), path), nil
}

// Withdraw takes the ticket back. It needs no lock and never waits, so that it can be done before a process stops or dies;
// a second time it does nothing.
func (w *Waiting) Withdraw() (err error) {
	w.once.Do(func() {
		for _, path := range []string{filepath.Join(w.dir, w.name+ticketSuffix), w.pipePath()} {
			if uerr := unix.Unlink(path); err == nil && !errors.Is(uerr, unix.ENOENT) {
				err = uerr
			}
		}
		for _, file := range []*os.File{w.pipe, w.lock} {
			if file != nil {
				_ = file.Close()
			}
		}
	})
	if err != nil {
		return fmt.Errorf("cannot remove the ticket %s in %s, which counts no more: %w", w.Ticket.ID, w.dir, err)
	}
	return nil
}

// Behind returns when fewer than n live tickets of the same user came before this one, or with the error of ctx. Until then
// it waits for the end of the n tickets just before: any n would do, because as long as all of them are there nothing can
// have changed for us, and with fewer, others could leave unseen while one of those is stopped. Of the n just before, none
// ends as long as the queue moves at its front. Each has a FIFO, whose reader sees the end of its writer in whatever way that
// came; a file lock can be waited for only one at a time, in a thread that cannot be called back.
func (w *Waiting) Behind(ctx context.Context, n int) error {
	for {
		ahead, err := w.ahead(max(n, 1))
		if err == nil && len(ahead) >= max(n, 1) {
			err = anyEnd(ctx, ahead)
		} else if err == nil {
			n = 0
		}
		for _, file := range ahead {
			_ = file.Close()
		}
		if err != nil || n == 0 {
			return err
		}
	}
}

// ahead opens the FIFOs of the nearest live tickets that came before, at most n.
func (w *Waiting) ahead(n int) (pipes []*os.File, err error) {
	dir, err := openOwn(w.ids, w.dir, w.Ticket.UID)
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
		if isTicket && ticketName(name) && name < w.name && !w.gone[name] {
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
		case err != nil && ours(err):
			return pipes, fmt.Errorf("cannot wait behind the ticket %s: %w", name, err)
		case err != nil:
			w.gone[name] = true
		default:
			pipes = append(pipes, pipe)
		}
	}
	return pipes, nil
}

// openPipe opens a FIFO for reading while its writer is there.
func openPipe(dirFD int, name string) (*os.File, error) {
	fd, err := openIn(dirFD, name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	// A writer that was gone before we came is not reported as an end (Linux fs/pipe.c, pipe_poll), but a read says it.
	if n, rerr := unix.Read(fd, make([]byte, 1)); n <= 0 && !errors.Is(rerr, unix.EAGAIN) {
		_ = unix.Close(fd)
		return nil, errors.New("no writer")
	}
	return os.NewFile(uintptr(fd), name), nil
}

func anyEnd(ctx context.Context, pipes []*os.File) error {
	ended := make(chan struct{}, len(pipes))
	for _, p := range pipes {
		go func() {
			_, _ = p.Read(make([]byte, 1)) // until its writers are gone, or we close it
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
