package lint

import (
	"slices"
	"strings"

	"gpuard/internal/core/check"
)

// What has to be so, beside the line itself, for a finding to be right; the others, which the rules' descriptions name,
// are the version of a driver or a library, and the intention. The severity is no higher than that is certain: an error is
// wrong by itself, in a file that something runs, and of a kind that people have found right.
const (
	// Nothing else: any run of it fails, or uses another device.
	onLine = "the line"
	// Which of them reads it.
	onShell = "the shell"
	// What a program does before and after, as far as its text tells. Such findings were wrong more often than any other: what is
	// imported, or filled in, was not seen.
	onRun = "the run"
	// Who reads it, and what that one makes of it.
	onOtherFile = "another file"
)

// bound lowers the severity of a finding to what is certain in its file. A page is copied by a person who reads, and nothing runs
// from it: what is found there is a remark, but for the few kinds that whoever copies it cannot see.
func (f File) bound(one Finding, about Description) check.Severity {
	most := highestSeverity(one.rests)
	if f.Kind == Markdown {
		most = check.Info
		if about.Unseen {
			most = check.Warning
		}
	}

	if f.isHarmless(one) {
		most = check.Info
	}

	return lower(one.Severity, most)
}

// isHarmless reports whether a mistake changes nothing, as far as the file shows: a test sets a wrong value on purpose, a try catches
// what it raises, or the program never reaches it.
func (f File) isHarmless(one Finding) bool {
	list := strings.HasPrefix(one.Code, "mask-") || one.Code == "port-too-large"
	if f.Kind != Python && f.Kind != Notebook {
		return list && isTestName(f.Path)
	}

	raises := hasWord("environ-not-text set-device-cpu", one.Code)
	if isUnitTest(f.Path) && (list || raises || hasWord("variable-misspelt export-lost-with-step", one.Code)) {
		return true
	}

	return slices.ContainsFunc(f.guarded, func(s Step) bool {
		isThere := s.At.Cell == one.At.Cell && s.At.Line <= one.At.Line && one.At.Line <= max(s.At.Line, s.At.EndLine)
		return isThere && (s.Idle || raises && s.Caught)
	})
}

// highestSeverity is what a finding may be at most by what it rests on: an error is wrong by itself.
func highestSeverity(rests string) check.Severity {
	if rests == onLine {
		return check.Error
	}
	return check.Warning
}

// How many findings of a kind have to be judged right before it is more than a remark. Certainty alone is not enough: of sixteen kinds that
// nobody had judged, nine began with a finding that was not worth a change.
const (
	// Where it rests on the line alone.
	fewRight = 2
	// Where it rests on more; and before one of them that was doubted is let pass.
	enoughRight = 5
)

// LimitSeverity is the severity that a finding in a file of a kind is told with, which would have another by itself: what was judged too
// seldom, or was not nearly always right, is a remark, whatever harm it would do.
func (d Description) LimitSeverity(alone check.Severity, in Kind) check.Severity {
	needed := enoughRight
	if d.Rests == onLine {
		needed = fewRight
	}
	right := 10*d.Right >= 9*d.Judged || d.Right >= enoughRight && d.Judged == d.Right+1
	switch {
	case right && d.Right >= needed:
		return alone
	case d.Documented && in == Compose:
		return lower(alone, check.Warning)
	}
	return check.Info
}

// lower is the lower of two severities.
func lower(a, b check.Severity) check.Severity {
	order := []check.Severity{check.Info, check.Warning, check.Error}
	return order[min(slices.Index(order, a), slices.Index(order, b))]
}
