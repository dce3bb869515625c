package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	apprun "gpuard/internal/app/run"
	"gpuard/internal/core/batchlog"
	"gpuard/internal/core/job"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/batch"
	"gpuard/internal/host/journal"
	"gpuard/internal/host/proc"
	"gpuard/internal/host/sys"
)

// A job that is looked after while it runs has a keeper: gpuard beside its command, as gpuard run stays beside its own
// for the same flags (app/run, KeepTask). The runner starts the keeper and hands it the lease. The keeper writes into
// the journal which process its command is (Moved) and how it ended (Ran), so that its own death loses neither: if it
// is killed, its command runs on as a child of the runner, which waits for that then.

// endMargin is how much longer than the grace of its command a keeper may take.
const endMargin = 2 * time.Second

// KeeperOrders are what a keeper is told, on its standard input.
type KeeperOrders struct {
	Run  int         `json:"run"`
	Task apprun.Task `json:"task"`
}

// KeepJob is the life of a keeper, whose one argument is the path of the journal.
func KeepJob(ctx context.Context, host *machine.Host, args []string, o KeeperOrders) error {
	if len(o.Task.Spec.Command) == 0 {
		return exit.Usagef("cannot keep a job by hand: gpuard starts the processes that it needs itself")
	}

	write := func(e batchlog.Event) {
		e.Run, e.At = o.Run, time.Now().Truncate(time.Millisecond)
		if err := appendEvent(args[0], e); err != nil {
			host.Say("what is shown of this job is not up to date: " + err.Error())
		}
	}

	return o.Task.Keep(ctx, host, apprun.Notes{
		Started: func(command int, lease string, devices []job.Given) {
			e := batchlog.Event{Kind: batchlog.Moved, Command: command, Lease: lease, Devices: eventDevices(devices)}
			if s, err := host.Proc.Stat(command); err == nil {
				e.CommandTicks = s.Start
			}
			write(e)
		},
		Ended: func(command, code int, signal string, late bool, problem string) {
			write(batchlog.Event{Kind: batchlog.Ran, Command: command, Exit: code, Signal: signal, Late: late, Problem: problem})
		},
	})
}

// appendEvent writes an event into a journal that other processes write, too.
func appendEvent(path string, e batchlog.Event) error {
	j, err := journal.Open(path)
	if err != nil {
		return err
	}
	defer j.Close() //nolint:errcheck // the line is written
	return AppendEvent(j, e)
}

// keeperCommand is the command that keeps a run, whose task it reads from c.Input.
func (r *runner) keeperCommand(run, before int, what StartOptions, seat *claim.CommandLease) (c batch.Command, err error) {
	task := *what.Task
	task.Handed, err = seat.HandOver()
	if err != nil {
		return c, err
	}

	host := seat.Host()
	task.Path, task.Spec.Command, task.Before, task.Machine, task.Private = what.Path, what.Argv, before, host.Machine, host.PrivateState
	task.Spec.Name, task.Limits = what.Name, what.Limits
	if seat.Lock != nil {
		task.Lock = batch.LeaseFD()
	}

	text, err := json.Marshal(KeeperOrders{run, task})
	if err != nil {
		return c, err
	}

	c = batch.Command{Path: "/proc/self/exe", Argv: []string{cmp.Or(r.host.Name, "gpuard"), machine.KeeperFlag, r.Journal.Path()}, Dir: what.Folder, Lease: seat.Lock,
		Env: visible.Env(append(what.Env, host.Env...)).FirstOfEach().WithRestart(0, "")} // that of an outer run

	c.Input, err = batch.InputFile(text)

	return c, err
}

// graceOf is how long a run may take to end; usual is that of one without a keeper.
func (s *StartOptions) graceOf(usual time.Duration) time.Duration {
	if s.Task == nil {
		return usual
	}
	return s.Task.Spec.Grace + endMargin
}

// isKeeper reports whether the process looks after a job: asked to end, it ends what belongs to that.
func isKeeper(pid int) bool {
	words := proc.New("/proc").Arguments(pid)
	return len(words) > 1 && words[1] == machine.KeeperFlag && (words[0] == "gpuard" || words[0] == filepath.Base(os.Args[0]))
}

