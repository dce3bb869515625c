package isolation_test

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
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/job"
	"gpuard/internal/gate"
	"gpuard/internal/host/cgroupfs"
	"gpuard/internal/host/isolation"
)

// tryFlag begins the command line of a program that tries to open the file of others: a way, a folder of its own, and a process of
// the same user outside the wall. It ends with 0 only if it has got there.
const tryFlag = "__try"

func tryToEscape(args []string) error {
	if len(args) != 3 {
		return errors.New("cannot try: a way, a folder and a process are needed")
	}
	outside, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	try, known := waysOut()[args[0]]
	if !known {
		return fmt.Errorf("cannot try %q", args[0])
	}
	err = try(args[1], outside)
	if err != nil {
		fmt.Println("held:", err)
		os.Exit(3)
	}
	fmt.Println("escaped")
	return nil
}

// open opens a file, and succeeds only if it is the device of others.
func open(path string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	return isOthers(fd)
}

func isOthers(fd int) error {
	_, err := unix.Write(fd, []byte("x"))
	if !errors.Is(err, unix.ENOSPC) { // what /dev/full answers, and nothing else here
		return fmt.Errorf("it is another file: %w", err)
	}
	return nil
}

// inside runs a shell script as root of user and mount namespaces that it makes inside of the wall.
func inside(script string) error {
	cmd := exec.Command("/bin/sh", "-ec", script)
	cmd.Stderr, cmd.Stdout = os.Stdout, os.Stdout
	cmd.SysProcAttr = rootInside()
	return cmd.Run()
}

// insideTry tries another of the ways as root of namespaces that it makes inside of the wall.
func insideTry(way, folder string) error {
	cmd := exec.Command("/proc/self/exe", tryFlag, way, folder, "1")
	cmd.Stderr, cmd.Stdout = os.Stdout, os.Stdout
	cmd.SysProcAttr = rootInside()
	return cmd.Run()
}

func rootInside() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
}

// writes is a shell command that succeeds only on the device of others.
func writes(path string) string {
	return fmt.Sprintf("; ! (echo x >%s) 2>err && grep -q 'No space' err", path)
}

// after is whether it could be opened after something was tried that may have failed.
func after(_, opened error) error { return opened }

