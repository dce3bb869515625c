package store

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/test/apart"
)

const (
	roleVar  = "GPUARD_STORE_ROLE"
	testBoot = "boot-1"
	alice    = 4001
	bob      = 4002
)

func (f *Folder) userFolder(uid uint32) string {
	return filepath.Join(f.Path, "leases", decimal(uid))
}

func (f *Folder) ticketFolder(uid uint32) string {
	return filepath.Join(f.Path, "tickets", decimal(uid))
}

// The tests need other processes and other users: this binary again, with a role.
func TestMain(m *testing.M) {
	apart.Watch()
	role := os.Getenv(roleVar)
	if role == "" {
		os.Exit(apart.Run(m))
	}
	play, known := roles()[role]
	if !known {
		fmt.Println("cannot play", role)
		os.Exit(2)
	}
	if err := play(os.Args[1:]); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

func roles() map[string]func([]string) error {
	return map[string]func([]string) error{
		"create": roleCreate, "ctrl-z": roleCtrlZ, "claim": roleClaim, "churn": roleChurn, "contend": roleContend,
		"lock": roleLock, "try": roleTry, "hold": roleHold, "parent": roleParent, "do": roleDo, "hostile": roleHostile,
		"within": roleWithin, "own": roleOwn, "list": roleList, "traced": roleTraced, "wait": roleWait, "tickets": roleTickets, "watch": roleWatch,
		"hostile-tickets": roleHostileTickets, "exchange": roleExchange, "remake": roleRemake, "victim": roleVictim,
	}
}

// actor is a process that plays a role.
type actor struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// play starts a role as uid; what it prints is read line by line, and it ends when its standard input does.
func play(t *testing.T, uid uint32, role string, args ...string) *actor {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Dir = "/" // where go test works only its owner may be
	cmd.Env = []string{roleVar + "=" + role, "TMPDIR=" + os.TempDir(), "GORACE=" + os.Getenv("GORACE")}
	cmd.Stderr = os.Stderr
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a := &actor{t, cmd, in, bufio.NewReader(out)}
	t.Cleanup(func() { a.kill() })
	return a
}

func me() uint32 { return uint32(os.Geteuid()) }

// line returns the next line that the actor prints, "" at its end.
func (a *actor) line() string {
	s, _ := a.out.ReadString('\n')
	return strings.TrimSuffix(s, "\n")
}

// expect fails unless the next line begins with want; it returns the rest.
func (a *actor) expect(want string) string {
	a.t.Helper()
	got := a.line()
	rest, ok := strings.CutPrefix(got, want)
	if !ok {
		a.t.Fatalf("the other process says %q, want %q", got, want)
	}
	return strings.TrimSpace(rest)
}

func (a *actor) kill() {
	_ = a.cmd.Process.Kill()
	_ = a.cmd.Wait()
}

// end lets the actor finish and returns the rest of what it prints.
func (a *actor) end() string {
	a.t.Helper()
	_ = a.in.Close()
	rest, _ := io.ReadAll(a.out)
	if err := a.cmd.Wait(); err != nil {
		a.t.Fatalf("the other process: %v: %s", err, rest)
	}
	return strings.TrimSpace(string(rest))
}

func untilEOF() { _, _ = io.Copy(io.Discard, os.Stdin) }

// place is a folder that other users can enter, unlike t.TempDir.
func place(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(apart.Temporary(), "gpuard-store-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// fresh is a new state folder, opened.
func fresh(t testing.TB) *Folder {
	t.Helper()
	path := filepath.Join(place(t), "state")
	if err := CreateFolder(path); err != nil {
		t.Fatal(err)
	}
	return reopen(t, path)
}

func reopen(t testing.TB, path string, others ...string) *Folder {
	t.Helper()
	f, err := Open(path, others, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

var errBusy = errors.New("busy")

// first chooses the first of the devices that no lease holds.
func first(devices ...gpu.UUID) func(View) (job.Lease, error) {
	return func(v View) (job.Lease, error) {
		for _, d := range devices {
			if !slices.ContainsFunc(v.Held, func(l job.Lease) bool { return l.Holds(d) }) {
				return job.Lease{Devices: []gpu.UUID{d}, PID: os.Getpid(), Command: "test"}, nil
			}
		}
		return job.Lease{}, errBusy
	}
}

func claim(t *testing.T, f *Folder, devices ...gpu.UUID) *Held {
	t.Helper()
	h, err := f.Claim(testBoot, nil, first(devices...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Lock.Close() })
	return h
}

func uuids(words []string) []gpu.UUID {
	ids := make([]gpu.UUID, len(words))
	for i, w := range words {
		ids[i] = gpu.UUID(w)
	}
	return ids
}

// roleCreate PATH: creates and opens.
func roleCreate(args []string) error {
	unix.Umask(0o077)
	fmt.Println("ready")
	untilEOF()
	if err := CreateFolder(args[0]); err != nil {
		return err
	}
	f, err := Open(args[0], nil, time.Second)
	if err != nil {
		return err
	}
	return f.Close()
}

// roleClaim PATH DEADLINE DEVICE…: claims one device and keeps it.
func roleClaim(args []string) error {
	deadline, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	f, err := Open(args[0], nil, deadline)
	if err != nil {
		return err
	}
	h, err := f.Claim(testBoot, nil, first(uuids(args[2:])...))
	if err != nil {
		return err
	}
	fmt.Println("claimed", h.Lease.ID, h.Lease.Devices[0])
	untilEOF()
	return h.Lock.Close()
}

// roleList PATH: prints what is alive, and the problems.
func roleList(args []string) error {
	f, err := Open(args[0], nil, time.Second)
	if err != nil {
		return err
	}
	began := time.Now()
	leases, problems := f.Leases()
	for _, l := range leases {
		fmt.Println("lease", l.ID, l.UID, l.Devices, l.Unreadable)
	}
	for _, p := range problems {
		fmt.Printf("problem %d %q %s\n", p.UID, p.Path, p.Text)
	}
	fmt.Println("took", time.Since(began))
	return nil
}

// roleLock PATH posix|ofd: keeps the folder lock.
func roleLock(args []string) error {
	file, err := os.OpenFile(filepath.Join(args[0], "lock"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	cmd := map[string]int{"posix": unix.F_SETLKW, "ofd": unix.F_OFD_SETLKW}[args[1]]
	if err := unix.FcntlFlock(file.Fd(), cmd, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		return err
	}
	fmt.Println("locked", os.Getpid())
	untilEOF()
	return file.Close()
}

// roleTry PATH: prints the PID that holds the folder lock now, 0 when it is free, -1 when the kernel does not say.
func roleTry(args []string) error {
	file, err := os.OpenFile(filepath.Join(args[0], "lock"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	q := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(file.Fd(), unix.F_GETLK, &q); err != nil {
		return err
	}
	if q.Type == unix.F_UNLCK {
		q.Pid = 0
	}
	fmt.Println("holder", q.Pid)
	return nil
}

// lockHolder asks from another process, because a process does not see its own lock.
func lockHolder(t *testing.T, path string) string {
	t.Helper()
	return play(t, me(), "try", path).expect("holder ")
}

// leftovers are the files in the caller's folder of leases.
func leftovers(t *testing.T, f *Folder, uid uint32) []string {
	t.Helper()
	return files(t, f.userFolder(uid))
}

// files are those of a user's folder that belong to a lease or a ticket, or were going to.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var left []string
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != last && e.Name() != goneFolder {
			left = append(left, e.Name())
		}
	}
	return left
}
