package commands

import (
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
		what string
		has  []string
		want map[string]bool
	}{
		{"commandNames", option.CommandNames(), commands},
		{"flagNames", option.FlagNames(), flags},
	} {
		for _, name := range list.has {
			if !list.want[name] {
				t.Errorf("%s of core/option has %q, which is gone", list.what, name)
			}
			delete(list.want, name)
		}
		for name := range list.want {
			t.Errorf("%s of core/option lacks %q", list.what, name)
		}
	}
}
