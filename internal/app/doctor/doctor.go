// Package doctor reads everything that may be wrong with GPUs on this computer, and has core/check judge it. It changes
// nothing; with --bundle it writes one file.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/check"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
)

// Diagnose reads the machine and its surroundings, and judges them. of names one Python environment (an interpreter, a
// folder, the name of a conda environment) instead of all that are found; with run, its libraries are imported too.
// Whatever cannot be read is an unknown finding. Errors are only about the arguments.
func Diagnose(ctx context.Context, host *machine.Host, of string, run bool) (check.Diagnosis, error) {
	s, err := surveySite(ctx, host, of, run)
	if err != nil {
		return check.Diagnosis{}, err
	}
	return check.Diagnose(s), nil
}

// surveySite makes all readings at the same time. Each has a deadline, and its failure affects no other.
func surveySite(ctx context.Context, host *machine.Host, of string, run bool) (hostinfo.Site, error) {
	l := &readingSet{ctx: ctx, say: host.Say}
	defer l.muteReadings()
	one := *host

	// Readings speak from several goroutines.
	one.Say = l.sayLine
	host, l.host = &one, &one
	s := hostinfo.Site{Now: time.Now(), Env: host.Env}
	if !host.IsHardware() {
		if of != "" || run {
			return s, exit.Usagef("cannot look at Python environments of %s: only its devices are known; leave --for and --run out, or --machine", host.Machine)
		}

		m, err := host.Read(ctx, gpu.Everything)
		s.Machine = hostinfo.AnswerOf(m)
		fillNotLooked(&s)
		setLeftovers(&s, siteLeftovers(ctx, host, s.Machine))

		return s, err
	}

	s.Container = host.Container()
	usual := cmp.Or(host.Times.Survey, 5*time.Second)
	patient := usual
	if run {
		// An import of a large library from a cold disk.
		patient += 2 * time.Minute
	}

	startReading(l, "the devices", 4*cmp.Or(host.Times.Driver, 5*time.Second), &s.Machine, siteMachine)
	startReading(l, "the driver", usual, &s.Driver, siteDriver)
	startReading(l, "the PCI bus", usual, &s.Cards, siteCards)
	startReading(l, "device files", usual, &s.Nodes, siteNodes)
	startReading(l, "libraries", usual, &s.Libraries, siteLibraries)
	startReading(l, "CUDA toolkits", usual, &s.Toolkits, siteToolkits)
	startReading(l, "containers", usual, &s.Containers, siteContainers)
	startReading(l, "limits", usual, &s.Limits, siteLimits)
	startReading(l, "NCCL's settings", usual, &s.NCCL, siteNCCL)
	startReading(l, "accelerate's settings", usual, &s.Accelerate, siteAccelerate)
	startReading(l, "the state folder", usual, &s.State, siteState)
	startReading(l, "configuration files", usual, &s.Policy, sitePolicy)
	startReading(l, "the kernel's log", usual, &s.Log, siteLog)
	misuse := make(chan error, 1)
	startReading(l, "Python environments", patient, &s.Pythons, func(ctx context.Context, host *machine.Host) hostinfo.Answer[[]hostinfo.Python] {
		found, err := sitePythons(ctx, host, of, run)
		misuse <- err
		return found
	})

	l.awaitReadings()
	devices, held := s.Machine, hostinfo.Answer[memoryUse]{}
	start := cmp.Or(host.Times.Probe, 10*time.Second)
	startReading(l, "the CUDA driver", start+time.Second, &s.CUDA, func(ctx context.Context, host *machine.Host) hostinfo.Answer[hostinfo.CUDA] {
		return siteCUDA(ctx, host, devices, start)
	})

	startReading(l, "leftovers", usual, &held, func(ctx context.Context, host *machine.Host) hostinfo.Answer[memoryUse] {
		return siteLeftovers(ctx, host, devices)
	})

	l.awaitReadings()
	setLeftovers(&s, held)

	select {
	case err := <-misuse:
		return s, err
	default:
		// It was not waited for.
		return s, nil
	}
}

// readingSet is a set of readings in progress.
type readingSet struct {
	ctx  context.Context //nolint:containedctx // it lives as long as one survey
	say  func(string)
	host *machine.Host
	all  sync.WaitGroup
	turn sync.Mutex
	// What is being looked at.
	pending []string
	ended   bool
}

