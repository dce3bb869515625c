// Package check is what doctor finds: each check turns what was read of a machine and of what lies around it into
// findings. It is the vocabulary of findings for doctor and lint; it reads nothing itself.
package check

import (
	"fmt"
	"slices"

	"gpuard/internal/core/hostinfo"
)

// Severity says how much a finding matters.
type Severity string

// Severities, from good to bad. Unknown is no verdict: the check could not look.
const (
	OK      Severity = "ok"
	Info    Severity = "info"
	Unknown Severity = "unknown"
	Warning Severity = "warning"
	Error   Severity = "error"
)

// Bad reports whether the finding makes doctor or lint end with 1.
func (s Severity) Bad() bool { return s == Warning || s == Error }

// Finding is one answer of doctor or lint.
type Finding struct {
	Code     string   `json:"code"`
	Severity Severity `json:"severity"`
	Seen     string   `json:"seen"` // what was seen here, in one sentence, with the names and numbers of this machine
	Why      string   `json:"why"`  // why it matters; "" when the severity is ok
	Do       string   `json:"do"`   // what to type or change next; "" when nothing
}

// Page is what the documentation says of a code. Codes are part of the interface: they are added, and never change.
type Page struct {
	Code  string
	Title string   // one line: what the code means
	Text  string   // why it matters and what to do, in Markdown paragraphs, for every machine
	From  []string // the sources of the rule: vendor pages; repository and file
}

// Check is one question about a machine. Look answers with at least one finding, all of the check's own code.
type Check struct {
	Page
	Stops bool // an error of this check means that no GPU program runs here at all
	Look  func(s hostinfo.Site) []Finding
}

// Checks lists every check, in the order in which their findings are shown: causes before consequences.
func Checks() []Check {
	return slices.Concat(driverChecks(), deviceChecks(), environmentChecks(), libraryChecks(), pythonChecks(), containerChecks(), stateChecks())
}

// Site runs every check.
func Site(s hostinfo.Site) []Finding {
	all := []Finding{}
	for _, c := range Checks() {
		all = append(all, c.sure(s)...)
	}
	return all
}

// sure is Look for use beside other checks: a mistake in one must not take the others' findings with it.
func (c Check) sure(s hostinfo.Site) (found []Finding) {
	defer func() {
		if p := recover(); p != nil {
			found = blind(c.Code, "this", fmt.Sprintf("gpuard made a mistake (%v)", p), "please report it, with: gpuard doctor --bundle")
		}
	}()
	return c.Look(s)
}

// ok is the finding of a check that all is well with.
func ok(code, seen string) []Finding { return []Finding{{code, OK, seen, "", ""}} }

// blind is the finding of a check that could not look.
func blind(code, what, problem, do string) []Finding {
	return []Finding{{code, Unknown, "cannot see " + what + ": " + problem, "", do}}
}
