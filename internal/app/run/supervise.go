package run

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/isolate"
	"gpuard/internal/core/job"
	"gpuard/internal/core/supervise"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/logfile"
	"gpuard/internal/host/port"
	"gpuard/internal/host/proctree"
)

// supervision is the state of a gpuard that supervises its command.
type supervision struct {
	host   *machine.Host
	care   job.Care
	spec   job.Spec
	told   func(l *Launch, pid int) error
	seek   moveWatch
	log    *logfile.Log
	tree   *proctree.Tree
	now    atomic.Pointer[launch.Child] // that runs
	launch *Launch                      // of that
	// Held while a child is started: before its PID is known, no child may be reaped.
	birth sync.Mutex
	done  job.Result
	late  atomic.Bool // as done.TimedOut
	// What is left of the limit of its time; 0 without one.
	left time.Duration
	// Our reference to the lease, where it may be for another start; nil without one.
	kept *os.File

	service serviceHooks
	// Why the command that runs was ended, where service.mustEnd said so.
	doomed EndReason

	// That this process keeps; nil: a run.
	task *Task
	// The port at which the ranks of the command meet.
	meeting *port.KeptPort
	// Errors of the driver that were said.
	heard []gpu.Event
	life  supervise.Life
	last  supervise.End // of the last start
	// The reason for the last restart by --drift.
	why string
}

// Supervise runs the command as a child and does what care asks for. told is called before each start, and again with
// the command's PID right after it. When the command has ended for good, Supervise returns the result, and end, which
// ends this process the way the command ended. An error is about a start.
func (l *Launch) Supervise(ctx context.Context, care job.Care, told func(l *Launch, pid int) error) (done *job.Result, end func(), err error) {
	l.host.SurviveDriver()
	said := l.host.Say
	l.host = l.host.CopyForListener(func(text string) {
		said(text)
		l.WriteLog(text)
	})

	s := &supervision{done: job.Result{Streak: care.Streak}, host: l.host, care: care, spec: l.spec, task: l.task, meeting: l.meeting, told: told, left: l.spec.Timeout, life: supervise.Life{Care: care, Service: l.service.beforeRestart != nil, First: cmp.Or(l.host.Times.Pause, supervise.FirstPause), Streak: care.Streak}, seek: watchDrift(l.host, l.spec, care.Drift), service: l.service}
	if care.Log != "" {
		s.log, err = logfile.StartLog(care.Log, int64(care.LogLimit), s.service.beforeRestart == nil && l.task == nil)
		if err != nil {
			l.releaseLease()
			return nil, nil, err
		}
		l.log = s.log
	}

	s.tree = proctree.AdoptOrphans(s.isCommandChild, s.isHelper, nil)
	child, err := s.runCommand(ctx, l)
	s.tree.StopReaping()
	if s.log != nil {
		s.log.Close(time.Second)
	}

	if err != nil {
		return nil, nil, err
	}

	s.tellEnd()

	return &s.done, func() {
		if s.done.TimedOut {
			os.Exit(exit.TimedOut)
		}
		child.WaitAndExit()
	}, nil
}

// runCommand starts the command, and again, until nothing asks for that any more.
func (s *supervision) runCommand(ctx context.Context, l *Launch) (*launch.Child, error) {
	for {
		child, err := s.startCommand(ctx, l)
		if err != nil {
			s.dropReference(l)
			return nil, err
		}

		next := s.awaitCommand(ctx, l, child)
		s.countRun(l, child)
		if next == nil {
			next = s.nextLaunch(ctx, l, child)
		}

		if next == nil && s.service.beforeRestart != nil {
			// Processes that a service leaves behind end with it.
			s.endCommand(child)
		}

		if next == nil || next.claimed != l.claimed {
			s.dropReference(l)
		}

		if next == nil {
			s.done.HeldBy = s.remainingHolders(l)
		}

		if l.claimed != nil && (next == nil || next.claimed != l.claimed) {
			_ = l.claimed.Folder.Close()
		}

		if next == nil {
			return child, nil
		}

		next.open, next.oversight, next.log, next.service = l.open, l.oversight, l.log, l.service
		l = next
	}
}

