package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/ui/cmdtable"
	"gpuard/internal/ui/flagset"
)

// Forever is the value of --wait without a time.
const Forever = "forever"

// JoinWait rewrites "--wait 10m" as "--wait=10m". The time is optional, so the parser does not read one after a space.
// The words of the command that run starts are not changed.
func JoinWait(root *cobra.Command, args []string) []string {
	if !slices.Contains(args, "--wait") {
		return args
	}

	cmd, _, err := root.Find(args)
	if err != nil || cmd.Flags().Lookup("wait") == nil {
		return args
	}

	named := false
	for i := 0; i+1 < len(args); i++ {
		word := args[i]
		name, _, given := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		flag := cmd.Flag(name)
		switch {
		case word == "--":
			return args
		case word == "--wait":
			next := args[i+1]

			// No flag, but a mistake in a time.
			negative := len(next) > 1 && next[0] == '-' && next[1] >= '0' && next[1] <= '9'
			if _, err := flagset.ReadDuration("wait", next); err == nil || next == Forever || negative {
				return slices.Concat(args[:i], []string{word + "=" + args[i+1]}, args[i+2:])
			}
		case !strings.HasPrefix(word, "-") && !named && word == cmd.Name():
			named = true
		case !strings.HasPrefix(word, "-") && cmdtable.KindOf(cmd) == cmdtable.KindBecome:
			return args
		case strings.HasPrefix(word, "--") && flag != nil && flag.NoOptDefVal == "" && !given:
			// Its value.
			i++
		}
	}

	return args
}
