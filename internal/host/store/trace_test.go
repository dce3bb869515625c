package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/gate"
)

// systemCall is one system call of a traced process, as the kernel stops it there (ptrace(2), PTRACE_GET_SYSCALL_INFO).
type systemCall struct {
	tid   int
	entry bool // before it is made; else after it
	nr    uint64
	args  [6]uint64
	step  int // counts the entries of calls that touch files, from 1
}

// fileCalls are the calls that change or read what other processes see of a folder. Between two of them nothing changes.
func fileCalls() []uint64 {
	return []uint64{
		unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_PREAD64, unix.SYS_READ, unix.SYS_FTRUNCATE,
		unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCNTL, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_UNLINKAT,
		unix.SYS_MKDIRAT, unix.SYS_MKNODAT, unix.SYS_CLOSE, unix.SYS_GETDENTS64, unix.SYS_FSTAT, unix.SYS_UTIMENSAT,
	}
}

// stopAtCalls lets the kernel stop all threads of this process, for its tracer, at these calls and the last one, and at no other
// (seccomp(2), SECCOMP_RET_TRACE): the Go runtime makes five times as many.
func stopAtCalls(calls []uint64) error {
	calls = append(calls, unix.SYS_EXIT_GROUP)
	program := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}} // the number, first in struct seccomp_data
	for i, nr := range calls {
		program = append(program, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(nr), Jt: uint8(len(calls) - i)}) //nolint:gosec // few
	}
	program = append(program, unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW}, unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_TRACE})
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]} //nolint:gosec // few
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&filter))); errno != 0 {
		return errno
	}
	return nil
}

// roleTraced PATH WHAT DEVICE: one of the deeds, between two calls of getpgid that nothing else here makes.
func roleTraced(args []string) error {
	if err := stopAtCalls(append(fileCalls(), unix.SYS_GETPGID, unix.SYS_FSTATFS)); err != nil {
		return err
	}
	f, err := Open(args[0], nil, 20*time.Second)
	if err != nil {
		return err
	}
	deed := map[string]func(*Folder, []gpu.UUID) (string, error){
		"claim": claimOnly, "end": claimAndEnd, "respect": claimUnlessSomebodyWaits, "queue": queueAndClaim, "withdraw": queueAndWithdraw, "succeed": succeedOnly,
		"lives": repeatDeed(claimMarkTouchAndEnd), "waits": repeatDeed(queueClaimAndEnd),
		"create": createBeside,
	}[args[1]]
	_, _ = unix.Getpgid(0)
	id, err := deed(f, toUUIDs(args[2:]))
	_, _ = unix.Getpgid(0)
	if err != nil {
		return err
	}
	fmt.Println("claimed", id)
	return nil
}

func claimOnly(f *Folder, devices []gpu.UUID) (string, error) {
	h, err := f.Claim(testBoot, nil, claimFirstFree(devices...))
	if err != nil {
		return "", err
	}
	return h.Lease.ID, nil
}

func claimAndEnd(f *Folder, devices []gpu.UUID) (string, error) {
	h, err := f.Claim(testBoot, nil, claimFirstFree(devices...))
	if err != nil {
		return "", err
	}
	_ = h.Lock.Close()
	_, err = f.EndIfUnheld(h.Lease, testBoot)
	return h.Lease.ID, err
}

// createBeside makes another state folder next to the open one.
func createBeside(f *Folder, _ []gpu.UUID) (string, error) {
	return "it", CreateFolder(filepath.Join(filepath.Dir(f.Path), "beside"))
}

// repeatDeed repeats a deed until it is killed, with two calls of getpgid in between; its output does not matter.
func repeatDeed(deed func(*Folder, []gpu.UUID) (string, error)) func(*Folder, []gpu.UUID) (string, error) {
	return func(f *Folder, devices []gpu.UUID) (string, error) {
		unix.Umask(0o077) // so that the mode of what it makes has to be changed
		for range 1000 {
			_, _ = deed(f, devices)
			_, _ = unix.Getpgid(0)
			_, _ = unix.Getpgid(0)
		}
		return "", errors.New("nobody ended it")
	}
}

func claimMarkTouchAndEnd(f *Folder, devices []gpu.UUID) (string, error) {
	h, err := f.Claim(testBoot, nil, claimFirstFree(devices...))
	if err != nil {
		return "", err
	}
	marked := f.RecordHolders(h.Lease, []job.Blocker{{PID: 1}})
	f.TouchLease(h.Lease)
	_ = h.Lock.Close()
	_, err = f.EndIfUnheld(h.Lease, testBoot)
	return h.Lease.ID, errors.Join(marked, err)
}

func claimUnlessSomebodyWaits(f *Folder, devices []gpu.UUID) (string, error) {
	h, err := f.Claim(testBoot, nil, func(v View) (job.Lease, error) {
		if len(v.Tickets) > 0 {
			return job.Lease{}, errBusy
		}
		return job.Lease{Devices: devices}, nil
	})
	if err != nil {
		return "", err
	}
	return h.Lease.ID, nil
}

func queueAndClaim(f *Folder, devices []gpu.UUID) (string, error) {
	w, err := f.QueueTicket(job.Ticket{Devices: devices, Count: 1})
	if err != nil {
		return "", err
	}
	if err := w.WaitBehind(context.Background(), 1); err != nil {
		return "", err
	}
	h, err := f.Claim(testBoot, w, claimFirstFree(devices...))
	if err != nil {
		return "", errors.Join(err, w.Withdraw())
	}
	return h.Lease.ID, nil
}

