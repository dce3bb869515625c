package visible

import (
	"slices"
	"strings"
)

// loginVariable marks what the login rule set: the settings themselves, with blanks between them. A mask that somebody set is
// obeyed; one that only every login has is not. Who forges the mark has what he would have without any mask.
const loginVariable = "GPUARD_LOGIN"

// Login returns what of vars a shell without a lease is given, with the mark: what is set already stays as it is.
func (e Env) Login(vars []Var) []Var {
	var out []Var
	var marked []string
	for _, v := range vars {
		if v.Unset || e.set(v.Name) || strings.ContainsAny(v.Value, " \t\n") {
			continue
		}
		out = append(out, v)
		marked = append(marked, v.Name+"="+v.Value)
	}
	return append(out, Var{Name: loginVariable, Value: strings.Join(marked, " ")})
}

// Lift takes away what the login rule set, and returns what that was as variables to be removed, with the mark. What has
// another value by now was changed by hand: it stays, and touched says so.
func (e Env) Lift() (without Env, gone []Var, touched bool) {
	mark, set := e.Lookup(loginVariable)
	if !set {
		return e, nil, false
	}
	names := []string{loginVariable}
	for _, pair := range strings.Fields(mark) {
		name, value, _ := strings.Cut(pair, "=")
		now, still := e.Lookup(name)
		switch {
		case !slices.Contains(Variables(), name): // nothing else is ours to take
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

// Masked reports whether the environment chooses devices already, by a mask or as a job of another scheduler.
func (e Env) Masked() bool {
	return e.set(cudaVariable, rocrVariable, "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "ASCEND_RT_VISIBLE_DEVICES") || Allocation(e) != ""
}
