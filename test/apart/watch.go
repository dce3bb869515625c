package apart

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// watcherName is the name under which a test program is started again, to end what it leaves.
const watcherName = "apart-watcher"

// RunIfWatcher does not return in the process that Enter has started: that one waits until the tests have ended, in whatever
// way, ends every process that they left and removes their folder.
func RunIfWatcher() {
	if os.Args[0] != watcherName {
		return
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	root := os.Args[1]
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		left := ProcessesNaming(root)
		if len(left) == 0 {
			break
		}
		KillProcesses(left) // one that is just being executed is looked at again
	}
	if err := os.RemoveAll(root); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// startWatcher: the watcher has a session of its own, so that Ctrl-C ends the tests and not it, and nothing of theirs
// open, so that go test does not wait for it.
func (p *TestFolder) startWatcher() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close() //nolint:errcheck // the watcher has it
	p.alive = write
	p.watch = exec.Command(self)
	p.watch.Args = []string{watcherName, p.root}
	p.watch.Stdin, p.watch.Dir, p.watch.SysProcAttr = read, "/", &syscall.SysProcAttr{Setsid: true}
	return p.watch.Start()
}

// Process is one that was seen; if it has ended since, another of the same number is not taken for it.
type Process struct {
	handle *os.Process // nil: it may be one
	line   string      // its number and arguments
}

func (p Process) String() string { return p.line }

// KillProcesses kills the processes that surely are of those, and returns how many.
func KillProcesses(all []Process) (killed int) {
	for _, p := range all {
		if p.handle != nil {
			_ = p.handle.Kill()
			killed++
		}
	}
	return killed
}

// ProcessesNaming are the processes that name a folder, or something in it, in their arguments or in their environment,
// without this process and those of other. One that is being executed has neither yet, and may.
func ProcessesNaming(folder string, other ...int) (found []Process) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer proc.Close() //nolint:errcheck // read only
	all, _ := proc.Readdirnames(-1)
	for _, name := range all {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() || slices.Contains(other, pid) {
			continue
		}
		speaks, silent, line := inspectProcess("/proc/"+name, folder)
		p := Process{line: fmt.Sprintf("process %d: %s", pid, line)}
		if speaks {
			p.handle, err = os.FindProcess(pid)
			speaks, _, _ = inspectProcess("/proc/"+name, folder) // still, so the handle is of the same process
		}
		if err == nil && (speaks || silent) {
			found = append(found, p)
		}
	}
	return found
}

// inspectProcess says whether a process names the folder, or has neither arguments nor an environment and is not over.
func inspectProcess(path, folder string) (speaks, silent bool, line string) {
	words := readProcFile(path + "/cmdline")
	line = strings.TrimSpace(string(bytes.ReplaceAll(words, []byte{0}, []byte{' '})))
	if bytes.Contains(words, []byte(folder)) {
		return true, false, line
	}
	if len(words) == 0 {
		if _, over := os.Readlink(path + "/exe"); over != nil { // or it is the kernel's
			return false, false, line
		}
	}
	env := readProcFile(path + "/environ")
	return bytes.Contains(env, []byte(folder)), len(words)+len(env) == 0, line
}

// readProcFile reads a file of /proc, of which there are many: os.ReadFile asks the kernel for more than twice as much.
func readProcFile(path string) (data []byte) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd) //nolint:errcheck // read only
	for part := make([]byte, 8<<10); ; {
		n, err := unix.Read(fd, part)
		if err != nil && !errors.Is(err, unix.EINTR) || err == nil && n == 0 {
			return data
		}
		data = append(data, part[:max(n, 0)]...)
	}
}
