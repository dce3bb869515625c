package manual

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/app/setup"
)

// Page is one page of the manual, as man(7) source.
type Page struct {
	// File name: gpuard-run.1.
	Name string
	Text string
}

// ManPages returns all pages: gpuard(1), one for each command of root, and those of the configuration files in section
// 5.
func ManPages(root *cobra.Command, version string) (pages []Page) {
	for _, cmd := range CommandsWithPages(root) {
		pages = append(pages, Page{PageName(cmd) + ".1", manText(cmd, version)})
	}
	for _, f := range setup.Formats() {
		pages = append(pages, FormatPage(f, version))
	}
	return pages
}

// CommandsWithPages returns cmd and its subcommands, without hidden ones.
func CommandsWithPages(cmd *cobra.Command) []*cobra.Command {
	list := []*cobra.Command{cmd}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			list = append(list, CommandsWithPages(c)...)
		}
	}
	return list
}

// PageName is "gpuard-run" for gpuard run.
func PageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

func manText(cmd *cobra.Command, version string) string {
	// Joins the flags of the parents to the command's own.
	cmd.LocalFlags()
	var b strings.Builder
	section := func(title string) { fmt.Fprintf(&b, ".SH %s\n", title) }
	b.WriteString(PageHead(PageName(cmd), 1, version))
	section("NAME")
	fmt.Fprintf(&b, "%s \\- %s\n", EscapeRoff(PageName(cmd)), EscapeRoff(cmd.Short))
	section("SYNOPSIS")
	b.WriteString(".B " + EscapeRoff(cmd.UseLine()) + "\n")
	if cmd.HasAvailableSubCommands() {
		b.WriteString(".br\n.B " + EscapeRoff(cmd.CommandPath()) + " COMMAND [flags]\n")
	}

	section("DESCRIPTION")
	about := cmd.Long
	if about == "" {
		about = cmd.Short + "."
	}

	b.WriteString(manParagraphs(about))
	if cmd.HasAvailableSubCommands() {
		section("COMMANDS")
		for _, c := range CommandsWithPages(cmd)[1:] {
			if c.Parent() == cmd {
				fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s\n", EscapeRoff(PageName(c)), EscapeRoff(c.Short))
			}
		}
	}

	section("OPTIONS")
	b.WriteString(manFlags(cmd))
	if cmd.Example != "" {
		section("EXAMPLES")
		b.WriteString(manExamples(cmd.Example))
	}

	section("EXIT STATUS")
	b.WriteString(manExits(cmd))
	section("ENVIRONMENT")
	b.WriteString(manTerms(manVariables(), cmd))
	section("FILES")
	b.WriteString(manTerms(manFiles(), cmd))
	section("SEE ALSO")
	b.WriteString(manNeighbours(cmd))

	return b.String()
}

// PageHead is the beginning of a page. It has no date, so that each build of a version has the same pages. It turns off
// justification and hyphenation, so that a search finds a flag.
func PageHead(name string, section int, version string) string {
	return fmt.Sprintf(".TH %s %d \"\" \"gpuard %s\" \"gpuard manual\"\n.ad l\n.nh\n", strings.ToUpper(EscapeRoff(name)), section, EscapeRoff(version))
}

// manParagraphs joins lines that were broken by hand.
func manParagraphs(text string) string {
	var b strings.Builder
	for i, part := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		for line := range strings.Lines(part) {
			b.WriteString(EscapeRoff(strings.TrimRight(line, " \n")) + "\n")
		}
	}
	return b.String()
}

// manFlags lists the flags with the headings and the order of the help.
func manFlags(cmd *cobra.Command) string {
	var b strings.Builder
	groups := GroupedFlags(cmd)
	for _, g := range groups {
		if len(groups) > 1 {
			b.WriteString(".SS " + EscapeRoff(g.title) + "\n")
		}
		for _, f := range g.Flags {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", EscapeRoff(strings.TrimSpace(FlagName(f))), EscapeRoff(FlagWords(f)))
		}
	}

	return b.String()
}

// manExamples moves the remark after a command to the next line: next to it the line would be too wide.
func manExamples(text string) string {
	var b strings.Builder
	b.WriteString(".nf\n")

	for line := range strings.Lines(text) {
		line = strings.TrimPrefix(strings.TrimRight(line, "\n"), "  ")
		code, words, _ := strings.Cut(line, "  ")
		b.WriteString(EscapeRoff(code) + "\n")
		words = strings.TrimSpace(words)
		if words != "" {
			b.WriteString("    " + EscapeRoff(words) + "\n")
		}
	}

	return b.String() + ".fi\n"
}

// manNeighbours lists the program, its commands, and the other commands of the same group.
func manNeighbours(cmd *cobra.Command) string {
	var names []string
	for _, c := range CommandsWithPages(cmd.Root()) {
		if c != cmd && (c == cmd.Root() || c.Parent() == cmd.Root() || c.Parent() == cmd.Parent()) {
			names = append(names, ".BR "+EscapeRoff(PageName(c))+" (1)")
		}
	}
	return strings.Join(names, ",\n") + "\n"
}

// EscapeRoff escapes text so that roff neither takes it for a request nor replaces characters that users copy from the
// page.
func EscapeRoff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, `"`, `\(dq`).Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}
