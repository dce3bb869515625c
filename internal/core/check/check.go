// Package check has the checks of doctor: each turns what was read of a machine into findings. Lint uses the same type
// of finding. The package must not read anything itself; hostinfo does:
//
//	d := check.Diagnose(site) // site is a hostinfo.Site
//	for _, f := range d.Findings {
//		if f.Severity.Bad() {
//			fmt.Println(f.Seen, f.Do)
//		}
//	}
package check

import (
	"fmt"
	"slices"

	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/option"
)

// Severity is how much a finding matters.
type Severity string

// Severities, from good to bad. Unknown is no verdict: what the check needs could not be read.
const (
	OK      Severity = "ok"
	Info    Severity = "info"
	Unknown Severity = "unknown"
	Warning Severity = "warning"
	Error   Severity = "error"
)

// Bad reports whether the finding makes doctor or lint end with 1.
func (s Severity) Bad() bool { return s == Warning || s == Error }

// Finding is one result of doctor or lint.
type Finding struct {
	Code     string   `json:"code"`
	Severity Severity `json:"severity"`
	// What was found, in one sentence, with the names and numbers of this machine.
	Seen string `json:"seen"`
	// why it matters; "" when the severity is ok.
	Why string `json:"why"`
	// The command or change to make next; "" when nothing.
	Do string `json:"do"`
}

// Page is the documentation of a code. Codes are part of the interface: they are added, and never change.
type Page struct {
	Code string
	// One line: what the code means.
	Title string
	// Why it matters and what to do, in Markdown paragraphs, for every machine.
	Text string
	// The sources of the rule: vendor pages; repository and file.
	From []string
}

// Check is one check of a machine. Look returns at least one finding, all of the check's own code.
type Check struct {
	Page
	// An error of this check means that no GPU program runs here at all.
	Stops bool
	Look  func(s hostinfo.Site) []Finding
}

// Checks lists every check in the order of their findings: causes before consequences.
func Checks() []Check {
	return slices.Concat(driverChecks(), deviceChecks(), environmentChecks(), []Check{cudaStart()}, libraryChecks(), pythonChecks(), containerChecks(), stateChecks())
}

// RunChecks runs every check.
func RunChecks(s hostinfo.Site) []Finding {
	all := []Finding{}
	for _, c := range Checks() {
		all = append(all, c.lookWithRecover(s)...)
	}
	return all
}

// lookWithRecover is Look with a recover: a bug in one check must not lose the others' findings.
func (c Check) lookWithRecover(s hostinfo.Site) (found []Finding) {
	defer func() {
		if p := recover(); p != nil {
			found = unknownFinding(c.Code, "this", fmt.Sprintf("gpuard made a mistake (%v)", p), option.Expand("please report it, with: {gpuard doctor} {bundle}"))
		}
	}()
	return c.Look(s)
}

// okFinding is the only finding of a check that finds nothing wrong.
func okFinding(code, seen string) []Finding { return []Finding{{code, OK, seen, "", ""}} }

// unknownFinding is the finding of a check whose input could not be read.
func unknownFinding(code, what, problem, do string) []Finding {
	return []Finding{{code, Unknown, "cannot see " + what + ": " + problem, "", do}}
}
