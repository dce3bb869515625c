package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/quota"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/mps"
)

// EnvWithoutDevices is the environment of a job that gets no device: every vendor's variable says none.
func EnvWithoutDevices(host *machine.Host, spec job.Spec) []string {
	return host.UnmaskedEnv().With(varsWithoutDevices(host, spec))
}

func varsWithoutDevices(host *machine.Host, spec job.Spec) []visible.Var {
	return visible.ForJob(host.Env, "", job.Plan{}, spec.IDs, gpu.Machine{})
}

// LeaseVariables are all variables of a job whose lease is held. On an error the lease is freed.
func LeaseVariables(ctx context.Context, host *machine.Host, spec job.Spec, d *Decision) ([]visible.Var, error) {
	limits, err := shareVariables(ctx, host, spec, d)
	if err == nil {
		d.Wall, err = host.WallOf(d.Plan, d.Machine)
	}

	if err != nil {
		_ = d.Folder.Release(d.Held.Lease, d.Held.Lease.Boot)
		_ = d.Held.Lock.Close()
		return nil, err
	}

	vars := visible.ForJob(host.Env, d.Held.Lease.ID, d.Plan, FormOfIDs(spec, d.Plan), d.Machine)

	return append(vars, limits...), nil
}

// FormOfIDs says how devices are written for a job: by UUID where it goes through MPS, also when that is an outer
// lease's doing, because the daemon and its clients may count differently; and behind a wall, where the libraries count
// only what they can open.
func FormOfIDs(spec job.Spec, p job.Plan) job.IDs {
	if (p.Quota == job.MPS || p.Isolation != job.NoIsolation) && spec.IDs == job.AutoIDs {
		return job.UUIDs
	}
	return spec.IDs
}

// shareVariables are those that make a job keep its share, for the frameworks and for MPS. The daemon is started after
// the lease is written, so that another gpuard that is about to stop it sees the lease. If that fails, the lease
// records it, or is freed if MPS was required.
func shareVariables(ctx context.Context, host *machine.Host, spec job.Spec, d *Decision) ([]visible.Var, error) {
	var through []visible.Var
	if d.Plan.Quota == job.MPS {
		vars, err := startMPS(ctx, host, spec, d)
		if err != nil {
			level, note, refusal := quota.DecideLevel(job.MPS, spec.Require, quota.Means{MPS: err.Error()})
			if refusal != nil {
				return nil, refusal
			}
			if err := d.Folder.SetQuota(d.Held.Lease.ID, level); err != nil {
				return nil, err
			}

			d.Plan.Quota, d.Held.Lease.Quota = level, level
			d.Plan.Notes = append(d.Plan.Notes, note)
		}
		through = vars
	}
	return quota.ShareVars(host.Env, d.Plan.Share, LargestMemory(d.Machine, d.Plan), through), nil
}

// startMPS starts the daemon and says how a job reaches it, and how much it may have there.
func startMPS(ctx context.Context, host *machine.Host, spec job.Spec, d *Decision) ([]visible.Var, error) {
	if spec.IDs == job.IndexIDs {
		// Inside of a lease that goes through MPS.
		return nil, errors.New("--ids index would name other devices to its daemon than to its clients")
	}

	for _, g := range d.Plan.Devices {
		switch {
		case g.Vendor != gpu.NVIDIA:
			return nil, fmt.Errorf("%s is not NVIDIA's", g)
		case g.Parent != "":
			return nil, fmt.Errorf("%s is a MIG slice, which is a hard share already", g)
		}
	}

	c, err := MPSControl(ctx, host)
	if err != nil {
		return nil, err
	}

	unlock, err := c.Lock()
	if err != nil {
		return nil, err
	}

	defer unlock()
	if err := c.Start(ctx); err != nil {
		return nil, err
	}

	vars := []visible.Var{{Name: mps.PipeVariable, Value: c.Pipe}, {Name: mps.LogVariable, Value: c.LogFolder()}}

	return append(vars, quota.MPSVars(d.Plan.Devices, d.Plan.Share, spec.Threads)...), nil
}

// LargestMemory is the memory of the plan's largest device, 0 where one does not say.
func LargestMemory(m gpu.Machine, p job.Plan) gpu.Bytes {
	var most gpu.Bytes
	for _, g := range p.Devices {
		d, slice, ok := m.FindDevice(g.UUID)
		switch {
		case !ok:
			return 0
		case slice != nil && slice.MemoryTotal != nil:
			most = max(most, *slice.MemoryTotal)
		case slice == nil && d.MemoryTotal != nil:
			most = max(most, *d.MemoryTotal)
		case slice == nil && d.MainMemory != nil:
			most = max(most, *d.MainMemory)
		default:
			return 0
		}
	}
	return most
}

// PlanLine is the same line for any plan.
func PlanLine(plan job.Plan, lease string) string {
	if len(plan.Devices) == 0 {
		return "no GPU is visible to this job"
	}

	var parts []string
	for _, d := range plan.Devices {
		parts = append(parts, fmt.Sprintf("%s is %s:%d", d, d.RuntimeName(), d.Logical))
	}

	if plan.Share > 0 {
		parts = append(parts, fmt.Sprintf("a share of %s (%s)", plan.Share, cmp.Or(string(plan.Quota), "not enforced")))
	}

	if plan.Isolation != job.NoIsolation {
		parts = append(parts, "isolated by "+string(plan.Isolation))
	}

	return strings.Join(parts, ", ") + ", lease " + lease
}
