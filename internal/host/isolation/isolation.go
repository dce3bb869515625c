// Package isolation starts a program that cannot open the device files of other GPUs. It builds what the kernel then
// keeps: a mount namespace, rules of Landlock, or the device filter of a control group. It does not decide which files
// these are, nor which of the three.
//
//	w := isolation.Wall{Level: job.Namespace, Nodes: []string{"/dev/nvidia1"}}
//	err := w.Exec("/usr/bin/python", []string{"python", "train.py"}, env) // returns only on an error
//	path, argv, err := w.Command("/usr/bin/python", []string{"python", "train.py"}) // for a child
//
// The command line for a child is this program again (Become), which does the same as Exec: it builds the wall in its
// own process and becomes the program in it. The program has the process ID that was started, and there is no moment at
// which it runs without the wall.
package isolation

import (
	"encoding/json"
	"errors"
	"fmt"
	"gpuard/internal/host/program"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"gpuard/internal/core/job"
)

// Flags are the first arguments of the processes of this package.
const (
	WallFlag   = "__wall"
	FailedFlag = "__wall-failed"
)

// Indices of FailedStepError that stand for what comes before the steps.
const (
	noStep   = 9999 // ending the threads
	forkStep = 9998
)

// Wall says what a program shall not open, and how that is kept.
type Wall struct {
	Level job.Isolation `json:"level"`
	// Device files of others.
	Nodes []string `json:"nodes"`
}

// Command is the command line of a process that becomes the program behind the wall. Without a level it is the
// program's own.
func (w Wall) Command(path string, argv []string) (string, []string, error) {
	if w.Level == job.NoIsolation {
		return path, argv, nil
	}
	text, err := json.Marshal(w)
	if err != nil {
		return "", nil, err
	}

	return "/proc/self/exe", append([]string{"gpuard", WallFlag, string(text), path}, argv...), nil
}

// Exec builds the wall around this process and becomes the program. It returns only on an error, and then nothing was
// started.
func (w Wall) Exec(path string, argv, env []string) error {
	err := becomeBehindWall(w, walledProgram{path, argv, env})
	if errors.Is(err, errNotFirst) {
		self, words, err := w.Command(path, argv)
		if err != nil {
			return err
		}
		return unix.Exec(self, words, env)
	}

	var own *ProgramError
	if errors.As(err, &own) {
		return err
	}

	return startError(argv[0], err)
}

// walledProgram is what is executed in the end.
type walledProgram struct {
	path      string
	argv, env []string
}

// execute becomes the program. It returns only an error.
func (p walledProgram) execute() error {
	err := program.StartOrShell(p.path, p.argv, func(path string, argv []string) error { return unix.Exec(path, argv, p.env) })
	return &ProgramError{p.argv[0], err}
}

// ProgramError says that the wall stands and the program behind it cannot be executed; shells answer 126.
type ProgramError struct {
	name string
	err  error
}

// Error names the program and the kernel's reason.
func (e *ProgramError) Error() string { return fmt.Sprintf("cannot run %q: %v", e.name, e.err) }

// Unwrap returns the kernel's error.
func (e *ProgramError) Unwrap() error { return e.err }

// errNotFirst: Go moves its functions between threads.
var errNotFirst = errors.New("cannot begin: this is not the first thread of the process")

// Become builds the wall args[0] and becomes the program args[1] with the words args[2:]. It returns only on an error,
// and then nothing was started.
func Become(args []string) error {
	if len(args) < 3 {
		return errors.New("cannot build a wall by hand: gpuard starts what it needs itself")
	}

	var w Wall
	err := json.Unmarshal([]byte(args[0]), &w)
	if err != nil {
		return startError(args[2], err)
	}

	err = becomeBehindWall(w, walledProgram{args[1], args[2:], programEnv()})

	var own *ProgramError
	switch {
	case errors.Is(err, errNotFirst):
		err = restartInFirstThread()
	case errors.As(err, &own):
		return err
	}

	return startError(args[2], err)
}

func becomeBehindWall(w Wall, p walledProgram) error {
	hidden, err := findAllPaths(w.Nodes, "/dev", "/proc/self/mountinfo")
	if err != nil {
		return err
	}

	err = refuseDescriptors(hidden, w.Level)
	if err == nil && w.Level != job.Cgroup {
		// Which asks for no path.
		err = refuseCurrentFolder()
	}

	if err != nil {
		return &inheritedError{err}
	}

	switch w.Level {
	case job.Namespace:
		return becomeInNamespace(hidden, p)
	case job.Landlock:
		return becomeUnderLandlock(hidden, p)
	case job.Cgroup:
		return becomeInGroup(hidden, p)
	}

	return fmt.Errorf("cannot build a wall of kind %q: this gpuard knows none", w.Level)
}

// triesVariable counts how often this process was executed again, to begin in its first thread.
const triesVariable = "GPUARD_WALL_TRIES"

func restartInFirstThread() error {
	tries, _ := strconv.Atoi(os.Getenv(triesVariable))
	if tries >= 50 {
		return errNotFirst
	}

	err := os.Setenv(triesVariable, strconv.Itoa(tries+1))
	if err != nil {
		return err
	}

	return unix.Exec("/proc/self/exe", os.Args, os.Environ())
}

// programEnv is that of the program.
func programEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(pair string) bool { return strings.HasPrefix(pair, triesVariable+"=") })
}

// startError is why the command is not started.
func startError(command string, err error) error {
	var own *inheritedError
	if errors.As(err, &own) {
		// It says what to do, and the machine is not to blame.
		return fmt.Errorf("cannot start %q behind a wall, so it was not started: %w", command, err)
	}
	return fmt.Errorf("cannot start %q behind a wall, so it was not started: %w; gpuard doctor says what this machine can do", command, err)
}

// FailedStepError says what the step was that failed, for the process that is executed then.
func FailedStepError(args []string) error {
	if len(args) < 3 {
		return errors.New("cannot say what failed by hand: gpuard starts what it needs itself")
	}

	index, err := strconv.Atoi(args[0])
	number, numberErr := strconv.Atoi(args[1])
	if err != nil || numberErr != nil {
		return errors.New("cannot say what failed")
	}

	reason := syscall.Errno(number) //nolint:gosec // an error of the kernel
	what := "end the other threads of gpuard"
	switch {
	case index == forkStep:
		what = "start the process that maps the users and groups"
	case index < len(args)-3:
		what = args[3+index]
	}

	if what == execStep {
		return &ProgramError{args[2], reason}
	}

	return startError(args[2], fmt.Errorf("cannot %s: %w", what, reason))
}
