// Package manual writes the texts that are made from the commands: the help, the pages of man(1), the completion of
// bash.
package manual

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpuard/internal/ui/cmdtable"
	"gpuard/internal/ui/console"
	"gpuard/internal/ui/flagset"
)

// HelpWidth is the width that every usual terminal has.
const HelpWidth = 80

// HelpText is the text of --help. At 80 columns it is also the text of the reference pages.
func HelpText(cmd *cobra.Command, width int) string {
	if !cmd.HasParent() {
		return RootHelp(cmd, width)
	}

	// Joins the flags of the parents to the command's own.
	cmd.LocalFlags()
	text := helpIntroduction(cmd, cmd.Long, width) + flagText(GroupedFlags(cmd), width)
	if cmd.HasAvailableSubCommands() {
		text += wrapNarrow(fmt.Sprintf("\n%s COMMAND --help says more.\n", cmd.CommandPath()), width)
	}

	return text
}

// sortedCommands are the commands in the order of the table.
func sortedCommands(root *cobra.Command) []*cobra.Command {
	return slices.SortedFunc(slices.Values(root.Commands()), func(a, b *cobra.Command) int {
		return cmp.Compare(a.Annotations[cmdtable.RowOrder], b.Annotations[cmdtable.RowOrder])
	})
}

// RootHelp is the text of gpuard --help: all commands in their groups.
func RootHelp(root *cobra.Command, width int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n%s\n", root.Long, root.Example)
	narrow, group := width > 0 && width < HelpWidth, cmdtable.Group("")
	if !narrow {
		b.WriteString("\n")
	}

	for _, cmd := range sortedCommands(root) {
		if cmd.Annotations[cmdtable.RowGroup] == "" || cmd.Annotations[cmdtable.RowOn] != "" {
			continue
		}

		head := ""
		if cmdtable.GroupOf(cmd) != group {
			group, head = cmdtable.GroupOf(cmd), string(cmdtable.GroupOf(cmd))
		}

		if narrow {
			// A group is a line of its own, and wrapNarrow breaks the others.
			if head != "" {
				b.WriteString("\n" + head + "\n")
			}
			head = ""
		} else {
			head = console.Pad(head, groupColumn, false, "")
		}

		fmt.Fprintf(&b, "  %s%s  %s\n", head, console.Pad(cmd.Name(), NameColumn, false, ""), cmd.Short)
	}

	b.WriteString("\ngpuard alone is gpuard status. No GPU? --machine demo. More: gpuard help COMMAND\n")

	return wrapNarrow(b.String(), width)
}

// Columns of gpuard --help, and what is left for the words about a command.
const (
	groupColumn = len(cmdtable.GroupAdmin) + 2
	NameColumn  = len("completion")
	ShortColumn = HelpWidth - 2 - groupColumn - NameColumn - 2
)

// MaxHelpLines is the number of lines from which --help is short.
const MaxHelpLines = 60

// ShortHelp is the text of --help where the whole text is long: the first paragraph, the flags that most callers need,
// and the names of the others.
func ShortHelp(cmd *cobra.Command, width int) string {
	if strings.Count(HelpText(cmd, HelpWidth), "\n") <= MaxHelpLines {
		return HelpText(cmd, width)
	}

	about, _, _ := strings.Cut(cmd.Long, "\n\n")
	var often []*pflag.Flag
	var others []string
	for _, g := range GroupedFlags(cmd) {
		for _, f := range g.Flags {
			if slices.Contains(commonFlags(cmd.Name()), f.Name) {
				often = append(often, f)
			} else {
				others = append(others, "--"+f.Name)
			}
		}
	}

	text := helpIntroduction(cmd, about, width) + flagText([]FlagsBelow{{"Flags", often}}, width)
	more := fmt.Sprintf("The full help, with the other flags (%s): %s", strings.Join(others, ", "), strings.Replace(cmd.CommandPath(), " ", " help ", 1))

	return text + "\n" + strings.Join(console.Wrap(more, cmp.Or(width, HelpWidth)), "\n") + "\n"
}

// helpIntroduction is the part of the help above the flags.
func helpIntroduction(cmd *cobra.Command, about string, width int) string {
	var b strings.Builder
	if about == "" {
		about = cmd.Short + "."
	}

	fmt.Fprintf(&b, "%s\n\nUsage:\n  %s\n", about, cmd.UseLine())
	commands := cmd.Commands()
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s COMMAND [flags]\n", cmd.CommandPath())
	}

	if cmd.Example != "" {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}

	if cmd.HasAvailableSubCommands() {
		b.WriteString("\nCommands:\n")
		for _, c := range commands {
			if c.IsAvailableCommand() || c.Name() == "help" {
				fmt.Fprintf(&b, "  %s %s\n", console.Pad(c.Name(), cmd.NamePadding(), false, ""), c.Short)
			}
		}
	}

	return wrapNarrow(b.String(), width)
}

// wrapNarrow wraps text for a terminal below 80 columns. It first joins paragraphs that were broken by hand, and moves
// a second column below the first.
func wrapNarrow(text string, width int) string {
	if width <= 0 || width >= HelpWidth {
		return text
	}

	var out []string
	lines := strings.Split(text, "\n")
	for len(lines) > 0 {
		line := strings.TrimRight(lines[0], " ")
		lines = lines[1:]
		bare := strings.TrimLeft(line, " ")
		indent := min(len(line)-len(bare), width/3)
		if indent == 0 {
			for line != "" && len(lines) > 0 && lines[0] != "" && lines[0][0] != ' ' {
				line, lines = line+" "+lines[0], lines[1:]
			}
			out = append(out, console.Wrap(line, width)...)
			continue
		}

		if console.CellWidth(line) <= width {
			out = append(out, line)
			continue
		}

		first, second, _ := strings.Cut(bare, "  ")
		out = append(out, wrapHanging(first, indent, width)...)
		second = strings.TrimSpace(second)
		if second != "" {
			out = append(out, wrapHanging(second, indent+4, width)...)
		}
	}

	return strings.Join(out, "\n")
}

// wrapHanging wraps text with an indent. The lines after the first have two more spaces.
func wrapHanging(text string, indent, width int) (lines []string) {
	for i, part := range console.Wrap(text, max(width-indent-2, 1)) {
		if i > 0 {
			part = "  " + part
		}
		lines = append(lines, strings.Repeat(" ", indent)+part)
	}
	return lines
}

// HelpCommand is "gpuard help COMMAND". Cobra's own exits with 0 for an unknown command.
func HelpCommand(width func() int) *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Show the help of a command",
		Example: "  gpuard help run",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
			for _, c := range cmd.Root().Commands() {
				if len(args) == 0 && c.IsAvailableCommand() {
					names = append(names, c.Name()+"\t"+c.Short)
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return flagset.UnknownCommand(cmd, args)
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), HelpText(about, width()))

			return err
		},
	}
}