// startCommand starts the command once.
func (s *supervision) startCommand(ctx context.Context, l *Launch) (*launch.Child, error) {
	before := s.done.Starts
	if l.task != nil {
		before += l.task.Before
	}

	l.env = visible.Env(l.env).WithRestart(before, s.why)
	s.launch = l
	l.labelContainer(s.done.Starts > 0)
	s.done.Lease, s.done.Devices = l.Lease, l.Plan.Devices
	err := cmp.Or(ctx.Err(), s.holdReference(l))
	if err != nil {
		l.releaseLease()
		return nil, err
	}

	c := launch.Command{Group: s.tree.NewGroup(), Along: s.service.extraFile, Apart: l.task != nil}
	if l.task != nil {
		c.Dying = s.noteEnd
	}

	err = s.announceStart(l, &c)
	if err != nil {
		l.releaseLease()
		return nil, err
	}

	s.birth.Lock()
	child, err := l.startChild(c, s.withTimeLeft(s.spec).TimeLimit())
	if err == nil {
		s.now.Store(child)
	}
	s.birth.Unlock()
	if err != nil {
		return nil, err
	}

	s.done.Starts++

	// The command runs even if this cannot be written.
	_ = s.told(l, child.PID())

	return child, nil
}

// announceStart opens the log of the command and tells that it is about to start. An error refuses the start.
func (s *supervision) announceStart(l *Launch, c *launch.Command) error {
	if s.log == nil {
		return s.told(l, 0)
	}

	// Before anything is said of a start: a log that cannot be written refuses the first one.
	c.Out, c.Err = s.log.Out, s.log.Err
	line := LogLine(l.PlanLine() + ": " + commandLine(l.spec.Command))
	if s.done.Starts == 0 {
		err := logfile.WriteNote(s.care.Log, line)
		if err != nil {
			return err
		}
	} else if err := s.log.WriteNote(line); err != nil {
		s.host.Say(err.Error())
	}

	return s.told(l, 0)
}

// awaitCommand waits for the end of the command, or causes it. It returns the lease for the next start, nil for none.
func (s *supervision) awaitCommand(ctx context.Context, l *Launch, child *launch.Child) *Launch {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var moves <-chan moveRequest
	if s.seek != nil && l.claimed != nil {
		moves = s.seek(watching, l.claimed.Held.Lease)
	}

	heard := s.driverErrors(watching, l)
	over := afterLimit(s.left)

	// Of a search for another device that is under way.
	var found chan *Launch
	var wanted moveRequest
	enough := func(why string) *Launch {
		stop()
		s.releaseSearch(found)
		if why != "" {
			s.sayAlways(why + ": ending the command")
		}

		s.endCommand(child)

		return nil
	}

	for {
		select {
		case <-child.Ended():
			s.awaitDriverError(l, child, heard)
			stop()
			s.releaseSearch(found)

			return nil
		case e, open := <-heard:
			if !open {
				heard = nil
			} else {
				s.sayError(l, e)
			}
		case <-ctx.Done():
			s.done.Asked = true
			return enough("")
		case s.doomed = <-s.service.mustEnd:
			return enough(s.doomed.Why)
		case <-over:
			s.done.TimedOut = true
			s.late.Store(true)
			return enough(fmt.Sprintf("the time is over (--timeout %s)", s.spec.Timeout))
		case m, open := <-moves:
			if !open {
				moves = nil
			} else if found == nil {
				wanted, found = m, make(chan *Launch, 1)
				go func() { found <- s.leaseOtherDevice(watching, l, m) }()
			}
		case next := <-found:
			found = nil
			if next == nil {
				continue
			}
			stop()

			return s.moveCommand(child, next, wanted.reason)
		}
	}
}

// afterLimit has a value when so much time is over; 0 is no limit.
func afterLimit(d time.Duration) <-chan time.Time {
	if d <= 0 {
		return nil
	}
	return time.After(d)
}

