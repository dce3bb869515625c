package shellenv

import (
	"cmp"
	"context"
	"errors"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
	"gpuard/internal/core/policy"
	"gpuard/internal/core/visible"
)

// LoginVariables are the variables of a shell without a lease, by the stricter of rule and the configuration files.
// There are none inside of a job of gpuard or of another scheduler, which has set a mask, and none if the user has
// changed those of the login. If files or devices cannot be read, no device is shown, and the error is returned with
// the variables.
func LoginVariables(ctx context.Context, host *machine.Host, rule policy.Login) ([]visible.Var, error) {
	env, gone, touched := host.Env.LiftLogin()
	_, inside := env.Lookup("GPUARD_GPUS")
	if inside || touched || env.ChoosesDevices() {
		return nil, nil
	}

	// The shell waits, and its user cannot know for what.
	host.Patience = cmp.Or(host.Patience, machine.ConfigPatience)
	files, err := host.Config()
	if host.Proc.IsRoot() {
		// Rules for all users do not apply to root either.
		files = nil
	}

	hidden := host.VarsForShell(env.LoginVars(visible.TargetVars(nil, job.AutoIDs, gpu.Machine{})))
	if err != nil {
		return hidden, err
	}

	switch append(files, &policy.File{Login: rule}).NarrowestLogin() {
	case policy.LoginAllowed:
		vars, err := allowedVariables(ctx, host, env)
		return host.VarsForShell(vars), err
	case policy.LoginAll:
		return gone, nil
	case policy.LoginNone:
	}

	return hidden, nil
}

// allowedVariables shows the devices that the rules give the caller.
func allowedVariables(ctx context.Context, host *machine.Host, env visible.Env) ([]visible.Var, error) {
	limits, err := host.Limits()
	if err != nil {
		return env.LoginVars(visible.TargetVars(nil, job.AutoIDs, gpu.Machine{})), err
	}

	m, err := host.Read(ctx, gpu.Identity)
	var none *gpu.Unavailable
	if errors.As(err, &none) {
		// There is nothing to see, and no login is the place to say so.
		err = nil
	}

	var mine []visible.Target
	for _, id := range pick.AllowedDevices(m, limits) {
		d, slice, _ := m.FindDevice(id)
		mine = append(mine, visible.Target{Index: d.Index, UUID: id, MIG: slice != nil, Vendor: d.Vendor})
	}

	if err == nil && len(mine) > 0 && len(mine) == len(pick.AllowedDevices(m, nil)) {
		return nil, nil
	}

	ids := job.AutoIDs
	if _, set := env.Lookup("CUDA_DEVICE_ORDER"); set {
		// Numbers might count in another order.
		ids = job.UUIDs
	}

	return env.LoginVars(visible.TargetVars(mine, ids, m)), err
}
