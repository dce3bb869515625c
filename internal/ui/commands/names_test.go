package commands

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpuard/internal/core/option"
	"gpuard/internal/ui/cli"
)

// TestNames: core/option has the names of all commands and of all flags, which texts of core name in braces, and no
// other.
func TestNames(t *testing.T) {
	t.Parallel()
	commands, flags := map[string]bool{}, map[string]bool{}
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		if path, isBelow := strings.CutPrefix(c.CommandPath(), "gpuard "); isBelow {
			commands[path] = true
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if _, isOption := option.FindOption(f.Name); !isOption {
				flags[f.Name] = true
			}
		})
		for _, below := range c.Commands() {
			look(below)
		}
	}
	look(cli.CommandTree(CommandTable()))

	for _, list := range []struct {
		what      string
		has, want []string
	}{
		{"commandNames", option.CommandNames(), slices.Sorted(maps.Keys(commands))},
		{"flagNames", option.FlagNames(), slices.Sorted(maps.Keys(flags))},
	} {
		slices.Sort(list.has)
		if !slices.Equal(list.has, list.want) {
			t.Errorf("%s of core/option has\n%q, and there are\n%q", list.what, list.has, list.want)
		}
	}
}
