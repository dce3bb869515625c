package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/quota"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/mps"
)

// apply replaces variables; a name that stood there twice stands there once.
func apply(env visible.Env, vars []visible.Var) []string {
	set := make(map[string]bool, len(vars))
	for _, v := range vars {
		set[v.Name] = true
	}
	out := make([]string, 0, len(env)+len(vars))
	for _, pair := range env {
		if name, _, _ := strings.Cut(pair, "="); !set[name] {
			out = append(out, pair)
		}
	}
	for _, v := range vars {
		if !v.Unset {
			out = append(out, v.Name+"="+v.Value)
		}
	}
	return out
}

// own are gpuard's own variables beside the vendors'.
func own(lease string, p job.Plan) []visible.Var {
	ids := make([]string, len(p.Devices))
	for i, d := range p.Devices {
		ids[i] = string(d.UUID)
	}
	return []visible.Var{
		{Name: "GPUARD_LEASE", Value: lease, Unset: lease == ""},
		{Name: "GPUARD_GPUS", Value: strings.Join(ids, ",")},
	}
}

func targets(p job.Plan) []visible.Target {
	out := make([]visible.Target, len(p.Devices))
	for i, d := range p.Devices {
		out[i] = visible.Target{UUID: d.UUID, Index: d.Index, Vendor: d.Vendor, MIG: d.Parent != ""}
	}
	return out
}

// without is the environment of a job that gets no device: every vendor's variable says none.
func (a *App) without(spec job.Spec) []string {
	return apply(a.unmasked(), append(visible.WriteOver(a.Env, nil, spec.IDs, gpu.Machine{}), own("", job.Plan{})...))
}

func given(p job.Plan) []gpu.UUID {
	ids := make([]gpu.UUID, len(p.Devices))
	for i, d := range p.Devices {
		ids[i] = d.UUID
	}
	return ids
}

// variablesOf are all the variables of a job whose lease stands. With an error the lease is given back.
func (a *App) variablesOf(ctx context.Context, spec job.Spec, d *decision) ([]visible.Var, error) {
	limits, err := a.shareVariables(ctx, spec, d)
	if err != nil {
		_ = d.Folder.Release(d.Held.Lease, d.Held.Lease.Boot)
		_ = d.Held.Lock.Close()
		return nil, err
	}
	vars := append(visible.WriteOver(a.Env, targets(d.Plan), identifiers(spec, d.Plan), d.Machine), own(d.Held.Lease.ID, d.Plan)...)
	return append(vars, limits...), nil
}

// identifiers says how devices are written for a job: by UUID where it goes through MPS, also when that is an outer lease's doing,
// because the daemon and its clients may count differently.
func identifiers(spec job.Spec, p job.Plan) job.IDs {
	if p.Quota == job.MPS && spec.IDs == job.AutoIDs {
		return job.UUIDs
	}
	return spec.IDs
}

// shareVariables are those that make a job keep its share, of the frameworks and of MPS. The daemon is started when the
// lease stands, so that nobody who ends it overlooks us. Where that fails the lease says so, or is given back as required.
func (a *App) shareVariables(ctx context.Context, spec job.Spec, d *decision) ([]visible.Var, error) {
	var through []visible.Var
	if d.Plan.Quota == job.MPS {
		vars, err := a.throughMPS(ctx, spec, d)
		if err != nil {
			level, note, refusal := quota.Level(job.MPS, spec.Require, quota.Means{MPS: err.Error()})
			if refusal != nil {
				return nil, refusal
			}
			if err := d.Folder.Level(d.Held.Lease.ID, level); err != nil {
				return nil, err
			}
			d.Plan.Quota, d.Held.Lease.Quota = level, level
			d.Plan.Notes = append(d.Plan.Notes, note)
		}
		through = vars
	}
	return quota.Settings(a.Env, d.Plan.Share, largest(d.Machine, d.Plan), through), nil
}

// throughMPS starts the daemon and says how a job reaches it, and how much it may have there.
func (a *App) throughMPS(ctx context.Context, spec job.Spec, d *decision) ([]visible.Var, error) {
	if spec.IDs == job.IndexIDs { // inside of a lease that goes through MPS
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
	c, err := a.control(ctx)
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
	vars := []visible.Var{{Name: mps.PipeVariable, Value: c.Pipe}, {Name: mps.LogVariable, Value: c.Log()}}
	return append(vars, quota.ThroughMPS(d.Plan.Devices, d.Plan.Share, spec.Threads)...), nil
}

// largest is the memory of the plan's largest device, 0 where one does not say.
func largest(m gpu.Machine, p job.Plan) gpu.Bytes {
	var most gpu.Bytes
	for _, g := range p.Devices {
		d, slice, ok := m.Find(g.UUID)
		switch {
		case !ok:
			return 0
		case slice != nil && slice.MemoryTotal != nil:
			most = max(most, *slice.MemoryTotal)
		case slice == nil && d.MemoryTotal != nil:
			most = max(most, *d.MemoryTotal)
		default:
			return 0
		}
	}
	return most
}

// announce is the same line for any plan.
func announce(plan job.Plan, lease string) string {
	if len(plan.Devices) == 0 {
		return "no GPU is visible to this job"
	}
	var parts []string
	for _, d := range plan.Devices {
		parts = append(parts, fmt.Sprintf("%s is %s:%d", d, d.Runtime(), d.Logical))
	}
	if plan.Share > 0 {
		parts = append(parts, fmt.Sprintf("a share of %s (%s)", plan.Share, cmp.Or(string(plan.Quota), "not enforced")))
	}
	return strings.Join(parts, ", ") + ", lease " + lease
}