// waysOut are the ways that are tried. Each is an idea of somebody who wants to get out.
func waysOut() map[string]func(folder string, outside int) error {
	at := filepath.Join
	return map[string]func(string, int) error{
		"open it":          func(string, int) error { return open(others) },
		"by a longer path": func(string, int) error { return open("/proc/self/root/dev/../dev/./full") },
		"by a symbolic link": func(dir string, _ int) error {
			return after(os.Symlink(others, at(dir, "l")), open(at(dir, "l")))
		},
		"make another node":         func(dir string, _ int) error { return makeNode(at(dir, "n")) },
		"make another node in /dev": func(string, int) error { return makeNode("/dev/gpuard-test-full") },
		"make a node in memory":     func(string, int) error { return makeNode("/dev/shm/gpuard-test-full") },
		"a hard link beside it":     func(string, int) error { return link("/dev/gpuard-test-link") },
		"a hard link elsewhere":     func(dir string, _ int) error { return link(at(dir, "link")) },
		"move it":                   func(string, int) error { return rename("/dev/gpuard-test-moved") },
		"mount it elsewhere":        func(dir string, _ int) error { return bind(dir) },
		"unmount it":                func(string, int) error { return after(unix.Unmount(others, unix.MNT_DETACH), open(others)) },
		"unmount /dev":              func(string, int) error { return after(unix.Unmount("/dev", unix.MNT_DETACH), open(others)) },
		"mount it anew": func(string, int) error {
			return after(unix.Mount("", others, "", unix.MS_REMOUNT|unix.MS_BIND, ""), open(others))
		},
		"change its mount": func(string, int) error { return after(setattr(others), open(others)) },
		"the file system of /dev": func(dir string, _ int) error {
			return after(unix.Mount("devtmpfs", dir, "devtmpfs", 0, ""), open(at(dir, "full")))
		},
		"a handle of it": func(string, int) error { return byHandle() },
		"inside: unmount it": func(dir string, _ int) error {
			return inside("cd " + dir + "; umount -l /dev/full" + writes("/dev/full"))
		},
		"inside: mount it anew":      func(dir string, _ int) error { return insideTry("mount it anew", dir) },
		"inside: change its mount":   func(dir string, _ int) error { return insideTry("change its mount", dir) },
		"inside: mount it elsewhere": func(dir string, _ int) error { return insideTry("mount it elsewhere", dir) },
		"inside: a handle of it":     func(dir string, _ int) error { return insideTry("a handle of it", dir) },
		"inside: move it":            func(dir string, _ int) error { return insideTry("move it", dir) },
		"inside: /dev elsewhere": func(dir string, _ int) error {
			return inside("cd " + dir + "; mkdir d; mount --bind /dev d" + writes("d/full"))
		},
		"inside: all of it elsewhere": func(dir string, _ int) error {
			return inside("cd " + dir + "; mkdir d; mount --rbind /dev d; umount -l d/full || true" + writes("d/full"))
		},
		"inside: / elsewhere": func(dir string, _ int) error {
			return inside("cd " + dir + "; mkdir d; mount --bind / d" + writes("d/dev/full"))
		},
		"inside: overlay": func(dir string, _ int) error {
			return inside("cd " + dir + "; mkdir u w d; mount -t overlay none -o lowerdir=/dev,upperdir=u,workdir=w d" + writes("d/full"))
		},
		"inside: a node in tmpfs": func(dir string, _ int) error {
			return inside("cd " + dir + "; mkdir d; mount -t tmpfs none d; mknod d/full c 1 7" + writes("d/full"))
		},
		"inside: unmount /dev": func(dir string, _ int) error {
			return inside("cd " + dir + "; umount -l /dev; mount -t devtmpfs none /dev" + writes("/dev/full"))
		},
		"root of another process":       func(_ string, pid int) error { return open(fmt.Sprintf("/proc/%d/root/dev/full", pid)) },
		"folder of another process":     func(_ string, pid int) error { return open(fmt.Sprintf("/proc/%d/cwd/dev/full", pid)) },
		"open file of another":          func(_ string, pid int) error { return open(fmt.Sprintf("/proc/%d/fd/9", pid)) },
		"take its descriptor":           func(_ string, pid int) error { return takeDescriptor(pid) },
		"its namespaces":                func(_ string, pid int) error { return after(enter(pid), open(others)) },
		"trace it":                      func(_ string, pid int) error { return unix.PtraceAttach(pid) },
		"write its memory":              func(_ string, pid int) error { return writeMemory(pid) },
		"its memory as a file":          func(_ string, pid int) error { return memoryFile(pid) },
		"control group above":           func(string, int) error { return after(moveTo(""), open(others)) },
		"control group beside it":       func(string, int) error { return after(moveTo("gpuard-test-beside"), open(others)) },
		"control group below it":        func(string, int) error { return after(moveBelow(), open(others)) },
		"allow it in the group":         func(string, int) error { return after(allowInGroup(), open(others)) },
		"inside: control group above":   func(dir string, _ int) error { return insideTry("control group above", dir) },
		"mount control groups":          func(dir string, _ int) error { return after(mountGroups(dir), open(others)) },
		"inside: mount control groups":  func(dir string, _ int) error { return insideTry("mount control groups", dir) },
		"inside: make another node":     func(dir string, _ int) error { return insideTry("make another node", dir) },
		"inside: allow it in the group": func(dir string, _ int) error { return insideTry("allow it in the group", dir) },
		"other variables":               func(string, int) error { os.Clearenv(); return open(others) },
	}
}

