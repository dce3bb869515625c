package commands

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpuard/internal/ui/cli"
)

// TestLists: every flag that takes a list reads it in one way, and refuses a line break: pflag's own reader forgets what
// follows it.
func TestLists(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		for _, below := range c.Commands() {
			look(below)
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() != "stringSlice" {
				return
			}
			found[f.Name] = true
			if err := f.Value.Set("0\n1"); err == nil || !strings.Contains(err.Error(), "there is a line break or another control character") {
				t.Errorf("%s --%s: %v", c.Name(), f.Name, err)
			}
			list := f.Value.(pflag.SliceValue)
			if err := f.Value.Set("a,b"); err != nil || !slices.Equal(list.GetSlice(), []string{"a", "b"}) {
				t.Errorf("%s --%s: %q, %v", c.Name(), f.Name, list.GetSlice(), err)
			}
			if err := list.Append("c"); err != nil || f.Value.String() != "[a,b,c]" {
				t.Errorf("%s --%s: %s, %v", c.Name(), f.Name, f.Value, err)
			}
		})
	}
	look(cli.CommandTree(CommandTable()))
	for _, name := range []string{"device", "exclude", "fallback", "arms", "policy", "name"} {
		if !found[name] {
			t.Errorf("there is no list --%s", name)
		}
	}
}