func queueClaimAndEnd(f *Folder, devices []gpu.UUID) (string, error) {
	w, err := f.QueueTicket(job.Ticket{Devices: devices, Count: 1})
	if err != nil {
		return "", err
	}
	h, err := f.Claim(testBoot, w, claimFirstFree(devices...))
	if err != nil {
		return "", errors.Join(err, w.Withdraw())
	}
	_ = h.Lock.Close()
	_, err = f.EndIfUnheld(h.Lease, testBoot)
	return h.Lease.ID, err
}

func queueAndWithdraw(f *Folder, devices []gpu.UUID) (string, error) {
	w, err := f.QueueTicket(job.Ticket{Devices: devices, Count: 1})
	if err != nil {
		return "", err
	}
	return w.Ticket.ID, w.Withdraw()
}

// traceDeed plays roleTraced and stops it before and after each call that touches files, and at its last one. at sees all of
// them; those within the deed have a step. Its answer true kills the process there. What the role said is returned.
func traceDeed(t *testing.T, path, what string, at func(c systemCall) (kill bool)) string {
	t.Helper()
	gate.Need(t, "ptrace")
	runtime.LockOSThread() // the tracer is a thread
	defer runtime.UnlockOSThread()
	defer pinToOneCPU(t)()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close() //nolint:errcheck // read only
	cmd := exec.Command("/proc/self/exe", path, what, "GPU-a")
	cmd.Env = []string{roleVar + "=traced", "GODEBUG=asyncpreemptoff=1", "GOMAXPROCS=1"}
	cmd.Stdout, cmd.Stderr = w, w
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill() //nolint:errcheck // unless the test failed, it is gone
	followProcess(t, cmd.Process.Pid, at)
	_ = cmd.Wait() // releases it; its end was seen already
	said, _ := io.ReadAll(r)
	return strings.TrimSpace(string(said))
}

// tracerCount counts the calls of pinToOneCPU, so that two tests side by side have a processor each.
var tracerCount atomic.Int32

// pinToOneCPU keeps this thread, and what it starts, on one processor until the returned function is called: each stop
// switches between tracer and traced thread, which takes three times as long between two processors.
func pinToOneCPU(t *testing.T) (back func()) {
	t.Helper()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	var cpus []int
	for cpu := 0; len(cpus) < all.Count(); cpu++ {
		if all.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	one.Set(cpus[int(tracerCount.Add(1))%len(cpus)])
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	return func() { _ = unix.SchedSetaffinity(0, &all) }
}

func followProcess(t *testing.T, pid int, at func(c systemCall) bool) {
	t.Helper()
	pending := map[int]systemCall{} // by thread, from entry to exit
	known := map[int]bool{pid: true}
	within, step, started := false, 0, false
	for {
		var ws unix.WaitStatus
		tid, err := unix.Wait4(-1, &ws, unix.WALL|unix.WNOTHREAD, nil)
		if err == unix.EINTR { //nolint:errorlint // an errno
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if tid == pid && (ws.Exited() || ws.Signaled()) {
			return
		}
		if !ws.Stopped() {
			continue
		}
		if !started {
			started = true
			if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_TRACESECCOMP|unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_EXITKILL); err != nil {
				t.Fatal(err)
			}
		}
		deliver, before := 0, ws.StopSignal() == unix.SIGTRAP && ws.TrapCause() == unix.PTRACE_EVENT_SECCOMP
		switch sig := ws.StopSignal(); {
		case before || sig == unix.SIGTRAP|0x80:
			c, ok := readStoppedCall(tid)
			if !ok {
				break // it was killed just now
			}
			if !c.entry {
				entered := pending[tid]
				c.nr, c.args, c.step = entered.nr, entered.args, entered.step
				delete(pending, tid)
			} else {
				if c.nr == unix.SYS_GETPGID {
					within = !within
				}
				if within && slices.Contains(fileCalls(), c.nr) {
					step++
					c.step = step
				}
				pending[tid] = c
			}
			if at(c) {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		case sig == unix.SIGTRAP, sig == unix.SIGSTOP && !known[tid]:
		default:
			deliver = int(sig)
		}
		known[tid] = true
		if before {
			_ = unix.PtraceSyscall(tid, deliver) // to the end of the call; fails for a thread that was killed
		} else {
			_ = unix.PtraceCont(tid, deliver)
		}
	}
}

// readStoppedCall asks which call a thread is stopped at: include/uapi/linux/ptrace.h, struct ptrace_syscall_info.
func readStoppedCall(tid int) (c systemCall, ok bool) {
	var info [88]byte
	const get = 0x420e
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, get, uintptr(tid), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	const exit, filtered = 2, 3
	if errno != 0 || info[0] != filtered && info[0] != exit {
		return c, false
	}
	c = systemCall{tid: tid, entry: info[0] == filtered}
	if c.entry {
		c.nr = binary.NativeEndian.Uint64(info[24:])
		for i := range c.args {
			c.args[i] = binary.NativeEndian.Uint64(info[32+8*i:])
		}
	}
	return c, true
}
