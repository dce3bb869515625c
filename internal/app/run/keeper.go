package run

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/job"
	"gpuard/internal/host/daemonize"
	"gpuard/internal/host/interrupt"
	"gpuard/internal/host/launch"
)

// Task is a job of a queue or of a sweep that is looked after while it runs. Its keeper gets it as JSON on its standard
// input, and the lock of the lease as a descriptor.
type Task struct {
	Spec job.Spec `json:"spec"`
	Care job.Care `json:"care"`
	// nil: it is not verified.
	Oversight *Oversight `json:"oversight,omitempty"`
	// The path of the program; Spec.Command is the command line.
	Path string `json:"path"`
	// The limits of its processes (host/limits); "" those of this process.
	Limits string `json:"limits,omitempty"`
	// Starts of the job before this one.
	Before  int               `json:"before,omitempty"`
	Machine string            `json:"machine,omitempty"` // Host.Machine
	Private bool              `json:"private,omitempty"` // Host.PrivateState
	Handed  claim.HandedLease `json:"handed"`
	// Descriptor of the lease's lock; 0 without a lease.
	Lock int `json:"lock"`

	notes Notes
}

// TaskOf is the task of a job whose output goes to log; nil for one that needs no keeper, because nothing is asked of
// one.
func TaskOf(spec job.Spec, care *job.Care, o *Oversight, log string) *Task {
	if care == nil {
		return nil
	}

	t := &Task{Spec: spec, Care: *care, Oversight: o}

	// The queue or the sweep starts it again, and tells.
	t.Care.Retries, t.Care.Any, t.Care.Notify = 0, false, ""
	t.Care.Log = ""
	if t.Care.LogLimit > 0 {
		t.Care.Log = log
	}

	return t
}

// Notes are what a keeper has written down while it works.
type Notes struct {
	// The process right after each start, and what it has.
	Started func(command int, lease string, devices []job.Given)
	// Each end, or why it could not be started.
	Ended func(command, code int, signal string, timedOut bool, problem string)
}

// keeperName is what ps calls a keeper.
const keeperName = "gpuard"

// IsKeeperName reports whether the kernel calls a process so that is a keeper, or one that a keeper has made and that
// has not executed anything: by the name of the keeper, or where another thread has made it by that of the file
// /proc/self/exe.
func IsKeeperName(name string) bool { return name == keeperName || name == "exe" }

// Keep is the life of a keeper: it starts the command, does for it what gpuard run does, and ends as the command did.
// SIGTERM, SIGINT and SIGHUP ask it to end the command, with everything that the command started.
func (t *Task) Keep(ctx context.Context, host *machine.Host, notes Notes) error {
	t.notes = notes
	if err := emptyInput(); err != nil {
		return err
	}

	daemonize.SetProcessName(keeperName)
	host.Machine, host.PrivateState = t.Machine, t.Private
	host.Say = func(text string) {
		// Standard error is the log of the job, unless that is written by the one of its run.
		if t.Care.Log == "" {
			fmt.Fprintln(os.Stderr, LogLine(text))
		}
	}

	// Which the command inherits.
	signals := slices.DeleteFunc([]os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}, signal.Ignored)
	ctx, stop := signal.NotifyContext(ctx, signals...)
	defer stop()
	end, err := t.start(ctx, host)
	switch {
	case err != nil && ctx.Err() != nil:
		// Asked to end before the start.
		interrupt.DieBySignal(syscall.SIGTERM)
	case err != nil:
		notes.Ended(0, exit.RunCode(err), "", false, err.Error())
		return err
	}

	end()

	return nil
}

// start starts the command and looks after it; end is for its end.
func (t *Task) start(ctx context.Context, host *machine.Host) (end func(), err error) {
	l, err := t.prepareLaunch(ctx, host)
	if err != nil {
		return nil, err
	}

	_, end, err = l.Supervise(ctx, t.Care, t.sayNotes)

	return end, err
}

// sayNotes writes the notes of the plan into the log before each start, when pid is 0.
func (t *Task) sayNotes(l *Launch, pid int) error {
	for _, note := range l.Plan.Notes {
		if pid == 0 {
			l.host.Say(note)
		}
	}
	return nil
}

// prepareLaunch is the task, about to start.
func (t *Task) prepareLaunch(ctx context.Context, host *machine.Host) (l *Launch, err error) {
	var lock *os.File
	if t.Lock > 0 {
		syscall.CloseOnExec(t.Lock)
		lock = os.NewFile(uintptr(t.Lock), "lease") //nolint:gosec // a descriptor
	}

	l = &Launch{host: host, spec: t.Spec, argv: t.Spec.Command, open: launch.OpenDescriptors(), parent: os.Getppid(), isRestart: true, oversight: t.Oversight, task: t}
	l.claimed, err = t.Handed.TakeOver(ctx, host, lock)
	if err != nil {
		return nil, err
	}

	l.Plan, l.Lease, l.env = t.Handed.Plan, t.Handed.Lease, host.UnmaskedEnv().With(t.Handed.Vars)
	l.wall = t.Handed.Wall
	err = l.findProgram(ctx)
	if err == nil && IsEngineCommand(t.Spec.Command) {
		err = l.containTask(ctx)
	}

	if err == nil && t.Spec.Ranks != nil {
		err = l.prepareRanks()
	}

	if err != nil {
		l.releaseLease()
		return nil, err
	}

	return l, nil
}

// containTask makes the command of a task that of the engine with the devices of the lease. One that starts no
// container with devices stays as it is.
func (l *Launch) containTask(ctx context.Context) (err error) {
	l.contained, _, err = readContainer(ctx, l.host, l.spec)
	if err != nil || l.contained == nil {
		return err
	}
	return l.makeEngineCommand()
}

// emptyInput gives this process, and so the command, an empty standard input.
func emptyInput() error {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close() //nolint:errcheck // nothing was written

	return syscall.Dup3(int(null.Fd()), 0, 0)
}
