//go:build amd64 || arm64

package isolation

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"gpuard/internal/host/filelimit"
)

// becomeInNamespace becomes the program in user and mount namespaces of its own, in which the files cannot be opened:
// each is mounted over itself with "nodev". The program cannot take that back. It has no CAP_SYS_ADMIN in that user
// namespace, and in one that it makes inside it the mounts are locked (mount_namespaces(7), "Restrictions on mount
// namespaces").
//
// The user ids stay what they are. Who may (CAP_SETUID and CAP_SETGID, as root) takes all of them along; everybody else
// only their own, and has no groups to change to.
func becomeInNamespace(hidden []string, p walledProgram) error {
	// Before the question, so that its answer stays true.
	runtime.LockOSThread()
	if unix.Gettid() != os.Getpid() {
		return errNotFirst
	}

	caps, err := effectiveCaps()
	if err != nil {
		return err
	}

	a := &soleThread{pid: os.Getpid(), tasks: cstring("/proc/self/task"), exe: cstring("/proc/self/exe")}

	// A thread that has ended is no longer listed, but still shares signal handlers until the kernel has put them away
	// (__exit_signal in kernel/exit.c). Until then the call is invalid.
	a.addStep(syscallStep{what: "make a user and a mount namespace", call: unix.SYS_UNSHARE, args: [6]uintptr{unix.CLONE_NEWUSER | unix.CLONE_NEWNS}, passes: uintptr(unix.EINVAL)})
	full := caps.has(unix.CAP_SETUID) && caps.has(unix.CAP_SETGID)
	if full {
		err = a.mapAllIDs()
		if err != nil {
			return err
		}
	} else {
		a.mapOwnIDs()
	}

	for _, path := range hidden {
		err = a.coverDevice(path)
		if err != nil {
			return err
		}
	}

	err = a.showWithout(hidden)
	if err != nil {
		return err
	}

	a.dropCapabilities(full)
	err = a.becomeProgram(p)
	if err != nil {
		return err
	}

	err = a.prepareFailure(p)
	if err != nil {
		return err
	}

	a.runAlone()

	return errors.New("cannot start the command behind a wall: execve(2) came back")
}

func (a *soleThread) addStep(s syscallStep) { a.steps = append(a.steps, s) }

// keepString keeps what a step points to.
func (a *soleThread) keepString(text string) uintptr {
	p := cstring(text)
	a.keep = append(a.keep, p)
	return uintptr(unsafe.Pointer(p))
}

func cstring(s string) *byte {
	b := append([]byte(s), 0)
	return &b[0]
}

// AT_FDCWD.
const atCurrentDir = ^uintptr(99)

// writeFileSteps are the steps that write a file of procfs at once.
func (a *soleThread) writeFileSteps(path, text string) []syscallStep {
	what := "write " + path
	return []syscallStep{
		{what: what, call: unix.SYS_OPENAT, args: [6]uintptr{atCurrentDir, a.keepString(path), unix.O_WRONLY | unix.O_CLOEXEC}, opens: true},
		{what: what, call: unix.SYS_WRITE, args: [6]uintptr{0, a.keepString(text), uintptr(len(text))}, from: 1},
		{what: what, call: unix.SYS_CLOSE, from: 1},
	}
}

// mapOwnIDs maps the own ids alone: user_namespaces(7), "Defining user and group ID mappings".
func (a *soleThread) mapOwnIDs() {
	for _, f := range [][2]string{
		{"setgroups", "deny"}, {"uid_map", fmt.Sprintf("%d %[1]d 1", os.Geteuid())}, {"gid_map", fmt.Sprintf("%d %[1]d 1", os.Getegid())},
	} {
		a.steps = append(a.steps, a.writeFileSteps("/proc/self/"+f[0], f[1])...)
	}
}

// mapAllIDs maps every id to itself. That is written by a child that stays outside, as the kernel wants it.
func (a *soleThread) mapAllIDs() error {
	var ends [2]int
	err := unix.Pipe2(ends[:], unix.O_CLOEXEC)
	if err != nil {
		return err
	}

	status := new(uint32)
	letter := a.keepString("x")
	a.keep = append(a.keep, status)
	read, write := uintptr(ends[0]), uintptr(ends[1]) //nolint:gosec // descriptors

	// The child must not have the writing end, or it would wait for ever when this process dies.
	a.child = []syscallStep{{call: unix.SYS_CLOSE, args: [6]uintptr{write}}, {call: unix.SYS_READ, args: [6]uintptr{read, a.keepString(" "), 1}}}

	for _, kind := range []string{"uid_map", "gid_map"} {
		text, err := identityMap("/proc/self/" + kind)
		if err != nil {
			return err
		}
		a.child = append(a.child, a.writeFileSteps(fmt.Sprintf("/proc/%d/%s", a.pid, kind), text)...)
	}

	const what = "map the users and groups"
	a.addStep(syscallStep{what: what, call: unix.SYS_WRITE, args: [6]uintptr{write, letter, 1}})
	a.addStep(syscallStep{what: what, call: unix.SYS_WAIT4, args: [6]uintptr{^uintptr(0), uintptr(unsafe.Pointer(status)), unix.WCLONE, 0}, zero: status})

	return nil
}

