package batchcmd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"gpuard/internal/app/claim"
	"gpuard/internal/app/exit"
	"gpuard/internal/app/userqueue"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/ui/cli"
)

// mayQueue refuses at once, and not when its turn has come, what this machine or its rules can never give.
func mayQueue(ctx context.Context, p *cli.Program, spec job.Spec) error {
	if _, err := p.Host.Limits(); err != nil || spec.CPU {
		return err
	}

	_, err := claim.Decide(ctx, p.Host, spec)
	var refusal *job.Refusal
	var usage *exit.Usage
	var unavailable *gpu.Unavailable
	if errors.As(err, &refusal) && refusal.Never || errors.As(err, &usage) || errors.As(err, &unavailable) {
		return err
	}

	return nil
}

// machineOf is --machine in a form that means the same in every folder.
func machineOf(p *cli.Program) (string, error) {
	name := p.Host.Machine
	if name == "" || name == "demo" || strings.HasPrefix(name, "demo:") {
		return name, nil
	}
	return filepath.Abs(name)
}

// queueRoom refuses more jobs than a rule allows to wait.
func queueRoom(p *cli.Program, q *userqueue.Queue, more int) error {
	limits, err := p.Host.Limits()
	r := limits.FewestWaiting()
	if err != nil || r == nil {
		return err
	}

	state, err := q.Read()
	if err == nil && state.Count.Waiting+more > *r.Queue {
		err = &job.Refusal{Never: true, Summary: fmt.Sprintf("cannot queue the job: policy: %s lets %d of your jobs wait at the same time, and %d do", r, *r.Queue, state.Count.Waiting),
			Remedy: "hand it in when some have started; gpuard queue shows them"}
	}

	return err
}