// commandOf is the command of a keeper that was killed, also one that has ended and waits to be reaped by this process.
// mark is the variable that processes of the run have.
func commandOf(keeper batchlog.Event, mark string) (p sys.Process, found bool) {
	switch {
	case keeper.PID == 0:
		// The session of the kernel's own threads.
		return p, false
	case keeper.Command > 0:
		p, found = sys.ReadProcess(keeper.Command)
		return p, found && p.Start == keeper.CommandTicks && (!p.IsDead() || p.Parent == os.Getpid())
	}
	for end := time.Now().Add(mostExec); ; time.Sleep(time.Millisecond) {
		p, found, executed := firstBelow(keeper, mark)
		if !found || executed || time.Now().After(end) {
			return p, found
		}
	}
}

// firstBelow is the command of a keeper that was killed before it wrote down which that is: the oldest process of its
// session that has executed a program. One that has not may be about to, or is a process of the keeper's own, such as
// the one by which Go's package os finds out what the kernel can.
func firstBelow(keeper batchlog.Event, mark string) (first sys.Process, found, executed bool) {
	for _, p := range batch.ListProcesses() {
		if p.Session != keeper.PID || p.PID == keeper.PID || p.Start < keeper.Ticks {
			continue
		}

		env, err := proc.New("/proc").Environ(p.PID)
		ours := err == nil && slices.Contains(env, mark)
		if now, ok := sys.ReadProcess(p.PID); ok && now.Start == p.Start {
			// It may have ended, or executed its program, meanwhile.
			p = now
		}

		switch executed := !apprun.IsKeeperName(p.Name); {
		case executed && (ours && !p.IsDead() || p.IsDead() && p.Parent == os.Getpid()):
			return p, true, true
		case !p.IsDead() && !found:
			first, found = p, true
		}
	}
	return first, found, false
}

// endEvent returns the event for the end of a run. ended is how its process ended. If that was a keeper, what the
// keeper wrote down about its command counts instead; if the keeper was killed before it wrote that, the end is
// unknown.
func endEvent(run *batchlog.Run, number int, ended batch.ExitStatus) batchlog.Event {
	born, ran := run.BirthEvent(), run.RanEvent()
	e := batchlog.Event{Kind: batchlog.End, Run: number, Exit: ended.Code, Signal: ended.Signal, Seconds: time.Since(born.At).Seconds(), Lease: born.Lease, Devices: born.Devices}
	switch {
	case !born.Kept:
	case ran != nil:
		e.Exit, e.Signal, e.Late, e.Problem = ran.Exit, ran.Signal, ran.Late, ran.Problem
	case ended.Signal == "SIGKILL":
		return batchlog.Event{Kind: batchlog.Gone, Run: number}
	}

	return e
}

// awaitProcess waits for the end of a run's process, and of its command if that was a keeper and was killed.
func (r *runner) awaitProcess(now *atomic.Pointer[runProcess], seat *claim.CommandLease) (batch.ExitStatus, error) {
	p := now.Load()
	ended, err := batch.AwaitChild(p.pid)
	if !p.kept || err != nil || ended.Signal != "SIGKILL" {
		return ended, err
	}

	r.mu.Lock()
	err = r.catchUp()
	born, ran, mark := r.State.Runs[p.run].BirthEvent(), r.State.Runs[p.run].RanEvent(), r.Tag(p.run)
	r.mu.Unlock()
	if err != nil || ran != nil {
		return ended, err
	}

	command, found := commandOf(born, mark)
	if !found {
		return ended, nil
	}

	r.mu.Lock()
	r.live[command.PID] = seat
	r.graces[command.PID] = r.Grace
	delete(r.live, p.pid)
	delete(r.graces, p.pid)
	r.mu.Unlock()
	now.Store(&runProcess{run: p.run, pid: command.PID, start: command.Start})
	e := batchlog.Event{Kind: batchlog.Moved, Run: p.run, PID: command.PID, Ticks: command.Start, Lease: born.Lease, Devices: born.Devices}
	if err := r.addEvent(e); err != nil {
		r.stopWithError(err)
	}

	batch.ReapChild(p.pid)
	if !r.stopping.Load() {
		r.host.Say(fmt.Sprintf("the process that looked after PID %d was killed: it runs on, and nothing is done for it any more but its --timeout", command.PID))
	}

	return batch.AwaitChild(command.PID)
}

// endRun asks a run to end: a keeper ends what belongs to it by itself.
func endRun(pid int, start uint64, kept bool, signal string, known map[int]uint64) {
	if kept {
		batch.SignalProcess(pid, start, signal)
	} else {
		batch.SignalJob(pid, signal, known)
	}
}

// eventDevices are the devices of a plan as an event has them.
func eventDevices(list []job.Given) (devices []batchlog.Device) {
	for _, d := range list {
		devices = append(devices, batchlog.Device{Index: d.Index, UUID: d.UUID})
	}
	return devices
}
