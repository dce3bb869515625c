package cli

import (
	"time"

	"gpuard/internal/core/policy"
)

// filling records the flags that configuration files set.
type filling struct {
	Used  []policy.Default
	Ruled string        // how a rule limits this command, in one line; "" no rule
	Most  time.Duration // limit of a lease with --keep-while, which has no --timeout; 0: no limit
}

// Lines describes the defaults and the rule that were applied.
func (f *filling) Lines() []string {
	var lines []string
	for _, d := range f.Used {
		lines = append(lines, d.String())
	}
	if f.Ruled != "" {
		lines = append(lines, f.Ruled)
	}
	return lines
}
