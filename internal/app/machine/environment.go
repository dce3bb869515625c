package machine

import (
	"slices"

	"gpuard/internal/core/visible"
)

// UnmaskedEnv is the environment without the variables that the login rule has set. The caller did not choose those, so
// they do not restrict a lease.
func (h *Host) UnmaskedEnv() visible.Env {
	env, _, _ := h.Env.LiftLogin()
	return env
}

// VarsForShell adds to variables that a shell is about to get the removal of what the login rule gave it.
func (h *Host) VarsForShell(vars []visible.Var) []visible.Var {
	_, gone, _ := h.Env.LiftLogin()
	for _, g := range gone {
		if !slices.ContainsFunc(vars, func(v visible.Var) bool { return v.Name == g.Name }) {
			vars = append(vars, g)
		}
	}
	return vars
}