// ownGroups are the folders of the control groups of this process that filter devices.
func ownGroups() (dirs []string) {
	for _, controller := range []string{"", "devices"} {
		if dir := cgroupfs.Own(controller); dir != "" {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// moveTo moves this process to the groups above, or to those of this name there.
func moveTo(name string) (err error) {
	for _, dir := range ownGroups() {
		to := filepath.Join(filepath.Dir(dir), name)
		if !isHierarchy(filepath.Dir(dir)) {
			continue
		}
		if name != "" && os.Mkdir(to, 0o755) == nil { //nolint:gosec // as the kernel's
			defer os.Remove(to) //nolint:errcheck // no more than it can
		}
		for _, file := range []string{"cgroup.procs", "tasks", "cgroup.threads"} {
			err = errors.Join(err, writeThere(filepath.Join(to, file), "0"))
		}
	}
	return err
}

// isHierarchy reports whether there are control groups at a path.
func isHierarchy(dir string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(dir, &fs) == nil && slices.Contains([]int64{unix.CGROUP2_SUPER_MAGIC, unix.CGROUP_SUPER_MAGIC}, fs.Type)
}

// moveBelow moves this process to groups that it makes below its own, tries, and comes back.
func moveBelow() (err error) {
	for _, dir := range ownGroups() {
		below := filepath.Join(dir, "gpuard-test-below."+strconv.Itoa(os.Getpid()))
		_ = os.Mkdir(below, 0o755) //nolint:gosec // as the kernel's
		_ = writeThere(filepath.Join(below, "cgroup.procs"), "0")
		err = errors.Join(err, open(others))
		_, _ = writeThere(filepath.Join(dir, "cgroup.procs"), "0"), os.Remove(below)
	}
	return err
}

// allowInGroup writes what would allow the device again.
func allowInGroup() (err error) {
	for _, dir := range ownGroups() {
		err = errors.Join(err, writeThere(filepath.Join(dir, "devices.allow"), "a *:* rwm"))
	}
	return err
}

// writeThere writes into a file that is there.
func writeThere(path, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}

// mountGroups mounts the hierarchies anew, in a control group namespace of its own, and moves there to the top.
func mountGroups(dir string) error {
	runtime.LockOSThread() // the namespace is of this thread
	err := unix.Unshare(unix.CLONE_NEWCGROUP)
	for kind, options := range map[string]string{"cgroup2": "", "cgroup": "devices"} {
		at := filepath.Join(dir, kind)
		err = errors.Join(err, os.Mkdir(at, 0o700), unix.Mount("none", at, kind, 0, options), writeThere(filepath.Join(at, "cgroup.procs"), strconv.Itoa(os.Getpid())))
	}
	return err
}

func makeNode(path string) error {
	defer os.Remove(path) //nolint:errcheck // it may not be there
	err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 7)))
	if err != nil {
		return err
	}
	return open(path)
}

func link(path string) error {
	defer os.Remove(path) //nolint:errcheck // it may not be there
	err := os.Link(others, path)
	if err != nil {
		return err
	}
	return open(path)
}

func rename(path string) error {
	err := os.Rename(others, path)
	if err != nil {
		return err
	}
	err = open(path)
	return errors.Join(err, os.Rename(path, others))
}

func bind(folder string) error {
	path := filepath.Join(folder, "bound")
	err := os.WriteFile(path, nil, 0o600)
	if err == nil {
		err = unix.Mount(others, path, "", unix.MS_BIND, "")
	}
	if err != nil {
		return err
	}
	return open(path)
}

func setattr(path string) error {
	return unix.MountSetattr(unix.AT_FDCWD, path, 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_NODEV})
}

func byHandle() error {
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, others, 0)
	if err != nil {
		return err
	}
	dev, err := unix.Open("/dev", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	fd, err := unix.OpenByHandleAt(dev, handle, unix.O_WRONLY)
	if err != nil {
		return err
	}
	return isOthers(fd)
}

func takeDescriptor(pid int) error {
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	fd, err := unix.PidfdGetfd(process, 9, 0)
	if err != nil {
		return err
	}
	return isOthers(fd)
}

func enter(pid int) error {
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	return unix.Setns(process, unix.CLONE_NEWNS)
}

func writeMemory(pid int) error {
	text := []byte("x")
	_, err := unix.ProcessVMWritev(pid, []unix.Iovec{{Base: &text[0], Len: 1}}, []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&text[0])), Len: 1}}, 0)
	if errors.Is(err, unix.EFAULT) { // it was allowed, and nothing is there
		return nil
	}
	return err
}

func memoryFile(pid int) error {
	file, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return file.Close()
}

