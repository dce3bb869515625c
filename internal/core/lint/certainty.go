package lint

import (
	"slices"

	"gpuard/internal/core/check"
)

// What has to be so, beside the line itself, for a finding to be right; the others, which the rules' descriptions name,
// are another file, the version of a driver or a library, and the intention. The severity is no higher than that is
// certain: an error is wrong by itself, in a file that something runs.
const (
	// Nothing else: any run of it fails, or uses another device.
	onLine = "the line"
	// Which of them reads it.
	onShell = "the shell"
)

// bound lowers the severity of a finding to what is certain. A page is copied by a person who reads, and nothing runs
// from it: what is found there is a remark, but for the few kinds that whoever copies it cannot see.
func (f File) bound(one Finding, about Description) check.Severity {
	most := check.Error
	if one.rests != onLine {
		most = check.Warning
	}
	if f.Kind == Markdown {
		most = check.Info
		if about.Unseen {
			most = check.Warning
		}
	}

	return lower(one.Severity, most)
}

// lower is the lower of two severities.
func lower(a, b check.Severity) check.Severity {
	order := []check.Severity{check.Info, check.Warning, check.Error}
	return order[min(slices.Index(order, a), slices.Index(order, b))]
}
