package commands

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/cmdtable"
	"gpuard/internal/ui/console"
	"gpuard/internal/ui/flagset"
	"gpuard/internal/ui/manual"
)

// TestHelpGroups: each flag is listed once, grouped help has no flag without a heading, and each name in the groups is
// a flag.
func TestHelpGroups(t *testing.T) {
	flags := map[string]bool{}
	grouped := 0
	for _, c := range withTargets() {
		if !c.HasParent() { // its flags are those of status
			continue
		}
		text := manual.HelpText(c, manual.HelpWidth)
		heads := strings.Count(text, "\nWhich device:\n")
		grouped += heads
		if heads == 1 && strings.Contains(text, "\nFlags:\n") {
			t.Errorf("%s --help has flags without a group:\n%s", c.CommandPath(), text)
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			flags[f.Name] = true
			name := regexp.MustCompile(`\n` + regexp.QuoteMeta(strings.TrimRight(manual.FlagName(f), " ")) + `[^\w-]`)
			if n := len(name.FindAllString(text, -1)); n != map[bool]int{false: 1, true: 0}[f.Hidden] {
				t.Errorf("%s --help lists --%s %d times", c.CommandPath(), f.Name, n)
			}
		})
	}
	if grouped != 11 {
		t.Errorf("%d commands have grouped flags, not run, docker, podman, sweep, submit, reserve, env and the four of export", grouped)
	}
	var names []string
	for _, g := range flagset.FlagGroups() {
		names = append(names, g.Names...)
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
	i := slices.IndexFunc(shownCommands(), func(c *cobra.Command) bool { return c.Name() == "run" })
	text := manual.HelpText(shownCommands()[i], manual.HelpWidth)
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
		text := manual.ShortHelp(c, manual.HelpWidth)
		if n := strings.Count(text, "\n"); n > manual.MaxHelpLines {
			t.Errorf("%s --help has %d lines", c.CommandPath(), n)
		}
		if !c.HasParent() {
			continue
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && !strings.Contains(text, "--"+f.Name) {
				t.Errorf("%s --help does not name --%s", c.CommandPath(), f.Name)
			}
		})
		if text != manual.HelpText(c, manual.HelpWidth) && !strings.HasSuffix(strings.Join(strings.Fields(text), " "), "gpuard help "+strings.TrimPrefix(c.CommandPath(), "gpuard ")) {
			t.Errorf("%s --help does not say where the rest is:\n%s", c.CommandPath(), text)
		}
	}
}

// TestRootHelp: gpuard --help fits on a screen, and has each command of a user once, under the heading of its group.
func TestRootHelp(t *testing.T) {
	root := cli.CommandTree(CommandTable())
	text := manual.RootHelp(root, manual.HelpWidth)
	if n := strings.Count(text, "\n"); n > 40 {
		t.Errorf("%d lines:\n%s", n, text)
	}
	var groups []cmdtable.Group
	for _, row := range CommandTable() {
		cmd, _, err := root.Find([]string{row.Name})
		if err != nil || cmd.Name() != row.Name || cmd.Hidden != (row.Group == "") {
			t.Errorf("%s is %v, hidden %v, in the group %q: %v", row.Name, cmd.Name(), cmd.Hidden, row.Group, err)
			continue
		}
		want := 1
		if row.Group == "" || row.On != "" {
			want = 0
		}
		if row.On != "" && !strings.Contains(text, row.Name) {
			t.Errorf("%s is not named", row.Name)
		}
		if n := strings.Count(text, console.Pad(row.Name, manual.NameColumn, false, "")+"  "+cmd.Short+"\n"); n != want {
			t.Errorf("%s is there %d times with %q, want %d", row.Name, n, cmd.Short, want)
		}
		if row.Group != "" && console.CellWidth(cmd.Short) > manual.ShortColumn {
			t.Errorf("%s: %q is longer than %d columns", row.Name, cmd.Short, manual.ShortColumn)
		}
		if i := slices.Index(groups, row.Group); i >= 0 && i < len(groups)-1 {
			t.Errorf("%s: the group %q is in two places", row.Name, row.Group)
		} else if i < 0 {
			groups = append(groups, row.Group)
		}
	}
	for line := range strings.Lines(manual.RootHelp(root, 40)) {
		if console.CellWidth(strings.TrimSuffix(line, "\n")) > 40 {
			t.Errorf("wider than 40 columns: %q", line)
		}
	}
}