// identityMap is the map of all ids that this process has to themselves.
func identityMap(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}

	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) == 3 {
			fmt.Fprintf(&out, "%s %[1]s %s\n", f[0], f[2])
		}
	}

	return out.String(), nil
}

// coverDevice mounts a file over itself so that no device can be opened there. In a user namespace a mount keeps the
// flags that it had, so they are said again; those about times of access stay where none is said (fs/namespace.c,
// path_mount).
func (a *soleThread) coverDevice(path string) error {
	var fs unix.Statfs_t
	err := unix.Statfs(path, &fs)
	if err != nil {
		return fmt.Errorf("cannot close %s: %w", path, err)
	}

	flags := uintptr(unix.MS_BIND | unix.MS_REMOUNT | unix.MS_NODEV)
	for _, f := range [][2]uintptr{
		{unix.ST_RDONLY, unix.MS_RDONLY}, {unix.ST_NOSUID, unix.MS_NOSUID}, {unix.ST_NOEXEC, unix.MS_NOEXEC},
	} {
		if uintptr(fs.Flags)&f[0] != 0 { //nolint:gosec // flags
			flags |= f[1]
		}
	}

	what, at := "close "+path, a.keepString(path)
	a.addStep(syscallStep{what: what, call: unix.SYS_MOUNT, args: [6]uintptr{at, at, 0, unix.MS_BIND}})
	a.addStep(syscallStep{what: what, call: unix.SYS_MOUNT, args: [6]uintptr{0, at, 0, flags}})

	return nil
}

// dropCapabilities leaves none, or with all users all but CAP_SYS_ADMIN, which could undo the mounts. That is taken
// from the bounding set too, or a program could have it by its file; a program that has others by its file would not
// start without them (capabilities(7), "Safety checking for capability-dumb binaries"), and in this namespace they are
// worth nothing.
func (a *soleThread) dropCapabilities(full bool) {
	const what = "drop capabilities"
	a.addStep(syscallStep{what: what, call: unix.SYS_PRCTL, args: [6]uintptr{unix.PR_CAPBSET_DROP, unix.CAP_SYS_ADMIN}})
	head := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := new([2]unix.CapUserData)
	if full {
		// What this kernel does not know it takes off itself (security/commoncap.c).
		every := ^uint32(0)
		without := every &^ (1 << unix.CAP_SYS_ADMIN)
		data[0] = unix.CapUserData{Effective: without, Permitted: without}
		data[1] = unix.CapUserData{Effective: every, Permitted: every}
	}

	a.keep = append(a.keep, head, data)
	a.addStep(syscallStep{what: what, call: unix.SYS_CAPSET, args: [6]uintptr{uintptr(unsafe.Pointer(head)), uintptr(unsafe.Pointer(data))}})
}

// becomeProgram executes the program, with the limit of open files and the signals that this one was started with.
func (a *soleThread) becomeProgram(p walledProgram) error {
	argv, err := syscall.SlicePtrFromStrings(p.argv)
	if err != nil {
		return err
	}

	script, err := syscall.SlicePtrFromStrings(append([]string{"/bin/sh", p.path}, p.argv[1:]...))
	if err != nil {
		return err
	}

	envp, err := syscall.SlicePtrFromStrings(p.env)
	if err != nil {
		return err
	}

	a.envp = &envp[0]
	soft, hard := filelimit.OriginalLimits()
	limit := &[2]uint64{soft, hard}
	a.keep = append(a.keep, argv, script, envp, limit)
	if hard != 0 {
		a.addStep(syscallStep{what: "set the limit of open files", call: unix.SYS_PRLIMIT64, args: [6]uintptr{0, unix.RLIMIT_NOFILE, uintptr(unsafe.Pointer(limit))}})
	}

	a.addStep(syscallStep{call: prepareExec})
	a.addStep(syscallStep{what: "unblock signals", call: unix.SYS_RT_SIGPROCMASK, args: [6]uintptr{unix.SIG_SETMASK, uintptr(unsafe.Pointer(&a.old)), 0, 8}})
	environment := uintptr(unsafe.Pointer(&envp[0]))
	a.addStep(syscallStep{what: execStep, call: unix.SYS_EXECVE, args: [6]uintptr{a.keepString(p.path), uintptr(unsafe.Pointer(&argv[0])), environment}, skips: uintptr(unix.ENOEXEC)})
	a.addStep(syscallStep{what: execStep, call: unix.SYS_EXECVE, args: [6]uintptr{a.keepString("/bin/sh"), uintptr(unsafe.Pointer(&script[0])), environment}})

	return nil
}

// execStep is what the last steps are called, of which the error is the program's own.
const execStep = "execute"

// prepareFailure prepares the command line of the program that says what failed: see FailedStepError.
func (a *soleThread) prepareFailure(p walledProgram) error {
	words := []string{"gpuard", FailedFlag, "", "", p.argv[0]}
	for _, s := range a.steps {
		words = append(words, s.what)
	}

	argv, err := syscall.SlicePtrFromStrings(words)
	if err != nil {
		return err
	}

	argv[2], argv[3] = &a.number[0], &a.errno[0]
	a.argv = &argv[0]
	a.keep = append(a.keep, argv)

	return nil
}
