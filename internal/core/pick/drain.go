package pick

import (
	"fmt"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
)

// FindDevice finds the device, or MIG slice, that a name means, as --device reads it. The refusal says what is wrong
// with the name.
func FindDevice(m gpu.Machine, name string) (job.Given, *job.Refusal) {
	q := newQuery(job.Spec{Devices: []string{name}}, m, nil, Context{})
	if wrong := q.readNames(); wrong != nil {
		return job.Given{}, wrong
	}
	return q.buildPlan(q.named).Devices[0], nil
}

// drainObstacle returns an obstacle when an administrator has taken the device out of use. Jobs inside a lease may
// continue until the lease ends.
func (q *query) drainObstacle(u *unit) *obstacle {
	if u.dev.Drained == "" || q.in.Parent != nil {
		return nil
	}
	return &obstacle{code: "drained", text: "drained: " + u.dev.Drained,
		remedy: fmt.Sprintf("put GPU %s into use again (%sgpuard undrain %s)", q.deviceNumber(u.dev), q.sudoPrefix(), q.deviceNumber(u.dev))}
}
