package flagset

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gpuard/internal/core/job"
)

// What a completion offers when its words do not fit.
const (
	NoFiles = cobra.ShellCompDirectiveNoFileComp
	Files   = cobra.ShellCompDirectiveDefault
)

// ReadDuration reads a time such as 90s, 10m, 24h or 7d.
func ReadDuration(flag, text string) (time.Duration, error) {
	d, err := job.ParseTime(text)
	if err == nil {
		return d, nil
	}
	if _, bare := strconv.ParseUint(text, 10, 32); bare == nil && strings.Trim(text, "0") != "" {
		return 0, fmt.Errorf("cannot read --%s %q: the unit is missing; write --%s=%ss for seconds, or --%s=%sm for minutes", flag, text, flag, text, flag, text)
	}

	return 0, fmt.Errorf("cannot read --%s %q: write a time, such as --%s=90s or --%s=10m", flag, text, flag, flag)
}

// EveryTwoSeconds is --watch alone, a compromise: drivers serialise queries, and users do not read faster.
const EveryTwoSeconds = "2s"

// IntervalArgument takes the only argument behind --watch for its time: --watch 1.
func IntervalArgument(watch *string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 && *watch == EveryTwoSeconds {
			*watch = args[0]
			return nil
		}
		return NoArguments(cmd, args)
	}
}

// ReadInterval reads --watch: a time, or a number of seconds.
func ReadInterval(text string) (time.Duration, error) {
	d, err := job.ParseTime(text)
	if seconds, number := strconv.ParseFloat(text, 64); number == nil {
		d, err = time.Duration(seconds*float64(time.Second)), nil
	}
	if err != nil || d < 100*time.Millisecond || d > 24*time.Hour {
		return 0, fmt.Errorf("cannot use --watch=%s: write the time between two views, from 0.1s to 1d, such as --watch=2s", text)
	}

	return d, nil
}

// IsSet reports whether the command has the flag, and it was given and is not false.
func IsSet(cmd *cobra.Command, name string) bool {
	f := cmd.Flags().Lookup(name)
	return f != nil && f.Changed && f.Value.String() != "false"
}
