package services

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"gpuard/internal/core/service"
	"gpuard/internal/host/readiness"
	"gpuard/internal/host/tail"
)

// prober finds out when one start of an instance can be used.
type prober struct {
	ready service.Ready
	// The pattern for a line of its output.
	pattern *regexp.Regexp
	output  *tail.Tail
}

// Patience of a prober.
const (
	// Grows, without an interval of the user's.
	firstProbePause = 50 * time.Millisecond
	maxProbePause   = time.Second
	probeTimeout    = 30 * time.Second // for one answer
)

// newProber watches the output of one start, from the end of the log before it. Close it when done.
func newProber(r service.Ready, log string, from service.Place) (*prober, error) {
	p := &prober{ready: r}
	if r.Log == "" {
		return p, nil
	}

	var err error
	p.pattern, err = regexp.Compile(r.Log)
	if err != nil {
		return nil, fmt.Errorf("cannot look for a line: %w", err)
	}

	p.output = tail.New()
	p.output.ResumeFile(log, from.Inode, from.Offset)

	return p, nil
}

func (p *prober) close() {
	if p.output != nil {
		p.output.Close()
	}
}

// waitUntilReady returns nil when it is ready. told hears why it is not yet, whenever that is another reason. The error
// is that of ctx, or says that the timeout of the file is over.
func (p *prober) waitUntilReady(ctx context.Context, folder string, env []string, told func(why string)) error {
	asking, cancel := ctx, context.CancelFunc(func() {})
	if p.ready.Timeout > 0 {
		asking, cancel = context.WithTimeout(ctx, p.ready.Timeout)
	}

	defer cancel()
	last := "it has not said so"
	hear := func(err error) {
		if text := err.Error(); asking.Err() == nil && text != last {
			last = text
			told(text)
		}
	}

	var err error
	if p.output != nil {
		err = p.awaitLine(asking)
	} else {
		err = p.checkUntilReady(asking, folder, env, hear)
	}

	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("it was not ready within %s: %s", p.ready.Timeout, last)
	}

	return err
}

// awaitLine waits for the line.
func (p *prober) awaitLine(ctx context.Context) error {
	for {
		line, err := p.output.Next(ctx)
		if err != nil || p.pattern.Match(line.Text) {
			return err
		}
	}
}

// checkUntilReady asks until the answer is yes.
func (p *prober) checkUntilReady(ctx context.Context, folder string, env []string, hear func(error)) error {
	pause := p.ready.Interval
	if pause == 0 {
		pause = firstProbePause
	}

	for {
		err := runProbe(ctx, p.ready.Probe, probeTimeout, folder, env)
		if err == nil {
			return nil
		}

		hear(err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}

		if p.ready.Interval == 0 {
			pause = min(2*pause, maxProbePause)
		}
	}
}

// runProbe checks once; limit is the time for the answer.
func runProbe(ctx context.Context, p service.Probe, limit time.Duration, folder string, env []string) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	switch {
	case len(p.Command) > 0:
		return readiness.CheckCommand(ctx, p.Command, folder, env)
	case p.TCP != "":
		return readiness.CheckTCP(ctx, p.TCP)
	case p.HTTP != "":
		return readiness.CheckHTTP(ctx, p.HTTP)
	}

	return errors.New("it cannot be asked")
}
