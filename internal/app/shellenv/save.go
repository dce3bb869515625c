package shellenv

import (
	"context"
	"errors"
	"os"
	"slices"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/leases"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/envstack"
	"gpuard/internal/core/visible"
)

// savedChoice is a choice of devices for a shell that wants to have its variables back.
type savedChoice struct {
	host *machine.Host
	// What the shell has now.
	shell visible.Env
	rest  envstack.Stack // without the choice
	back  []visible.Var
	// The entry of the same id, which is chosen again; nil for the first time.
	before *envstack.Entry
}

// SaveChoice begins a choice that RestoreChoice can take back under this id. It is made as if the one before it under
// the same id had never been: what that one hid can be chosen. keep is what the shell has to change for the variables
// of the choice, and to remember what was before them; h is what was leased with them, nil for nothing.
func SaveChoice(host *machine.Host, id string) (keep func(vars []visible.Var, h *leases.HeldLease) ([]visible.Var, error), err error) {
	stack, err := envstack.ReadStack(host.Env)
	if err != nil {
		return nil, &exit.Usage{Text: err.Error()}
	}

	s := &savedChoice{host: host, shell: host.Env, before: &envstack.Entry{ID: id}}
	var popped *envstack.Entry
	s.rest, s.back, popped = stack.Pop(id)
	if popped != nil {
		s.before = popped
	}

	host.Env = host.Env.With(append(slices.Clone(s.back), s.rest.AsVariable()))

	return s.finishChoice, nil
}

func (s *savedChoice) finishChoice(vars []visible.Var, h *leases.HeldLease) ([]visible.Var, error) {
	e := envstack.Entry{ID: s.before.ID, Lease: s.before.Lease, PID: s.before.PID, Start: s.before.Start, By: s.before.By}
	if h != nil && h.Lease != "" && !h.Already {
		stat, err := s.host.Proc.Stat(h.PID)
		if err != nil {
			return nil, err
		}
		e.Lease, e.PID, e.Start, e.By = h.Lease, h.PID, stat.Start, os.Getppid()
	}

	out := slices.Clone(vars)
	for _, v := range s.back {
		if !slices.ContainsFunc(vars, func(o visible.Var) bool { return o.Name == v.Name }) {
			out = append(out, v)
		}
	}

	return append(out, s.rest.Push(e, s.host.Env, vars).AsVariable()), nil
}

// RestoreChoice is what puts the variables back that a choice changed, nothing where there was none. A lease that this
// very shell took with it is given back; one that its parent has stays.
func RestoreChoice(ctx context.Context, host *machine.Host, id string) ([]visible.Var, error) {
	stack, err := envstack.ReadStack(host.Env)
	if err != nil {
		return nil, &exit.Usage{Text: err.Error()}
	}

	rest, back, e := stack.Pop(id)
	if e == nil {
		return nil, nil
	}

	if tookLease(host, e) {
		var gone *leases.NoLeaseError
		if _, err := leases.Release(ctx, host, e.Lease); err != nil && !errors.As(err, &gone) {
			// The variables go back all the same.
			host.Say(err.Error())
		}
	}

	return append(back, rest.AsVariable()), nil
}

// tookLease reports whether the caller's shell is the one that took the lease. A subshell, such as commands in
// parentheses, cannot be told from a command substitution, except while the process that made the choice still runs.
func tookLease(host *machine.Host, e *envstack.Entry) bool {
	shell := host.Proc.Shell(os.Getppid())
	stat, err := host.Proc.Stat(shell)
	if e.Lease == "" || err != nil || shell != e.PID || stat.Start != e.Start {
		return false
	}

	_, err = host.Proc.Stat(e.By)

	return e.By == os.Getppid() || err != nil
}
