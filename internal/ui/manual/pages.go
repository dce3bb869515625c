package manual

import (
	"cmp"
	"fmt"
	"strconv"
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
		pages = append(pages, Page{PageName(cmd) + ".1", commandPage(cmd, version)})
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

func commandPage(cmd *cobra.Command, version string) string {
	// Joins the flags of the parents to the command's own.
	cmd.LocalFlags()
	r := beginPage(PageName(cmd), 1, version, cmd.Short)
	r.section("SYNOPSIS")
	r.WriteString(".B " + EscapeRoff(cmd.UseLine()) + "\n")
	if cmd.HasAvailableSubCommands() {
		r.WriteString(".br\n.B " + EscapeRoff(cmd.CommandPath()) + " COMMAND [flags]\n")
	}

	r.section("DESCRIPTION")
	r.WriteString(strings.ReplaceAll(linesOf(strings.TrimSpace(cmp.Or(cmd.Long, cmd.Short+"."))), "\n\n", "\n.PP\n"))

	if below := CommandsWithPages(cmd)[1:]; len(below) > 0 {
		r.section("COMMANDS")
		for _, c := range below {
			if c.Parent() == cmd {
				r.term(".BR", PageName(c)+" (1)", c.Short)
			}
		}
	}

	r.section("OPTIONS")
	groups := GroupedFlags(cmd)
	for _, g := range groups {
		if len(groups) > 1 {
			r.WriteString(".SS " + EscapeRoff(g.title) + "\n")
		}
		for _, f := range g.Flags {
			r.term(".B", strings.TrimSpace(FlagName(f)), FlagWords(f))
		}
	}

	if cmd.Example != "" {
		r.section("EXAMPLES")
		r.WriteString(".nf\n" + exampleLines(cmd.Example) + ".fi\n")
	}

	r.section("EXIT STATUS")
	lead, codes := exitCodes(cmd)
	r.WriteString(linesOf(lead))
	for _, e := range codes {
		r.term(".B", strconv.Itoa(e.Code), e.Meaning)
	}

	for _, t := range manTerms(cmd) {
		if t.name == "" {
			r.section(t.words)
		} else if !cmd.HasParent() || t.here {
			r.term(".I", t.name, t.words)
		}
	}

	return r.String() + relatedCommands(cmd)
}

// FormatPage is the page of section 5 about a configuration file.
func FormatPage(f setup.Format, version string) Page {
	r := beginPage(f.Name, 5, version, f.Short)
	r.section("DESCRIPTION")
	r.WriteString(EscapeRoff(f.Text) + "\n")
	r.section("KEYS")
	for _, table := range f.Tables {
		r.WriteString(".SS " + EscapeRoff(table.Title) + "\n")
		for _, k := range table.Keys {
			fmt.Fprintf(r, ".TP\n.BR %s \": %s\"\n%s\n", EscapeRoff(k.Name), EscapeRoff(k.Takes), EscapeRoff(k.Text))
		}
	}

	r.section("EXAMPLES")
	r.WriteString(".nf\n" + linesOf(f.Example) + ".fi\n")
	r.section("FILES")
	r.WriteString(EscapeRoff(f.Places) + "\n.SH SEE ALSO\n.BR gpuard (1),\n.BR gpuard\\-run (1),\n.BR gpuard\\-up (1)\n")

	return Page{f.Name + ".5", r.String()}
}

// roff is a page while it is written.
type roff struct{ strings.Builder }

func (r *roff) section(title string) { r.WriteString(".SH " + title + "\n") }

// term writes a name, by a macro that sets its font, and what it means.
func (r *roff) term(macro, name, words string) {
	r.WriteString(".TP\n" + macro + " " + EscapeRoff(name) + "\n" + EscapeRoff(words) + "\n")
}

func beginPage(name string, section int, version, short string) *roff {
	r := &roff{}
	r.WriteString(PageHead(name, section, version))
	r.section("NAME")
	r.WriteString(EscapeRoff(name) + " \\- " + EscapeRoff(short) + "\n")

	return r
}

// PageHead is the beginning of a page. It has no date, so that each build of a version has the same pages. It turns off
// justification and hyphenation, so that a search finds a flag.
func PageHead(name string, section int, version string) string {
	return fmt.Sprintf(".TH %s %d \"\" \"gpuard %s\" \"gpuard manual\"\n.ad l\n.nh\n", strings.ToUpper(EscapeRoff(name)), section, EscapeRoff(version))
}

// linesOf writes each line of a text.
func linesOf(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(EscapeRoff(strings.TrimRight(line, " \n")) + "\n")
	}
	return b.String()
}

// exampleLines moves the remark after a command to the next line: next to it the line would be too wide.
func exampleLines(text string) string {
	lines := ""
	for line := range strings.Lines(text) {
		code, words, _ := strings.Cut(strings.TrimPrefix(strings.TrimRight(line, "\n"), "  "), "  ")
		lines += code + "\n"
		if words = strings.TrimSpace(words); words != "" {
			lines += "    " + words + "\n"
		}
	}
	return linesOf(lines)
}

// relatedCommands lists the program, its commands, and the other commands of the same group.
func relatedCommands(cmd *cobra.Command) string {
	var names []string
	for _, c := range CommandsWithPages(cmd.Root()) {
		if c != cmd && (c == cmd.Root() || c.Parent() == cmd.Root() || c.Parent() == cmd.Parent()) {
			names = append(names, ".BR "+EscapeRoff(PageName(c))+" (1)")
		}
	}
	return ".SH SEE ALSO\n" + strings.Join(names, ",\n") + "\n"
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
