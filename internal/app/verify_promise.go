package app

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/visible"
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
