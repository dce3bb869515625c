package lint

import (
	"cmp"
	"slices"

	"gpuard/internal/core/check"
)

// Finding is one mistake in a file.
type Finding struct {
	check.Finding
	At    Place
	Edits []Edit // what --fix does; nil when a person has to decide
	Write []Edit // what makes the lines right where a person has to decide: they are shown with what else stands in them
	Line  string // the corrected command or lines, shown where the places of the edits are not known; "" when there is no single way
}

// Edit replaces what stands at a place. An empty place (start is end) inserts.
type Edit struct {
	At   Place
	Text string
	Was  string // what stands there; "" is not compared
}

// Example is a file for the documentation and for tests.
type Example struct {
	Name string // "train.py": its kind follows from the name
	Text string
}

// Rule is one kind of mistake. Look sees one whole file and returns findings of the rule's own code.
type Rule struct {
	check.Page
	Severity check.Severity // the usual one; a finding may have another
	Bad      []Example      // each has a finding of this rule
	Good     []Example      // none has a finding of any rule
	Look     func(f File) []Finding
}

// Rules lists every rule by topic.
func Rules() []Rule {
	return joined(slices.Concat(valueRules(), pythonRules(), shellRules(), commandRules(), containerRules(), settingRules()), inPython())
}

// Look runs every rule over a file, in the order of the places.
func Look(f File) []Finding {
	f.ways = flows(f)
	var all []Finding
	for _, r := range Rules() {
		all = append(all, r.Look(f)...)
	}
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.At.Cell, b.At.Cell), cmp.Compare(a.At.Line, b.At.Line), cmp.Compare(a.At.Column, b.At.Column), cmp.Compare(a.Code, b.Code))
	})
	return all
}
