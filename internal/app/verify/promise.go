package verify

import (
	"fmt"
	"strings"

	"gpuard/internal/app/explain"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/visible"
)

// readPromise reads what the job's environment shows it, as explain does.
func (w *treeWatch) readPromise() {
	w.promised = true
	f := &w.facts
	x, inside, masks := explain.VisibleTo(w.host, w.env, f.PID, f.Machine)
	f.Promised = []gpu.UUID{}

	for _, e := range x.Visible {
		f.Promised = append(f.Promised, e.UUID)
	}

	// Nothing tells whether the job uses HIP or OpenCL, and OpenCL does not obey HIP's variables. On other vendors it
	// is empty.
	other := visible.OpenCL(w.env, inside)
	for _, e := range other.Visible {
		f.Besides = append(f.Besides, e.UUID)
	}

	for _, n := range x.Notes {
		f.Notes = append(f.Notes, n.Text)
		if n.IsDoubtful() && f.Doubt == "" {
			f.Doubt = n.Text
		}
	}

	f.Mask = strings.Join(masks, " ")
	if w.isEnvOlder() && f.Doubt == "" {
		f.Doubt = fmt.Sprintf("lease %s is held for a process that began before it, so its environment says nothing about that: the lease alone counts", w.lease.ID)
		f.Notes = append(f.Notes, f.Doubt)
	}
}

// isEnvOlder: the environment is older than the lease, which was taken for a process that ran already.
func (w *treeWatch) isEnvOlder() bool {
	id, _ := w.env.Lookup("GPUARD_LEASE")
	return w.lease != nil && w.lease.Apart && id != w.lease.ID
}
