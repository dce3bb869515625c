package app

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/proc"
)

// promise reads what the job's environment shows it, as explain does.
func (w *watch) promise() {
	w.promised = true
	f := &w.facts
	x := &Explanation{Machine: f.Machine}
	env, inside := w.app.servers(w.env, f.PID), f.Machine
	if p, err := w.app.Proc.Process(f.PID); err == nil {
		inside = w.app.inside(x, p, env)
	}
	f.Promised = []gpu.UUID{}
	var masks []string
	for _, r := range x.see(nil, env, inside) {
		wins, _ := visible.Deciding(env, r.label, x.Machine, inside)
		for _, pair := range wins {
			if name, _, _ := strings.Cut(pair, "="); name != "CUDA_DEVICE_ORDER" && !slices.Contains(masks, pair) {
				masks = append(masks, gpu.Clean(pair))
			}
		}
	}
	for _, e := range x.Visible {
		f.Promised = append(f.Promised, e.UUID)
	}
	// Nothing tells whether the job uses HIP or OpenCL, and OpenCL does not obey HIP's variables. On other vendors it is empty.
	other := visible.OpenCL(env, inside)
	for _, e := range other.Visible {
		f.Besides = append(f.Besides, e.UUID)
	}
	for _, n := range x.Notes {
		f.Notes = append(f.Notes, n.Text)
		if n.Doubtful() && f.Doubt == "" {
			f.Doubt = n.Text
		}
	}
	f.Mask = strings.Join(masks, " ")
	if w.early() && f.Doubt == "" {
		f.Doubt = fmt.Sprintf("lease %s is held for a process that began before it, so its environment says nothing about that: the lease alone counts", w.lease.ID)
		f.Notes = append(f.Notes, f.Doubt)
	}
}

// early: the environment is older than the lease, which was taken for a process that ran already.
func (w *watch) early() bool {
	id, _ := w.env.Lookup("GPUARD_LEASE")
	return w.lease != nil && w.lease.Apart && id != w.lease.ID
}

// unlisted says why the driver's list of processes is no witness for these devices, "" when it is.
func (a *App) unlisted(m gpu.Machine, ids []gpu.UUID) string {
	initial, err := a.Proc.InitialPIDNamespace()
	inside := err == nil && !initial
	for _, d := range m.Devices {
		meant := slices.ContainsFunc(ids, func(id gpu.UUID) bool {
			o, _, ok := m.Find(id)
			return ok && o.UUID == d.UUID
		})
		switch {
		case !meant:
		case d.Problem != "":
			return fmt.Sprintf("%s: %s", gpuName(m, d), d.Problem)
		case d.Unlisted != "":
			return fmt.Sprintf("%s: %s", gpuName(m, d), d.Unlisted)
		case inside && strangers(m, d):
			return fmt.Sprintf("this is a container, and the driver lists the processes on %s under the numbers they have outside, or not at all; verify outside", gpuName(m, d))
		}
	}
	return ""
}

// strangers: in a PID namespace of its own a driver's list can name processes that do not exist here, or be empty although
// memory is in use (more than a display or the driver itself needs).
func strangers(m gpu.Machine, d gpu.Device) bool {
	list := m.On(d.UUID)
	if len(list) == 0 {
		return d.MemoryUsed != nil && *d.MemoryUsed > 128*gpu.MiB
	}
	return slices.ContainsFunc(list, func(p gpu.Process) bool { return p.State == proc.Gone })
}