// startReading starts one reading. A reading that panics or is late counts as failed, and the result of a late one is
// dropped.
func startReading[T any](l *readingSet, what string, deadline time.Duration, into *hostinfo.Answer[T], read func(context.Context, *machine.Host) hostinfo.Answer[T]) {
	l.callLocked(func() { l.pending = append(l.pending, what) })
	l.all.Go(func() {
		ctx, cancel := context.WithTimeout(l.ctx, deadline)
		defer cancel()
		found := make(chan hostinfo.Answer[T], 1)
		go func() {
			defer func() {
				if p := recover(); p != nil {
					found <- hostinfo.NoAnswer[T](fmt.Sprintf("gpuard made a mistake (%v); please report it", p))
				}
			}()
			found <- read(ctx, l.host)
		}()

		select {
		case *into = <-found:
		case <-ctx.Done():
			late := fmt.Sprintf("no answer within %s", deadline)
			if l.ctx.Err() != nil {
				late = context.Cause(l.ctx).Error()
			}
			*into = hostinfo.NoAnswer[T](late)
		}

		l.callLocked(func() {
			l.pending = slices.DeleteFunc(l.pending, func(p string) bool { return p == what })
		})
	})
}

func (l *readingSet) callLocked(change func()) {
	l.turn.Lock()
	defer l.turn.Unlock()
	change()
}

// sayLine shows one line at a time, and none after the answer: a late reading may still report.
func (l *readingSet) sayLine(line string) {
	l.callLocked(func() {
		if !l.ended {
			l.say(line)
		}
	})
}

func (l *readingSet) muteReadings() { l.callLocked(func() { l.ended = true }) }

// awaitReadings ends with the last reading. Where that takes long, it says now and then what it waits for.
func (l *readingSet) awaitReadings() {
	done := make(chan struct{})
	go func() {
		l.all.Wait()
		close(done)
	}()

	for pause := time.Second; ; pause *= 3 {
		select {
		case <-done:
			return
		case <-time.After(pause):
			var pending string
			l.callLocked(func() { pending = strings.Join(l.pending, ", ") })
			if pending != "" {
				l.sayLine("still looking at " + pending)
			}
		}
	}
}

// siteMachine reads all that the drivers tell.
func siteMachine(ctx context.Context, host *machine.Host) hostinfo.Answer[gpu.Machine] {
	m, err := host.Read(ctx, gpu.Everything)
	var none *gpu.Unavailable
	switch {
	case errors.As(err, &none):
		return hostinfo.Answer[gpu.Machine]{Problem: none.Text, Do: none.Remedy}
	case err != nil:
		return hostinfo.NoAnswer[gpu.Machine](err.Error())
	}

	return hostinfo.AnswerOf(m)
}

// fillNotLooked fills in what cannot be asked of a machine that is not this computer.
func fillNotLooked(s *hostinfo.Site) {
	const why = "not looked: this is about a recorded or invented machine"
	s.CUDA = hostinfo.NoAnswer[hostinfo.CUDA](why)
	s.Driver, s.Cards, s.Nodes = hostinfo.NoAnswer[hostinfo.Driver](why), hostinfo.NoAnswer[[]hostinfo.Card](why), hostinfo.NoAnswer[[]hostinfo.Node](why)
	s.Libraries, s.Toolkits, s.Pythons = hostinfo.NoAnswer[[]hostinfo.Library](why), hostinfo.NoAnswer[[]hostinfo.Toolkit](why), hostinfo.NoAnswer[[]hostinfo.Python](why)
	s.Containers, s.Limits, s.NCCL = hostinfo.NoAnswer[hostinfo.Containers](why), hostinfo.NoAnswer[hostinfo.Limits](why), hostinfo.NoAnswer[[]hostinfo.NCCLFile](why)
	s.Accelerate, s.Policy = hostinfo.NoAnswer[hostinfo.Accelerate](why), hostinfo.NoAnswer[hostinfo.Policy](why)
	s.State, s.Log = hostinfo.NoAnswer[hostinfo.State](why), hostinfo.NoAnswer[[]hostinfo.Error](why)
}
