package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestHelpGroups: each flag is listed once, grouped help has no flag without a heading, and each name in the groups is
// a flag.
func TestHelpGroups(t *testing.T) {
	flags := map[string]bool{}
	grouped := 0
	for _, c := range withTargets() {
		text := helpText(c, helpWidth)
		heads := strings.Count(text, "\nWhich device:\n")
		grouped += heads
		if heads == 1 && strings.Contains(text, "\nFlags:\n") {
			t.Errorf("%s --help has flags without a group:\n%s", c.CommandPath(), text)
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			flags[f.Name] = true
			if n := strings.Count(text, "\n"+flagName(f)); n != map[bool]int{false: 1, true: 0}[f.Hidden] {
				t.Errorf("%s --help lists --%s %d times", c.CommandPath(), f.Name, n)
			}
		})
	}
	if grouped != 12 {
		t.Errorf("%d commands have grouped flags, not run, docker, podman, sweep, submit, hold, reserve, env and the four of export", grouped)
	}
	var names []string
	for _, g := range flagGroups() {
		names = append(names, g.names...)
	}
	slices.Sort(names)
	for i, name := range names {
		if !flags[name] || i > 0 && names[i-1] == name {
			t.Errorf("--%s in the groups is no flag, or is listed twice", name)
		}
	}
}

// TestHelpValues: an optional value is in brackets, with its value when left out.
func TestHelpValues(t *testing.T) {
	i := slices.IndexFunc(commandTree(), func(c *cobra.Command) bool { return c.Name() == "run" })
	text := helpText(commandTree()[i], helpWidth)
	words := strings.Join(strings.Fields(text), " ")
	for _, want := range []string{"--drift[=KINDS] ", "(alone: all)", "--verify[=TIME[,stop]] ", "(alone: 30s)", "--wait[=TIME] ", "(alone: forever)", "--grace TIME ", "(default 10s)", "-q, --quiet "} {
		if !strings.Contains(words, want) {
			t.Errorf("run --help lacks %q:\n%s", want, text)
		}
	}
}

// TestShortHelp: --help fits in 60 lines and names every flag; what it leaves out is in gpuard help COMMAND.
func TestShortHelp(t *testing.T) {
	for _, c := range withTargets() {
		text := shortHelp(c, helpWidth)
		most := 60
		if !c.HasParent() { // the list of the commands
			most = 66
		}
		if n := strings.Count(text, "\n"); n > most {
			t.Errorf("%s --help has %d lines", c.CommandPath(), n)
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && !strings.Contains(text, "--"+f.Name) {
				t.Errorf("%s --help does not name --%s", c.CommandPath(), f.Name)
			}
		})
		if text != helpText(c, helpWidth) && !strings.HasSuffix(strings.Join(strings.Fields(text), " "), "gpuard help "+strings.TrimPrefix(c.CommandPath(), "gpuard ")) {
			t.Errorf("%s --help does not say where the rest is:\n%s", c.CommandPath(), text)
		}
	}
}
