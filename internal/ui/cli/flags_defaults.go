package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gpuard/internal/core/diagnostic"
	"gpuard/internal/core/job"
	"gpuard/internal/core/pick"
	"gpuard/internal/core/policy"
)

// filling records the flags that configuration files set.
type filling struct {
	used  []policy.Default
	ruled string        // how a rule limits this command, in one line; "" no rule
	most  time.Duration // limit of a lease with --keep-while, which has no --timeout; 0: no limit
}

// fill sets flags that were not given from the configuration files, the nearest first. It skips defaults that
// contradict a flag that was given. If a rule limits the run time it sets --timeout.
func (p *Program) fill(cmd *cobra.Command) error {
	config, err := p.Host.Config()
	if err != nil {
		return err
	}
	for _, d := range config.Defaults() {
		f := cmd.Flags().Lookup(d.Flag)
		if f == nil || f.Changed || p.contradicts(cmd, d) {
			continue
		}
		value := d.Value
		if value == "" {
			if value = f.NoOptDefVal; f.Value.Type() == "bool" {
				value = "true"
			}
		}
		if err := cmd.Flags().Set(d.Flag, value); err != nil {
			return badDefault(d, flagError(cmd, err))
		}
		p.filling.used = append(p.filling.used, d)
	}
	f := cmd.Flags().Lookup("timeout")
	if resume := cmd.Flags().Lookup("resume"); f == nil || f.Changed || isSet(cmd, "cpu") || resume != nil && resume.Changed || len(config) == 0 {
		return nil
	}
	limits, err := p.Host.Limits()
	if r := limits.Longest(); err == nil && r != nil {
		if p.filling.most = r.Time; !isSet(cmd, "keep-while") {
			err = f.Value.Set(r.Time.String())
			f.Changed = true
		}
		p.filling.ruled = fmt.Sprintf("policy: %s ends it after %s", r, pick.DurationText(r.Time))
	}
	return err
}

// isSet reports whether the command has the flag, and it was given and is not false.
func isSet(cmd *cobra.Command, name string) bool {
	f := cmd.Flags().Lookup(name)
	return f != nil && f.Changed && f.Value.String() != "false"
}

// contradicts reports whether a default conflicts with the flags that were given.
func (p *Program) contradicts(cmd *cobra.Command, d policy.Default) bool {
	for _, c := range slices.Concat(optionConflicts(), sweepConflicts(), []conflict{{one: "wait", other: "dry-run"},
		{one: "gpus", other: "device"}, {one: "model", other: "device"}, {one: "exclude", other: "device"}, {one: "min-compute", other: "device"}, {one: "gpus", other: "nproc"},
		{one: "wait", other: "fallback"}, {one: "no-wait", other: "fallback"}, {one: "quota", other: "require-quota"}, {one: "ids", other: "quota"}, {one: "ids", other: "require-quota"},
	}) {
		if c.one == d.Flag && isSet(cmd, c.other) || c.other == d.Flag && isSet(cmd, c.one) {
			return true
		}
	}
	given := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return isSet(cmd, name) })
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
	case "retry": // a service has restart instead
		return given("keep-while") || strings.HasPrefix(cmd.Name(), "project-")
	}
	return false
}

// atDefault gives an error about a default the file, line and column of that default.
func (p *Program) atDefault(err error) error {
	if err == nil {
		return nil
	}
	first := len(err.Error())
	var of *policy.Default
	for i, d := range p.filling.used { // the flag that the error names first
		if at := strings.Index(err.Error()+" ", "--"+d.Flag); at >= 0 && at < first {
			first, of = at, &p.filling.used[i]
		}
	}
	if of == nil {
		return err
	}
	return badDefault(*of, err)
}

func badDefault(d policy.Default, err error) error {
	return &diagnostic.Many{File: d.At.File, List: []diagnostic.One{{Line: d.At.Line, Column: d.At.Column, Text: "in defaults: " + asKeys(err.Error())}}}
}

// lines describes the defaults and the rule that were applied.
func (f *filling) lines() []string {
	var lines []string
	for _, d := range f.used {
		lines = append(lines, d.String())
	}
	if f.ruled != "" {
		lines = append(lines, f.ruled)
	}
	return lines
}

// sayRule reports how a rule limits the command. A dry run has it in its notes.
func (p *Program) sayRule(dry bool) {
	if p.filling.ruled != "" && !dry {
		p.Host.Say(p.filling.ruled)
	}
}

// warnConfig reports a bad configuration file in commands that only read.
func (p *Program) warnConfig() {
	if text := p.Host.Unruly(); text != "" {
		p.Host.Say(text)
	}
}
