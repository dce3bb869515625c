package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// helpWidth is what every terminal shows.
const helpWidth = 80

// helpWidth of this program's output: narrow telephones get narrow help.
func (p *Program) helpWidth() int { return min(helpWidth, p.term(p.Out).Width) }

// helpText is what --help prints and, at 80 columns, what the reference pages are made of.
func helpText(cmd *cobra.Command, width int) string {
	cmd.LocalFlags() // joins the flags of the parents to the command's own
	var b strings.Builder
	about := cmd.Long
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
				fmt.Fprintf(&b, "  %s %s\n", pad(c.Name(), cmd.NamePadding(), false, ""), c.Short)
			}
		}
	}
	text := squeeze(b.String(), width) + flagText(cmd, width)
	if cmd.HasAvailableSubCommands() {
		text += squeeze(fmt.Sprintf("\n%s COMMAND --help says more.\n", cmd.CommandPath()), width)
	}
	return text
}

// squeeze breaks what is too wide for the width between words: texts that were broken by hand are joined first, and what
// stands in a second column comes below the first.
func squeeze(text string, width int) string {
	if width <= 0 || width >= helpWidth {
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
			out = append(out, wrap(line, width)...)
			continue
		}
		if cells(line) <= width {
			out = append(out, line)
			continue
		}
		first, second, _ := strings.Cut(bare, "  ")
		out = append(out, hang(first, indent, width)...)
		if second = strings.TrimSpace(second); second != "" {
			out = append(out, hang(second, indent+4, width)...)
		}
	}
	return strings.Join(out, "\n")
}

// hang wraps behind an indent; the lines after the first have two blanks more.
func hang(text string, indent, width int) (lines []string) {
	for i, part := range wrap(text, max(width-indent-2, 1)) {
		if i > 0 {
			part = "  " + part
		}
		lines = append(lines, strings.Repeat(" ", indent)+part)
	}
	return lines
}

// helpCommand is "gpuard help COMMAND"; cobra's own answers an unknown command with success.
func (p *Program) helpCommand() *cobra.Command {
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
				return unknownCommand(cmd, args)
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), helpText(about, p.helpWidth()))
			return err
		},
	}
}
