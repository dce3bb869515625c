package lint

import "slices"

func pythonRules() []Rule { return slices.Concat(lateRules(), deviceRules(), tensorflowRules()) }

// inPython are mistakes that command lines and Python share: each adds its sentences, sources and examples to the rule
// of the same code.
func inPython() []Rule {
	return []Rule{indexRule(), rankRule(), processesRule(), portRule(), fractionsRule()}
}

// joined puts rules together with more about the same codes.
func joined(all, more []Rule) []Rule {
	for _, m := range more {
		i := slices.IndexFunc(all, func(r Rule) bool { return r.Code == m.Code })
		if i < 0 {
			all = append(all, m)
			continue
		}
		r := &all[i]
		first := r.Look
		r.Text += "\n\n" + m.Text
		r.From = append(slices.Clone(r.From), m.From...)
		r.Bad, r.Good = slices.Concat(r.Bad, m.Bad), slices.Concat(r.Good, m.Good)
		r.Look = func(f File) []Finding { return slices.Concat(first(f), m.Look(f)) }
	}
	return all
}
