package app

import (
	"context"
	"slices"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/policy"
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

// Login are the variables of a shell that has no lease, by the stricter of rule and of what the configuration files say. There
// are none in a job of gpuard's or of another scheduler's, where a mask is set, and where somebody changed those of the login.
// Where the devices cannot be read, none is shown, and the error is beside the variables.
func (a *App) Login(_ context.Context, rule policy.Login) ([]visible.Var, error) {
	env, gone, touched := a.Env.Lift()
	_, inside := env.Lookup("GPUARD_GPUS")
	if inside || touched || env.Masked() {
		return nil, nil
	}
	if rule == policy.LoginAll {
		return gone, nil
	}
	return a.forShell(env.Login(visible.Write(nil, visible.Auto, gpu.Machine{}))), nil
}
