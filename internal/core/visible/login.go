package visible

import (
	"slices"
	"strings"
)

// loginVariable records what the login rule set: the settings themselves, separated by blanks. A mask that a user set
// is obeyed; the mask of every login is not. A forged record gains nothing: its owner could also unset the mask.
const loginVariable = "GPUARD_LOGIN"

// LoginVars returns the variables of vars that a shell without a lease gets, with the record. Variables that are set
// already stay as they are.
func (e Env) LoginVars(vars []Var) []Var {
	var out []Var
	var marked []string
	for _, v := range vars {
		if v.Unset || e.hasAny(v.Name) || strings.ContainsAny(v.Value, " \t\n") {
			continue
		}
		out = append(out, v)
		marked = append(marked, v.Name+"="+v.Value)
	}

	return append(out, Var{Name: loginVariable, Value: strings.Join(marked, " ")})
}

// LiftLogin removes what the login rule set. gone lists it as variables to remove, with the record. A variable whose
// value has changed since was changed by hand: it stays, and touched is true.
func (e Env) LiftLogin() (without Env, gone []Var, touched bool) {
	mark, set := e.Lookup(loginVariable)
	if !set {
		return e, nil, false
	}

	names := []string{loginVariable}
	for _, pair := range strings.Fields(mark) {
		name, value, _ := strings.Cut(pair, "=")
		now, still := e.Lookup(name)
		switch {
		case !slices.Contains(Variables(), name):
			// The record can be forged: remove no other variable.
		case still && now == value:
			names = append(names, name)
		default:
			touched = true
		}
	}

	without = slices.DeleteFunc(slices.Clone(e), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return slices.Contains(names, name)
	})

	for _, name := range names {
		gone = append(gone, Var{Name: name, Unset: true})
	}

	return without, gone, touched
}

// ChoosesDevices reports whether the environment already chooses devices, by a mask or as a job of another scheduler.
func (e Env) ChoosesDevices() bool {
	return e.hasAny(cudaVariable, rocrVariable, "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "ASCEND_RT_VISIBLE_DEVICES") || Allocation(e) != ""
}
