package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// beHolder PIDFD LOCK MARKER: a holder that writes MARKER when it is done.
func beHolder(args []string) {
	result := "done"
	w, err := InheritWatch(args[0], args[1])
	if err == nil {
		err = os.WriteFile(args[2]+".pid", []byte(strconv.Itoa(os.Getpid())), 0o600)
	}
	if err == nil {
		err = errors.Join(w.Wait(time.Hour, func() {}), w.DropLease())
	}
	if err != nil {
		result = err.Error()
	}
	_ = os.WriteFile(args[2]+".new", []byte(result), 0o600)
	_ = os.Rename(args[2]+".new", args[2])
}

// lease opens and locks a file the way a lease is locked, and returns the descriptor to pass on.
func lease(path string) (int, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return -1, err
	}
	defer file.Close() //nolint:errcheck // the duplicate stays
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		return -1, err
	}
	return DupInheritable(file)
}

// roleStart LOCK MARKER: gpuard up to the command, which then closes descriptor 3 and waits.
func roleStart(args []string) error {
	fd, err := lease(args[0])
	if err != nil {
		return err
	}
	if err := StartHolder(fd, nil, args[1]); err != nil {
		return err
	}
	_, err = unix.Wait4(-1, nil, unix.WNOHANG, nil)
	if !errors.Is(err, unix.ECHILD) {
		return fmt.Errorf("a child is left: wait4 says %w", err)
	}
	fmt.Println("started", os.Getpid())
	_ = unix.Close(3)
	untilEOF()
	return nil
}

// roleReaper LOCK MARKER: adopts the orphans of a child that plays "start".
func roleReaper(args []string) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	child := exec.Command("/proc/self/exe", args...)
	child.Env = append(os.Environ(), roleVar+"=start")
	child.Stdin, child.Stdout = os.Stdin, os.Stdout
	return child.Run()
}

// roleMany DIR COUNT: starts many holders while the garbage collector and other goroutines are busy.
func roleMany(args []string) error {
	count, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	fd, err := lease(filepath.Join(args[0], "lock"))
	if err != nil {
		return err
	}
	stop := make(chan struct{})
	for range 8 {
		go func() {
			var keep [][]byte
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if keep = append(keep, make([]byte, 1+n%4096)); len(keep) > 1000 {
					keep = nil
					runtime.GC()
				}
			}
		}()
	}
	defer close(stop)
	for i := range count {
		if err := StartHolder(fd, nil, filepath.Join(args[0], fmt.Sprint("marker", i))); err != nil {
			return fmt.Errorf("holder %d: %w", i, err)
		}
	}
	return nil
}

// eventually waits for what other processes do.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after 20 s still not: %s", what)
		}
	}
}

func exists(path string) func() bool {
	return func() bool { _, err := os.Stat(path); return err == nil }
}

// began waits until the holder of marker runs and returns its PID.
func began(t *testing.T, marker string) int {
	t.Helper()
	var pid int
	eventually(t, "the holder runs", func() bool {
		data, err := os.ReadFile(marker + ".pid")
		if err == nil {
			pid, err = strconv.Atoi(string(data))
		}
		return err == nil
	})
	t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGKILL) })
	return pid
}

func locked(t *testing.T, path string) bool {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // read only
	q := unix.Flock_t{Type: unix.F_RDLCK}
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, &q); err != nil {
		t.Fatal(err)
	}
	return q.Type != unix.F_UNLCK
}

// stat returns the fields of /proc/PID/stat after the name: state, ppid, pgrp, session, tty.
func stat(t *testing.T, pid int) []string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
}

// roleSpare LOCK MARKER: leaves descriptor 3 to the holder and waits.
func roleSpare(args []string) error {
	fd, err := lease(args[0])
	if err != nil {
		return err
	}
	spare := os.NewFile(3, "spare")
	unix.CloseOnExec(3)
	if err := StartHolder(fd, spare, args[1]); err != nil {
		return err
	}
	if _, err := spare.WriteString("still open\n"); err != nil {
		return err
	}
	if err := spare.Close(); err != nil {
		return err
	}
	fmt.Println("started")
	untilEOF()
	return nil
}

// A descriptor that is left to the holder is closed by it, and stays neither there nor in the command.
func TestHolderClosesSpare(t *testing.T) {
	dir := t.TempDir()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close() //nolint:errcheck // read only
	a := play(t, []*os.File{w}, "spare", filepath.Join(dir, "lock"), filepath.Join(dir, "marker"))
	_ = w.Close()
	a.expect("started")
	began(t, filepath.Join(dir, "marker"))
	_ = r.SetReadDeadline(time.Now().Add(20 * time.Second))
	if text, err := io.ReadAll(r); err != nil || string(text) != "still open\n" {
		t.Errorf("the holder keeps it open: %q, %v", text, err)
	}
	if exists(filepath.Join(dir, "marker"))() {
		t.Error("the holder has ended before its command")
	}
}