// releaseSearch gives back what a search for another device may still find.
func (s *supervision) releaseSearch(found <-chan *Launch) {
	if found == nil {
		return
	}
	if next := <-found; next != nil {
		next.releaseLease()
	}
}

// moveCommand ends the command so that it continues on other devices, unless it has ended by itself, or a user has
// ended it.
func (s *supervision) moveCommand(child *launch.Child, next *Launch, why string) *Launch {
	select {
	case <-child.Ended():
		next.releaseLease()
		return nil
	default:
	}

	s.host.Say(fmt.Sprintf("%s: asking the command to end (%s), to start it again", why, s.care.Stop))
	asked := time.Now()
	s.endCommand(child)
	if child.LastSignalSince(asked) != "" {
		next.releaseLease()
		return nil
	}

	s.why = why

	return next
}

// endCommand asks the command to end, then the processes that it left behind; it kills those that do not end in time,
// and returns when all are gone.
func (s *supervision) endCommand(child *launch.Child) {
	grace, over := context.WithTimeout(context.Background(), s.spec.Grace)
	defer over()
	go func() {
		select {
		case <-s.service.endNow:
			over()
		case <-grace.Done():
		}
	}()

	child.IgnoreStops()
	if asked, _ := s.launch.endContainer(s.care.Stop); !asked {
		child.SendSignal(s.care.Stop)
	}

	child.SendSignal("SIGCONT")

	select {
	case <-child.Ended():
	case <-grace.Done():
	}

	if err := s.tree.End(grace, s.care.Stop, job.KillGrace); err != nil {
		s.host.Say(err.Error())
		child.AssumeKilled()
	}

	if _, err := s.launch.endContainer(""); err != nil {
		s.host.Say(fmt.Sprintf("cannot end the container: %v", err))
	}
}

// countRun adds a life to the result.
func (s *supervision) countRun(l *Launch, child *launch.Child) {
	code, signal, ran, peak := child.Outcome()
	s.done.Code, s.done.Signal = code, signal
	s.done.Ran += ran
	if s.left > 0 {
		s.left = max(s.left-ran, time.Nanosecond)
	}

	if peak > 0 && (s.done.Peak == nil || peak > int64(*s.done.Peak)) {
		s.done.Peak = bytesOf(peak)
	}

	child.Rest()
	why := isolate.ProgramDoubt(l.Plan.Isolation, filepath.Base(l.argv[0]))
	if code > 0 && signal == "" && why != "" && l.Plan.Isolation != job.Cgroup {
		// Which takes no right from it.
		s.host.Say(fmt.Sprintf("the command ended with exit code %d, which may be because of its wall: %s", code, why))
	}
}

// noteEnd writes down how the command ended, before this process is the only one that knows it.
func (s *supervision) noteEnd(pid, code int, signal string) {
	if s.late.Load() {
		s.task.notes.Ended(pid, exit.TimedOut, "", true, fmt.Sprintf("ended after its time was over (--timeout %s)", s.spec.Timeout))
		return
	}
	s.task.notes.Ended(pid, code, signal, false, "")
}

// isHelper reports processes below gpuard that are not part of the command: holders and other helpers, which end by
// themselves, and the daemons of NVIDIA's Multi-Process Service, which serve other jobs of the user too.
func (s *supervision) isHelper(pid int) bool {
	if s.log != nil && pid == s.log.PID {
		return true
	}
	return s.isCommandChild(pid) && pid != s.now.Load().PID() || machine.IsOwnHelper(pid)
}

// isCommandChild reports whether a process is the command, or what belongs to it here: they are waited for where they
// were started.
func (s *supervision) isCommandChild(pid int) bool {
	s.birth.Lock()
	defer s.birth.Unlock()
	child := s.now.Load()

	return child != nil && (pid == child.PID() || child.OwnsProcess(pid))
}

// withTimeLeft is what a further start asks for: what is left of its time.
func (s *supervision) withTimeLeft(spec job.Spec) job.Spec {
	spec.Timeout = cmp.Or(s.left, spec.Timeout)
	return spec
}
