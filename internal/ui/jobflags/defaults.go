package jobflags

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/core/diagnostic"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
	"gpuard/internal/core/policy"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/flagset"
)

// SweepConflicts lists the pairs of flags that cannot be given together.
func SweepConflicts() []flagset.Conflict {
	return []flagset.Conflict{
		{One: "over", Other: "csv", Why: "the runs can come from only one source"}, {One: "over", Other: "commands", Why: "the runs can come from only one source"}, {One: "csv", Other: "commands", Why: "the runs can come from only one source"},
		{One: "jobs-per-gpu", Other: "share", Why: "both say how much of a GPU a run has"},
		{One: "jobs-per-gpu", Other: "mem", Why: "a share already reserves memory"},
		{One: "jobs-per-gpu", Other: "mig", Why: "a MIG slice is a share already"},
		{One: "jobs-per-gpu", Other: "cpu", Why: "--cpu asks for no GPU at all"},
	}
}

// FillDefaults sets flags that were not given from the configuration files, the nearest first. It skips defaults that
// contradict a flag that was given. If a rule limits the run time it sets --timeout.
func FillDefaults(p *cli.Program, cmd *cobra.Command) error {
	config, err := p.Host.Config()
	if err != nil {
		return err
	}

	for _, d := range config.MergeDefaults() {
		f := cmd.Flags().Lookup(d.Flag)
		if f == nil || f.Changed || isContradicted(p, cmd, d) {
			continue
		}

		value := d.Value
		if value == "" {
			value = f.NoOptDefVal
			if f.Value.Type() == "bool" {
				value = "true"
			}
		}

		if err := cmd.Flags().Set(d.Flag, value); err != nil {
			return badDefault(d, flagset.ExplainError(cmd, err))
		}

		p.Defaults.Used = append(p.Defaults.Used, d)
	}

	f := cmd.Flags().Lookup("timeout")
	if resume := cmd.Flags().Lookup("resume"); f == nil || f.Changed || flagset.IsSet(cmd, "cpu") || resume != nil && resume.Changed || len(config) == 0 {
		return nil
	}

	limits, err := p.Host.Limits()
	if r := limits.ShortestTime(); err == nil && r != nil {
		p.Defaults.Longest = r.Time
		if !flagset.IsSet(cmd, "keep-while") {
			err = f.Value.Set(r.Time.String())
			f.Changed = true
		}
		p.Defaults.Rule = fmt.Sprintf("policy: %s ends it after %s", r, pick.DurationText(r.Time))
	}

	return err
}

// isContradicted reports whether a default conflicts with the flags that were given.
func isContradicted(p *cli.Program, cmd *cobra.Command, d policy.Default) bool {
	for _, c := range slices.Concat(flagset.OptionConflicts(), SweepConflicts(), []flagset.Conflict{{One: "wait", Other: "dry-run"},
		{One: "gpus", Other: "device"}, {One: "model", Other: "device"}, {One: "exclude", Other: "device"}, {One: "min-compute", Other: "device"}, {One: "gpus", Other: "nproc"},
		{One: "wait", Other: "fallback"}, {One: "no-wait", Other: "fallback"}, {One: "quota", Other: "require-quota"}, {One: "ids", Other: "quota"}, {One: "ids", Other: "require-quota"}, {One: "isolate", Other: "require-isolation"}, {One: "ids", Other: "isolate"}, {One: "ids", Other: "require-isolation"},
	}) {
		if c.One == d.Flag && flagset.IsSet(cmd, c.Other) || c.Other == d.Flag && flagset.IsSet(cmd, c.One) {
			return true
		}
	}
	given := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return flagset.IsSet(cmd, name) })
	}
	switch d.Flag {
	case "timeout", "drift":
		return given("keep-while")
	case "quota":
		return !given("share") || d.Value == string(job.MPS) && given("keep-while")
	case "require-quota":
		return !given("share")
	case "wait", "no-wait", "fallback":
		return cmd.Name() == "submit" || cmd.Name() == "reserve" && !given("shell") && strings.Contains(d.Value, "cpu")
	case "expect", "stop-signal":
		return !given(superviseFlags()...)
	case "grace":
		return !given(append(superviseFlags(), "torchrun", "ranks")...)
	case "retry":
		// A service has restart instead.
		return given("keep-while") || cmd.Name() == "service"
	}

	return false
}

// LocateDefault gives an error about a default the file, line and column of that default.
func LocateDefault(p *cli.Program, err error) error {
	if err == nil {
		return nil
	}

	first := len(err.Error())
	var of *policy.Default
	for i, d := range p.Defaults.Used {
		// The flag that the error names first.
		if at := strings.Index(err.Error()+" ", "--"+d.Flag); at >= 0 && at < first {
			first, of = at, &p.Defaults.Used[i]
		}
	}

	if of == nil {
		return err
	}

	return badDefault(*of, err)
}

func badDefault(d policy.Default, err error) error {
	return &diagnostic.Many{File: d.At.File, List: []diagnostic.One{{Line: d.At.Line, Column: d.At.Column, Text: "in defaults: " + flagset.FlagsToKeys(err.Error())}}}
}

// SayRule reports how a rule limits the command. A dry run has it in its notes.
func SayRule(p *cli.Program, dry bool) {
	if p.Defaults.Rule != "" && !dry {
		p.Host.Say(p.Defaults.Rule)
	}
}

// WarnConfig reports a bad configuration file in commands that only read.
func WarnConfig(p *cli.Program) {
	if text := p.Host.ConfigProblem(); text != "" {
		p.Host.Say(text)
	}
}