func TestHolder(t *testing.T) {
	dir := t.TempDir()
	lock, marker := filepath.Join(dir, "lock"), filepath.Join(dir, "marker")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	a := play(t, []*os.File{w}, "start", lock, marker)
	_ = w.Close()
	command := a.expect("started ")
	pid := began(t, marker)

	fields := stat(t, pid)
	if ppid := fields[1]; ppid == command || ppid == strconv.Itoa(os.Getpid()) {
		t.Errorf("the holder is a child of %s; the command is %s", ppid, command)
	}
	if session, tty := fields[3], fields[4]; session == stat(t, os.Getpid())[3] || session == strconv.Itoa(pid) || tty != "0" {
		t.Errorf("the holder is in session %s with terminal %s, and is %d", session, tty, pid)
	}
	proc := fmt.Sprintf("/proc/%d/", pid)
	if cwd, err := os.Readlink(proc + "cwd"); cwd != "/" {
		t.Errorf("the holder stands in %s, %v", cwd, err)
	}
	var links map[string]int
	var entries []os.DirEntry
	eventually(t, "the holder has closed the file with its PID", func() bool {
		if entries, err = os.ReadDir(proc + "fd"); err != nil {
			t.Fatal(err)
		}
		links = map[string]int{}
		for _, e := range entries {
			target, _ := os.Readlink(proc + "fd/" + e.Name())
			links[target]++
		}
		return links[marker+".pid"] == 0
	})
	delete(links, "anon_inode:[eventpoll]") // the Go runtime's own
	delete(links, "anon_inode:[eventfd]")
	if len(links) != 3 || links["/dev/null"] != 3 || links[lock] != 1 || len(entries) > 7 {
		t.Errorf("the holder has open: %v; want three times /dev/null, the lock and one pidfd", links)
	}
	// A thread that the Go runtime has just begun blocks all signals for a moment.
	eventually(t, "no thread of the holder blocks a signal", func() bool {
		threads, _ := filepath.Glob(proc + "task/*/status")
		return len(threads) > 0 && !slices.ContainsFunc(threads, func(thread string) bool {
			status, err := os.ReadFile(thread)
			return err == nil && len(signals(t, string(status), "SigBlk")) > 0
		})
	})
	// The command has closed its copy of the caller's pipe; the holder must not have one.
	eof := make(chan error, 1)
	go func() { _, err := r.Read(make([]byte, 1)); eof <- err }()
	select {
	case err := <-eof:
		if !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("somebody keeps the caller's pipe open")
	}

	a.kill()
	eventually(t, "the holder is done", exists(marker))
	if said, _ := os.ReadFile(marker); string(said) != "done" {
		t.Errorf("the holder says %q", said)
	}
	if locked(t, lock) {
		t.Error("the lease is still held")
	}
}

// TestHolderThatCannotBeExecuted: the reason comes back from the grandchild, and no process and no blocked signal stays
// here.
func TestHolderThatCannotBeExecuted(t *testing.T) {
	if forkFlags&unix.CLONE_VM == 0 {
		t.Skip("the grandchild has a copy of our memory here")
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close() //nolint:errcheck // read only
	var list [1]*byte
	var before, blocked unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, nil, &before); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		a := &forkArgs{exe: cstring("/no/such/program"), root: cstring("/"), argv: &list[0], envp: &list[0], null: null.Fd()}
		for i := range a.keep {
			a.keep[i] = null.Fd()
		}
		pid, errno := doubleFork(a)
		if errno != 0 || a.failed != uintptr(unix.ENOENT) {
			t.Fatalf("%v, %v", errno, unix.Errno(a.failed))
		}
		var status unix.WaitStatus
		if _, err := unix.Wait4(int(pid), &status, 0, nil); err != nil || status.ExitStatus() != 0 {
			t.Fatalf("the child: %v, %v", err, status)
		}
	}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, nil, &blocked); err != nil || blocked != before {
		t.Errorf("blocked signals: %x, want %x, %v", blocked.Val[0], before.Val[0], err)
	}
}

func TestKilledHolderFreesNothing(t *testing.T) {
	dir := t.TempDir()
	lock, marker := filepath.Join(dir, "lock"), filepath.Join(dir, "marker")
	a := play(t, nil, "start", lock, marker)
	a.expect("started ")
	pid := began(t, marker)
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the holder is gone", func() bool {
		_, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
		_, linked := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		return err != nil || linked != nil
	})
	if !locked(t, lock) {
		t.Error("the lease ended with its holder")
	}
	a.kill()
	eventually(t, "the lease is free", func() bool { return !locked(t, lock) })
}

