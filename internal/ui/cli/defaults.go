package cli

import (
	"time"

	"gpuard/internal/core/policy"
)

// defaults are the flags that configuration files set.
type defaults struct {
	Used    []policy.Default
	Rule    string        // how a rule limits this command, in one line; "" no rule
	Longest time.Duration // limit of a lease with --keep-while, which has no --timeout; 0: no limit
}

// Lines describes the defaults and the rule that were applied.
func (f *defaults) Lines() []string {
	var lines []string
	for _, d := range f.Used {
		lines = append(lines, d.String())
	}
	if f.Rule != "" {
		lines = append(lines, f.Rule)
	}
	return lines
}
