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
	Write []Edit // the lines to write where the user has to decide; they are shown with the rest of the line
	Line  string // the corrected command or lines, shown where the places of the edits are not known; "" when there is no single way
}

// Edit replaces the text at a place. An empty place (start is end) inserts.
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

// Rule is one kind of mistake. Look gets one whole file and returns findings with the rule's code.
type Rule struct {
	check.Page
	Severity check.Severity // the usual one; a finding may have another
	Bad      []Example      // each has a finding of this rule
	Good     []Example      // none has a finding of any rule
	Look     func(f File) []Finding
}

// Rules lists every rule by topic.
func Rules() []Rule {
	return joined(slices.Concat(valueRules(), pythonRules(), shellRules(), commandRules(), containerRules(), settingRules(), oldNameRules()), inPython())
}

// Look applies every rule to a file. Findings are in the order of their places.
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
