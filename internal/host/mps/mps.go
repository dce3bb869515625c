// Package mps starts, queries and ends the control daemon of NVIDIA's Multi-Process Service for one user. It decides
// nothing: the job's environment says whether it uses the daemon, and how much of a device.
//
// Commands, variables and files are those of docs.nvidia.com/deploy/mps (Legacy MPS v2 interface, Appendix: Environment
// Variables, Appendix: Tools and Interface Reference).
//
//	control, err := mps.FindControl(ctx, pipe, os.TempDir(), uid)
//	unlock, err := control.Lock()
//	err = control.Start(ctx) // then run jobs with PipeVariable=control.Pipe
//	unlock()
package mps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/prose"
	"gpuard/internal/host/ownproc"
	"gpuard/internal/host/sys"
)

// PipeVariable names the folder through which clients reach the daemon; LogVariable names the folder of its log.
const (
	PipeVariable = "CUDA_MPS_PIPE_DIRECTORY"
	LogVariable  = "CUDA_MPS_LOG_DIRECTORY"
)

// controlProgram is part of NVIDIA's driver.
const controlProgram = "nvidia-cuda-mps-control"

// Control is the folder of one daemon.
type Control struct {
	Pipe string // folder
	path string // of the program
}

// FindControl returns the folder for this user's daemon: pipe, if the user named it and a daemon answers there, else
// gpuard's own folder below temporary. The error says why there can be no daemon.
func FindControl(ctx context.Context, pipe, temporary string, uid int) (*Control, error) {
	path, err := exec.LookPath(controlProgram)
	if err != nil {
		return nil, fmt.Errorf("there is no %s in PATH, which comes with NVIDIA's driver", controlProgram)
	}
	if pipe != "" && checkOwner(pipe, uid) == nil {
		c := &Control{pipe, path}
		if c.isAnswering(ctx) {
			return c, nil
		}
	}

	return &Control{filepath.Join(temporary, FolderName(uid)), path}, nil
}

// ControlAt returns the daemon in the folder pipe that a job names. It is an error if the folder is not that user's.
func ControlAt(pipe string, uid int) (*Control, error) {
	path, err := exec.LookPath(controlProgram)
	if err != nil {
		return nil, err
	}

	err = checkOwner(pipe, uid)
	if err != nil {
		return nil, err
	}

	return &Control{pipe, path}, nil
}

// FolderName is the name of gpuard's own folder for a user.
func FolderName(uid int) string { return fmt.Sprintf("gpuard-mps-%d", uid) }

// checkOwner returns an error for a folder that another user could change.
func checkOwner(path string, uid int) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}

	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(st.Uid) != uid || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s is not a folder that only uid %d may change", path, uid)
	}

	return nil
}

// LogFolder is the folder of the daemon's log.
func (c *Control) LogFolder() string { return filepath.Join(c.Pipe, "log") }

// Lock keeps other processes of this user from starting or ending the daemon until the returned function is called.
func (c *Control) Lock() (func(), error) {
	if err := sys.Mkdir(c.Pipe, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	if err := checkOwner(c.Pipe, os.Geteuid()); err != nil {
		return nil, fmt.Errorf("%w; ask root to remove it (sudo rm -r %s), or set TMPDIR to a folder of your own", err, c.Pipe)
	}

	file, err := sys.OpenFile(filepath.Join(c.Pipe, "gpuard.lock"), unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}

	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if time.Now().After(end) {
			_ = file.Close()
			return nil, fmt.Errorf("another process has kept %s locked for 10 s", file.Name())
		}
	}
}

// isAnswering reports whether a daemon answers in the folder.
func (c *Control) isAnswering(ctx context.Context) bool {
	_, err := c.runCommand(ctx, "get_server_list")
	return err == nil
}

// Start starts the daemon, if it does not run yet. The daemon sees every GPU of the machine, even if this process sees
// fewer: jobs name their devices by UUID, and a daemon that sees fewer would number them differently.
func (c *Control) Start(ctx context.Context) error {
	if c.isAnswering(ctx) {
		return nil
	}
	if err := sys.MkdirAll(c.LogFolder(), 0o700); err != nil {
		return err
	}

	cmd := c.controlCommand(ctx, "-d")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	defer setCloseOnExec()()
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said

	// The daemon may keep its starter's streams.
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return fmt.Errorf("%s -d: %w %s", controlProgram, err, prose.Clean(strings.TrimSpace(said.String())))
	}

	var err error
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		_, err = c.runCommand(ctx, "get_server_list")
		if err == nil {
			return nil
		}
	}

	return fmt.Errorf("the daemon does not answer: %w; its log is in %s", err, c.LogFolder())
}

// ListClients lists the PIDs of the clients of all servers of the daemon, lowest first.
func (c *Control) ListClients(ctx context.Context) ([]int, error) {
	servers, err := c.askPIDs(ctx, "get_server_list")
	if err != nil {
		return nil, err
	}

	var clients []int
	for _, server := range servers {
		of, err := c.askPIDs(ctx, fmt.Sprintf("get_client_list %d", server))
		if err != nil {
			return nil, err
		}
		clients = append(clients, of...)
	}

	slices.Sort(clients)

	return slices.Compact(clients), nil
}

// QuitDaemon ends the daemon and its servers.
func (c *Control) QuitDaemon(ctx context.Context) error {
	_, err := c.runCommand(ctx, "quit")
	return err
}

// askPIDs runs a command that prints one process id per line.
func (c *Control) askPIDs(ctx context.Context, command string) ([]int, error) {
	text, err := c.runCommand(ctx, command)
	if err != nil {
		return nil, err
	}

	var list []int
	for word := range strings.FieldsSeq(text) {
		n, err := strconv.Atoi(word)
		if err != nil {
			return nil, fmt.Errorf("%s answers %q to %s", controlProgram, prose.Clean(text), command)
		}
		list = append(list, n)
	}

	return list, nil
}

// runCommand runs the control program with one command on its standard input, and returns its output.
func (c *Control) runCommand(ctx context.Context, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	cmd := c.controlCommand(ctx)
	cmd.Stdin = strings.NewReader(command + "\n")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w %s", controlProgram, err, prose.Clean(strings.TrimSpace(out.String()+errs.String())))
	}

	return out.String(), nil
}

// controlCommand has an environment without any mask or limit, because the daemon's would apply to every client.
func (c *Control) controlCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.path, args...)
	cmd.Env = []string{PipeVariable + "=" + c.Pipe, LogVariable + "=" + c.LogFolder()}

	for _, name := range []string{"PATH", "LD_LIBRARY_PATH", "HOME"} {
		if value, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}

	cmd.Dir = "/"

	return cmd
}

// setCloseOnExec makes the descriptors that this process inherited for its command close on exec, because the daemon
// would keep a caller's pipe open for ever. The returned function undoes that.
func setCloseOnExec() func() {
	open, _ := ownproc.OpenDescriptors()
	changed := slices.DeleteFunc(open, func(d ownproc.Descriptor) bool { return d.FD < 3 || d.CloseOnExec })
	for _, d := range changed {
		unix.CloseOnExec(d.FD)
	}

	return func() {
		for _, d := range changed {
			_, _ = unix.FcntlInt(uintptr(d.FD), unix.F_SETFD, 0) //nolint:gosec // not negative
		}
	}
}