func TestNearestSubreaperAdoptsTheHolder(t *testing.T) {
	dir := t.TempDir()
	a := play(t, nil, "reaper", filepath.Join(dir, "lock"), filepath.Join(dir, "marker"))
	a.expect("started ")
	if got, want := stat(t, began(t, filepath.Join(dir, "marker")))[1], strconv.Itoa(a.cmd.Process.Pid); got != want {
		t.Errorf("the holder's parent is %s, want the subreaper %s", got, want)
	}
	_ = a.in.Close()
	eventually(t, "the holder is done", exists(filepath.Join(dir, "marker")))
}

// The copy between fork and exec must never run anything of the Go runtime.
func TestManyHoldersUnderPressure(t *testing.T) {
	const each, times = 25, 8
	for range times {
		dir := t.TempDir()
		a := play(t, nil, "many", dir, strconv.Itoa(each))
		out, _ := io.ReadAll(a.out)
		if err := a.cmd.Wait(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		eventually(t, fmt.Sprintf("%d holders are done", each), func() bool {
			done := 0
			for i := range each {
				if said, err := os.ReadFile(filepath.Join(dir, fmt.Sprint("marker", i))); err == nil && string(said) == "done" {
					done++
				}
			}
			return done == each
		})
		if locked(t, filepath.Join(dir, "lock")) {
			t.Error("the lease is still held")
		}
	}
}

// roleRun LOCK MARKER: all of it, with execve from another thread than the first one.
func roleRun(args []string) error {
	before := OpenDescriptors()
	fd, err := lease(args[0])
	if err != nil {
		return err
	}
	runtime.LockOSThread() // keeps the first thread for this goroutine, so that the next one has another
	result := make(chan error)
	go func() {
		err := StartHolder(fd, nil, args[1])
		if err == nil {
			err = Exec("/bin/sleep", []string{"sleep", "60"}, nil, before, fd, nil)
		}
		result <- err
	}()
	return <-result
}

// The kernel gives the first thread's identity to the one that executes; to the holder that is no end.
func TestHolderSurvivesExec(t *testing.T) {
	dir := t.TempDir()
	const count = 20
	path := func(what string, i int) string { return filepath.Join(dir, fmt.Sprint(what, i)) }
	var commands [count]*actor
	for i := range commands {
		commands[i] = play(t, nil, "run", path("lock", i), path("marker", i))
	}
	for i, a := range commands {
		began(t, path("marker", i))
		eventually(t, "the command runs", func() bool {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", a.cmd.Process.Pid))
			return strings.HasPrefix(string(line), "sleep\x00")
		})
	}
	time.Sleep(50 * time.Millisecond)
	for i, a := range commands {
		if exists(path("marker", i))() || !locked(t, path("lock", i)) {
			t.Errorf("command %d: the holder ended before its command", i)
		}
		a.kill()
	}
	for i := range commands {
		eventually(t, "the holder is done", exists(path("marker", i)))
		if locked(t, path("lock", i)) {
			t.Errorf("command %d: the lease is still held", i)
		}
	}
}

func TestWatchingRefuses(t *testing.T) {
	for _, args := range [][2]string{{"", "5"}, {"5", "x"}, {"0", "5"}, {"5", "2"}, {"777", "778"}, {"-1", "-1"}} {
		if _, err := InheritWatch(args[0], args[1]); err == nil || !strings.Contains(err.Error(), "by hand") {
			t.Errorf("Watching(%q, %q): %v", args[0], args[1], err)
		}
	}
	if err := StartHolder(-1, nil); err == nil {
		t.Error("a holder of nothing was started")
	}
}

func TestWaitCallsInBetween(t *testing.T) {
	cmd := exec.Command("/bin/sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pidfd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd) //nolint:errcheck // only watched
	calls := 0
	w := &HolderWatch{pidfd: pidfd}
	err = w.Wait(time.Millisecond, func() {
		if calls++; calls == 3 {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	if err != nil || calls < 3 {
		t.Errorf("%d calls, %v", calls, err)
	}
	if err := (&HolderWatch{pidfd: 9999}).Wait(time.Second, nil); err == nil {
		t.Error("a descriptor that is not open looks like a command that has ended")
	}
}

// TestHolderTellsOfRaces: what the race detector finds in a holder is written where the caller wants it.
func TestHolderTellsOfRaces(t *testing.T) {
	t.Setenv("GORACE", "log_path=/reports")
	if !slices.Contains(holderEnv(), "GORACE=log_path=/reports") {
		t.Errorf("a holder has %q", holderEnv())
	}
}