// TestEscape: no way leads out, whoever tries it, and each that is tried without a wall is a way at all or fails for another reason
// that is its own.
func TestEscape(t *testing.T) {
	t.Parallel()
	eachWall(t, func(t *testing.T, level job.Isolation, who user) {
		outside := startOutside(t, who)
		for way := range waysOut() {
			t.Run(way, func(t *testing.T) {
				dir := public(t)
				if why := notPromised(level, who, way); why != "" {
					t.Log("not promised: " + why)
					return
				}
				cmd := who.walled(t, level, "/proc/self/exe", "try", tryFlag, way, dir, strconv.Itoa(outside))
				keepMounts(t, level, cmd)
				out, code := output(t, cmd)
				if code != 3 || !strings.Contains(out, "held:") {
					t.Errorf("exit code %d, says\n%s", code, out)
				}
			})
		}
	})
}

// keepMounts starts a program in a mount namespace of its own. Behind a device filter root may mount and unmount, and behind every other wall
// it might if that has a fault: it must not be the machine's /dev.
func keepMounts(t *testing.T, level job.Isolation, cmd *exec.Cmd) {
	t.Helper()
	if os.Getuid() != 0 {
		return
	}
	try := exec.CommandContext(t.Context(), "true")
	try.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	err := try.Run()
	switch {
	case err != nil && level == job.Cgroup:
		t.Fatal(err)
	case err != nil: // and so it may not mount either
		return
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Unshareflags |= unix.CLONE_NEWNS
}

// notPromised says why a way may lead out at a level; "" where it may not. The documentation says the same.
func notPromised(level job.Isolation, who user, way string) string {
	switch {
	case level != job.Cgroup:
		return ""
	case slices.Contains([]string{"take its descriptor", "trace it", "write its memory", "its memory as a file"}, way):
		return "a device filter keeps nobody from his own processes outside"
	case who.uid == 0 && strings.Contains(way, "group"):
		return "root can move out of a control group, and change its filter"
	case who.uid == 0 && (strings.HasSuffix(way, "move it") || way == "a hard link beside it"):
		return "root can, and it would be the machine's own file; what is filtered is its number"
	}
	return ""
}

// startOutside starts a process of the user that has the file open as descriptor 9, without a wall.
func startOutside(t *testing.T, who user) int {
	t.Helper()
	cmd := who.command(t, "/bin/sh", "sh", "-c", "exec 9>/dev/full; echo ready; exec cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(in.Close(), cmd.Wait()) })
	_, err = io.ReadFull(out, make([]byte, len("ready\n")))
	if err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// TestWithoutWall: the ways that need no right of their own do lead there where there is no wall, so that the tests above test
// something.
func TestWithoutWall(t *testing.T) {
	t.Parallel()
	who := user{name: "caller", uid: uint32(os.Getuid())} //nolint:gosec // an id
	outside := startOutside(t, who)
	for _, way := range []string{"open it", "by a longer path", "by a symbolic link", "root of another process", "open file of another", "other variables"} {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", tryFlag, way, public(t), strconv.Itoa(outside))
		out, code := output(t, cmd)
		if code != 0 {
			t.Errorf("%s: exit code %d, says %s", way, code, out)
		}
	}
}

// TestInheritedDescriptor: what leads past the wall and was opened before is refused; a folder does under Landlock no harm.
func TestInheritedDescriptor(t *testing.T) {
	t.Parallel()
	eachWall(t, func(t *testing.T, level job.Isolation, who user) {
		for name, c := range map[string]struct {
			path    string
			flags   int
			refused bool
		}{
			"the device":           {others, unix.O_WRONLY, true},
			"the device as a path": {others, unix.O_PATH, true},
			"a folder":             {"/dev", unix.O_RDONLY | unix.O_DIRECTORY, level == job.Namespace},
			"the root folder":      {"/", unix.O_PATH | unix.O_DIRECTORY, level == job.Namespace},
			"another device":       {"/dev/zero", unix.O_RDWR, false},
			"a file":               {"/proc/self/exe", unix.O_RDONLY, false},
		} {
			fd, err := unix.Open(c.path, c.flags|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			file := os.NewFile(uintptr(fd), c.path)
			cmd := behind(t, level, who, "sh", "-c", "echo begun; echo x >&3; for f in full dev/full; do test -e /proc/self/fd/3/$f && echo x >/proc/self/fd/3/$f; done")
			cmd.ExtraFiles = []*os.File{file}
			out, code := output(t, cmd)
			_ = file.Close()
			if c.refused != (code == 125) || c.refused == strings.Contains(out, "begun") || strings.Contains(out, "No space") || strings.Contains(out, "doctor") {
				t.Errorf("%s: exit code %d, says %s", name, code, out)
			}
		}
	})
}

// TestCurrentFolder: a current folder through which files outside could be opened is refused, and so is an open folder of that kind: one of another mount namespace, one that was unmounted, and one that another mount covers.
func TestCurrentFolder(t *testing.T) {
	t.Parallel()
	gate.Need(t, "mountns", "isolation")
	const try = "echo begun; true <>./full && echo opens; true <>/proc/self/fd/3/full && echo opens"
	for name, before := range map[string]string{
		"another namespace": "exec 7<>fifo; unshare -m sh -c 'echo >&7; exec sleep 60' & trap \"kill $!\" EXIT; read line <&7; cd /proc/$!/root/dev",
		"unmounted":         "mkdir dev; mount --bind /dev dev; cd dev; umount -l ../dev",
		"covered":           "mkdir dev; mount --bind /dev dev; cd dev; mount -t tmpfs none ../dev",
		"covered above":     "mkdir dev; mount --bind /dev dev; cd dev; mount -t tmpfs none ..",
		"as it should be":   "mkdir dev; mount --bind /dev dev; cd dev",
	} {
		for _, level := range []job.Isolation{job.Namespace, job.Landlock} {
			t.Run(name+", "+string(level), func(t *testing.T) {
				self, err := os.Executable()
				if err != nil {
					t.Fatal(err)
				}
				_, argv, err := isolation.Wall{level, []string{others}}.Command("/bin/sh", []string{"sh", "-c", try})
				if err != nil {
					t.Fatal(err)
				}
				script := "set -e; mkfifo fifo; " + before + "; \"$@\""
				cmd := exec.CommandContext(t.Context(), "unshare", append([]string{"--mount", "sh", "-c", script, "sh", self}, argv[1:]...)...)
				cmd.Dir = public(t)
				out, code := output(t, cmd)
				refused := name != "as it should be"
				if strings.Contains(out, "opens") || strings.Contains(out, "begun") == refused || refused && (code != 125 || !strings.Contains(out, `cd "$HOME"`)) {
					t.Errorf("exit code %d, says %s", code, out)
				}
				cmd = exec.CommandContext(t.Context(), "unshare", append([]string{"--mount", "sh", "-c", strings.Replace(script, "; \"$@\"", "; exec 3<.; cd /dev; \"$@\"", 1), "sh", self}, argv[1:]...)...)
				cmd.Dir = public(t)
				out, code = output(t, cmd)
				refused = refused || level == job.Namespace
				if strings.Contains(out, "opens") || strings.Contains(out, "begun") == refused || refused && (code != 125 || !strings.Contains(out, "3>&-")) {
					t.Errorf("as descriptor: exit code %d, says %s", code, out)
				}
			})
		}
	}
}

// TestChroot: in a plain folder as root, whose mount is not listed, Landlock is possible.
func TestChroot(t *testing.T) {
	t.Parallel()
	gate.Need(t, "mountns", "isolation")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	_, argv, err := isolation.Wall{job.Landlock, []string{others}}.Command("/bin/sh", []string{"sh", "-c", "true <>/dev/full || echo closed; true <>/dev/null && echo begun"})
	if err != nil {
		t.Fatal(err)
	}
	const script = `mkdir r; for d in bin lib lib64 usr dev proc; do test -d /$d || continue; mkdir r/$d; mount --bind /$d r/$d; done; mkdir r/self; mount --bind "${1%/*}" r/self
test="/self/${1##*/}"; shift; exec chroot r "$test" "$@"`
	cmd := exec.CommandContext(t.Context(), "unshare", append([]string{"--mount", "sh", "-ec", script, "sh", self}, argv[1:]...)...)
	cmd.Dir = public(t)
	out, code := output(t, cmd)
	if !strings.HasSuffix(out, "closed\nbegun\n") || code != 0 {
		t.Errorf("exit code %d, says %s", code, out)
	}
}
