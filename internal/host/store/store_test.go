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
	aliceUID = 4001
	bobUID   = 4002
)

func (f *Folder) userFolder(uid uint32) string {
	return filepath.Join(f.Path, "leases", formatUID(uid))
}

func (f *Folder) ticketFolder(uid uint32) string {
	return filepath.Join(f.Path, "tickets", formatUID(uid))
}

// The tests need other processes and other users: this binary again, with a role.
func TestMain(m *testing.M) {
	apart.RunIfWatcher()
	role := os.Getenv(roleVar)
	if role == "" {
		os.Exit(apart.Run(m))
	}
	play, known := roleTable()[role]
	if !known {
		fmt.Println("cannot play", role)
		os.Exit(2)
	}
	if err := play(os.Args[1:]); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

func roleTable() map[string]func([]string) error {
	return map[string]func([]string) error{
		"create": roleCreate, "ctrl-z": roleCtrlZ, "claim": roleClaim, "churn": roleChurn, "contend": roleContend,
		"lock": roleLock, "try": roleTry, "hold": roleHold, "parent": roleParent, "do": roleDo, "hostile": roleHostile,
		"within": roleWithin, "own": roleOwn, "list": roleList, "traced": roleTraced, "wait": roleWait, "tickets": roleTickets, "watch": roleWatch,
		"hostile-tickets": roleHostileTickets, "exchange": roleExchange, "remake": roleRemake, "victim": roleVictim,
	}
}

// roleProcess is a process that plays a role.
type roleProcess struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startRole starts a role as uid; what it prints is read line by line, and it ends when its standard input does.
func startRole(t *testing.T, uid uint32, role string, args ...string) *roleProcess {
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
	a := &roleProcess{t, cmd, in, bufio.NewReader(out)}
	t.Cleanup(func() { a.kill() })
	return a
}

func ownUID() uint32 { return uint32(os.Geteuid()) }

// readLine returns the next line that the actor prints, "" at its end.
func (a *roleProcess) readLine() string {
	s, _ := a.out.ReadString('\n')
	return strings.TrimSuffix(s, "\n")
}

// expectLine fails unless the next line begins with want; it returns the rest.
func (a *roleProcess) expectLine(want string) string {
	a.t.Helper()
	got := a.readLine()
	rest, ok := strings.CutPrefix(got, want)
	if !ok {
		a.t.Fatalf("the other process says %q, want %q", got, want)
	}
	return strings.TrimSpace(rest)
}

func (a *roleProcess) kill() {
	_ = a.cmd.Process.Kill()
	_ = a.cmd.Wait()
}

// endAndRead lets the actor finish and returns the rest of what it prints.
func (a *roleProcess) endAndRead() string {
	a.t.Helper()
	_ = a.in.Close()
	rest, _ := io.ReadAll(a.out)
	if err := a.cmd.Wait(); err != nil {
		a.t.Fatalf("the other process: %v: %s", err, rest)
	}
	return strings.TrimSpace(string(rest))
}

func waitForEOF() { _, _ = io.Copy(io.Discard, os.Stdin) }

// makeSharedFolder is a folder that other users can enter, unlike t.TempDir.
func makeSharedFolder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(apart.TempFolder(), "gpuard-store-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// newStateFolder is a new state folder, opened.
func newStateFolder(t testing.TB) *Folder {
	t.Helper()
	path := filepath.Join(makeSharedFolder(t), "state")
	if err := CreateFolder(path); err != nil {
		t.Fatal(err)
	}
	return mustOpen(t, path)
}

func mustOpen(t testing.TB, path string, others ...string) *Folder {
	t.Helper()
	f, err := Open(path, others, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

var errBusy = errors.New("busy")

// claimFirstFree chooses the first of the devices that no lease holds.
func claimFirstFree(devices ...gpu.UUID) func(View) (job.Lease, error) {
	return func(v View) (job.Lease, error) {
		for _, d := range devices {
			if !slices.ContainsFunc(v.Held, func(l job.Lease) bool { return l.Holds(d) }) {
				return job.Lease{Devices: []gpu.UUID{d}, PID: os.Getpid(), Command: "test"}, nil
			}
		}
		return job.Lease{}, errBusy
	}
}

func mustClaim(t *testing.T, f *Folder, devices ...gpu.UUID) *Held {
	t.Helper()
	h, err := f.Claim(testBoot, nil, claimFirstFree(devices...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Lock.Close() })
	return h
}

func toUUIDs(words []string) []gpu.UUID {
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
	waitForEOF()
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
	h, err := f.Claim(testBoot, nil, claimFirstFree(toUUIDs(args[2:])...))
	if err != nil {
		return err
	}
	fmt.Println("claimed", h.Lease.ID, h.Lease.Devices[0])
	waitForEOF()
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
	waitForEOF()
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
	return startRole(t, ownUID(), "try", path).expectLine("holder ")
}

// leftoverFiles are the files in the caller's folder of leases.
func leftoverFiles(t *testing.T, f *Folder, uid uint32) []string {
	t.Helper()
	return entryFiles(t, f.userFolder(uid))
}

// entryFiles are those of a user's folder that belong to a lease or a ticket, or were going to.
func entryFiles(t *testing.T, dir string) []string {
	t.Helper()
	var left []string
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != lastName && e.Name() != goneFolder {
			left = append(left, e.Name())
		}
	}
	return left
}
