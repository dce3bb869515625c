package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// fallBack tries the words of --fallback in order; "wait" is for the caller. If none helps it returns the last refusal,
// whose advice was not tried yet. A request that waits does so for what it asked for.
func (c *claimer) fallBack(ctx context.Context, refusal *job.Refusal) (*Decision, error) {
	last := refusal
	for _, word := range c.request.spec.Waiting.Fallback {
		switch word {
		case "other":
			d, err := c.claimOther(ctx, refusal)
			var again *job.Refusal
			if err == nil && d != nil || err != nil && !errors.As(err, &again) {
				return d, err
			}
			last = betterRefusal(c.request.spec.Waiting, refusal, again)
		case "cpu":
			return useCPU(c.host, refusal), nil
		}
	}
	return nil, last
}

// betterRefusal is the refusal to show of a request and of the one that was tried in its place, nil for none.
func betterRefusal(waiting job.Waiting, asked, other *job.Refusal) *job.Refusal {
	if other == nil || other.Never || asked.Never || waiting.Waits() {
		return asked
	}
	return other
}

// withoutNames is the request without what names devices or a model; false where it names none.
func withoutNames(spec job.Spec) (job.Spec, bool) {
	if len(spec.Devices) == 0 && spec.Model == "" {
		return spec, false
	}
	if spec.MIG == "" && len(spec.Devices) > 0 {
		spec.GPUs = len(spec.Devices)
	}
	spec.Devices, spec.Model = nil, ""

	return spec, true
}

// claimOther claims without what names devices or a model, keeping the rest of the request. nil where it names none.
func (c *claimer) claimOther(ctx context.Context, refusal *job.Refusal) (*Decision, error) {
	asked := c.request.spec
	spec, names := withoutNames(asked)
	if !names {
		return nil, nil //nolint:nilnil // the same request would get the same answer
	}

	c.request.spec = spec
	defer func() { c.request.spec = asked }()
	d, err := c.claimNow(ctx)
	if err != nil {
		return d, err
	}

	d.Plan.Notes = append(d.Plan.Notes, otherDeviceNote(refusal))

	return d, err
}

func otherDeviceNote(refusal *job.Refusal) string {
	return refusal.Summary + ": taking another, as --fallback other says"
}

// useCPU is the decision to go without a device. It is said also where silence was asked for, because the job is not
// where its owner meant it to be, and will be slow without a word of its own.
func useCPU(host *machine.Host, refusal *job.Refusal) *Decision {
	note := fmt.Sprintf("FALLING BACK TO THE CPU, as --fallback cpu says: %s; every GPU is hidden from the command", refusal.Summary)
	if host.Loud != nil {
		host.Loud(note)
	}
	return &Decision{Plan: job.Plan{Devices: []job.Given{}, Reasons: append([]job.Reason{}, refusal.Reasons...), Notes: []string{}}}
}

// CPUIfImpossible returns spec for the CPU where this machine can never give what it asks for, as useCPU says. Devices
// that are busy are waited for.
func CPUIfImpossible(ctx context.Context, host *machine.Host, spec job.Spec) (job.Spec, error) {
	spec.Waiting.Fallback = []string{"cpu"}
	_, _, err := DecideNow(ctx, host, spec)
	refusal := unavailableRefusal(spec, err)
	if refusal == nil && !errors.As(err, &refusal) {
		return spec, err
	}
	if !refusal.Never {
		return spec, nil //nolint:nilerr // it is waited for
	}

	useCPU(host, refusal)
	spec.CPU, spec.Share = true, 0

	return spec, nil
}

// unavailableRefusal is the refusal to fall back from where no device can be read and the request falls back to the
// CPU; else nil.
func unavailableRefusal(spec job.Spec, err error) *job.Refusal {
	var none *gpu.Unavailable
	if !errors.As(err, &none) || !slices.Contains(spec.Waiting.Fallback, "cpu") {
		return nil
	}
	return &job.Refusal{Summary: none.Text, Never: true, Reasons: []job.Reason{}, Remedy: none.Remedy}
}
