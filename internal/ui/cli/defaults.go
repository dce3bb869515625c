package cli

import (
	"slices"
	"time"

	"gpuard/internal/core/policy"
)

// defaults are what configuration files and rules set.
type defaults struct {
	Used []policy.Default
	// How a rule limits this command, in one line; "" no rule.
	Rule string
	// Limit of a lease with --keep-while, which has no --timeout; 0: no limit.
	Longest time.Duration
}

// HasDefault reports whether a flag has its value from a default.
func (d *defaults) HasDefault(flag string) bool {
	return slices.ContainsFunc(d.Used, func(used policy.Default) bool { return used.Flag == flag })
}

// Lines describes the defaults and the rule that were applied.
func (d *defaults) Lines() []string {
	var lines []string
	for _, used := range d.Used {
		lines = append(lines, used.String())
	}
	if d.Rule != "" {
		lines = append(lines, d.Rule)
	}

	return lines
}
