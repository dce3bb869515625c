package app

import (
	"slices"

	"gpuard/internal/core/visible"
)

// unmasked is the environment without what the login rule put there: it is no choice of the caller's, who may lease all the same.
func (a *App) unmasked() visible.Env {
	env, _, _ := a.Env.Lift()
	return env
}

// forShell adds to variables that a shell is about to get the removal of what the login rule gave it.
func (a *App) forShell(vars []visible.Var) []visible.Var {
	_, gone, _ := a.Env.Lift()
	for _, g := range gone {
		if !slices.ContainsFunc(vars, func(v visible.Var) bool { return v.Name == g.Name }) {
			vars = append(vars, g)
		}
	}
	return vars
}
