package claim

import (
	"slices"

	"gpuard/internal/core/job"
)

// hasDrainedSince reports whether a device of the plan was drained after the machine was read. It only opens a few
// small files of the locked folder, so it cannot hang.
func (q *request) hasDrainedSince(plan job.Plan) bool {
	m := q.machine
	noted, _ := q.host.DeviceMarks(&m)
	return slices.ContainsFunc(plan.Devices, func(g job.Given) bool {
		d, _, ok := m.FindDevice(g.UUID)
		return ok && d.Drained == "" && noted[d.UUID].Drained
	})
}
