// Package launch turns this process into the command, and starts a small holder for it. It knows descriptors, processes
// and signals; it does not know what a lease means.
//
//	path, err := launch.FindCommand("python")
//	err = launch.StartHolder(lock, nil, folder, lease)
//	err = launch.Exec(path, argv, env, open, lock, nil) // returns only on an error
package launch

import (
	"errors"
	"fmt"
	"gpuard/internal/host/program"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/shellquote"
	"gpuard/internal/host/ownproc"
)

// lowestFD is where the lease's descriptor goes in the command: far above what scripts use by number.
const lowestFD = 200

// NotFoundError says that there is no such command; shells answer 127.
type NotFoundError struct{ Command string }

// Error names the command and where it was looked for.
func (e *NotFoundError) Error() string {
	if strings.Contains(e.Command, "/") {
		return fmt.Sprintf("cannot run %q: there is no such file", e.Command)
	}
	if strings.Contains(strings.TrimSpace(e.Command), " ") {
		return fmt.Sprintf("cannot run %q: no such command in PATH; in quotes it is one word, so leave them out", e.Command)
	}
	if _, err := exec.LookPath("python3"); e.Command == "python" && err == nil {
		return fmt.Sprintf("cannot run %q: no such command in PATH; python3 is there", e.Command)
	}
	if isShellWord(e.Command) {
		return fmt.Sprintf("cannot run %q: it is a word of the shell and no program; give the whole line to a shell: bash -c '%[1]s ...'", e.Command)
	}
	if isRegularFile(e.Command) {
		return fmt.Sprintf("cannot run %q: no such command in PATH; the file in this folder is %s", e.Command, shellquote.Sh("./"+e.Command))
	}

	return fmt.Sprintf("cannot run %q: no such command in PATH", e.Command)
}

// isShellWord reports whether only a shell knows the word, of those that people put in front of a command.
func isShellWord(word string) bool {
	return slices.Contains([]string{"source", ".", "cd", "export", "set", "ulimit", "unset", "exec", "eval"}, word)
}

// NotExecutableError says that the command exists and cannot be executed; shells answer 126.
type NotExecutableError struct {
	Command string
	Err     error
}

// Error names the file and the kernel's reason, and what helps where the file is not marked as a program.
func (e *NotExecutableError) Error() string {
	text := fmt.Sprintf("cannot run %q: %v", e.Command, e.Err)
	info, err := os.Stat(e.Command)
	if err != nil || !errors.Is(e.Err, unix.EACCES) || !strings.Contains(e.Command, "/") || !info.Mode().IsRegular() || info.Mode()&0o111 != 0 {
		return text
	}

	text += "; it is not marked as a program: chmod +x " + shellquote.Sh(e.Command)
	for ending, program := range map[string]string{".py": "python3", ".sh": "bash"} {
		if strings.HasSuffix(e.Command, ending) {
			text += ", or write " + program + " in front of it"
		}
	}

	return text
}

// Unwrap returns the kernel's error.
func (e *NotExecutableError) Unwrap() error { return e.Err }

// FindCommand resolves a command the way execvp does: through PATH unless it has a slash. A file in PATH that may not
// be executed is remembered, and is the answer when nothing better follows (POSIX, XCU 2.9.1.1: 126 instead of 127).
func FindCommand(command string) (string, error) {
	path, err := exec.LookPath(command)
	switch {
	case err == nil && !isRegularFile(path):
		// Such as a pipe: execve(2) takes none.
		return "", &NotExecutableError{path, unix.EACCES}
	case err == nil:
		return path, nil
	case errors.Is(err, exec.ErrDot):
		// PATH asks for the current folder; that is the user's choice.
		return filepath.Abs(path)
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		if path := findInPath(command); path != "" {
			return "", &NotExecutableError{path, unix.EACCES}
		}
		return "", &NotFoundError{command}
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EISDIR):
		return "", &NotExecutableError{command, errors.Unwrap(err)}
	}
	return "", &NotExecutableError{command, err}
}

// findInPath returns the first regular file of that name in PATH, executable or not.
func findInPath(command string) string {
	if command == "" || strings.Contains(command, "/") {
		return ""
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		path := filepath.Join(dir, command)
		if isRegularFile(path) {
			return path
		}
	}
	return ""
}

func isRegularFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// DupInheritable returns a duplicate of f at lowestFD or above that survives exec; lower only where the process may not
// have that many descriptors. (exec.Cmd's ExtraFiles would put it at 3 and overwrite what the caller passed on there.)
func DupInheritable(f *os.File) (int, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD, lowestFD)
	var limit unix.Rlimit
	if errors.Is(err, unix.EINVAL) && unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		fd, err = unix.FcntlInt(f.Fd(), unix.F_DUPFD, int(limit.Cur/2)) //nolint:gosec // below lowestFD
	}

	if err != nil {
		return -1, fmt.Errorf("cannot keep the lease's descriptor for the command: %w; raise the limit: ulimit -n", err)
	}

	return fd, nil
}

// Exec replaces this process by the command; it returns only on failure. Descriptors that were opened in this
// process by libraries (before lists those that were open at the start) are closed, except keep.
// SIGHUP, SIGINT and SIGQUIT that were ignored when gpuard started are ignored in the command too. A script without
// "#!" goes to the shell, as with execvp. by executes it in another way than execve(2); nil: there is none.
func Exec(path string, argv, env []string, before map[int]bool, keep int, by func(path string, argv, env []string) error) error {
	defaultEndSignals()
	closeLibraryFDs(before, keep)
	inheritIgnored()
	if by != nil {
		return by(path, argv, env)
	}

	err := program.StartOrShell(path, argv, func(path string, argv []string) error { return unix.Exec(path, argv, env) })

	return &NotExecutableError{argv[0], err}
}

// OpenDescriptors lists the descriptors that are open now.
func OpenDescriptors() map[int]bool {
	list, err := ownproc.OpenDescriptors()
	if err != nil {
		return nil
	}

	open := make(map[int]bool, len(list))
	for _, d := range list {
		open[d.FD] = true
	}

	return open
}

// closeLibraryFDs marks what a driver library opened without O_CLOEXEC.
func closeLibraryFDs(before map[int]bool, keep int) {
	if before == nil {
		return
	}
	for fd := range OpenDescriptors() {
		if fd > 2 && fd != keep && !before[fd] {
			unix.CloseOnExec(fd)
		}
	}
}

// CanHold reports whether a holder may run. In PID 1 of a PID namespace, or with a subreaper mark on this very process,
// the holder would become the command's child, and a command that waits for all its children would never end.
func CanHold() bool {
	if os.Getpid() == 1 {
		return false
	}
	var reaper int32
	if err := prctlGetSubreaper(&reaper); err != nil {
		return true
	}

	return reaper == 0
}
