package commands

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"gpuard/internal/app/setup"
	"gpuard/internal/gate"
	"gpuard/internal/text/projectyaml"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/manual"
)

// TestManual: every command has a page that groff renders without a warning, with all of the command's help.
func TestManual(t *testing.T) {
	t.Parallel()
	gate.Need(t, "man")
	pages := map[string]string{}
	for _, p := range manual.ManPages(cli.CommandTree(CommandTable()), "v1.2.3") {
		if pages[p.Name] != "" {
			t.Errorf("there are two pages %s", p.Name)
		}
		pages[p.Name] = rendered(t, p)
	}
	checkSections(t, pages)
	for _, cmd := range manual.CommandsWithPages(cli.CommandTree(CommandTable())) {
		name := manual.PageName(cmd) + ".1"
		text := pages[name]
		if text == "" {
			t.Errorf("there is no page %s", name)
			continue
		}
		for _, title := range []string{"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "EXIT STATUS", "ENVIRONMENT", "FILES", "SEE ALSO"} {
			if !strings.Contains(text, "\n"+title+"\n") {
				t.Errorf("%s has no section %s", name, title)
			}
		}
		words := strings.Join(strings.Fields(text), " ")
		said := []string{name[:len(name)-2] + " - " + cmd.Short, cmd.UseLine(), cmd.Long, cmd.Example, "gpuard v1.2.3"}
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				said = append(said, cmd.CommandPath()+" COMMAND [flags]", manual.PageName(c)+"(1) "+c.Short)
			}
		}
		for _, said := range said {
			if missing := firstMissing(words, said); missing != "" {
				t.Errorf("%s lacks %q", name, missing)
			}
		}
		for _, g := range manual.GroupedFlags(cmd) {
			for _, f := range g.Flags {
				if missing := firstMissing(words, strings.TrimSpace(manual.FlagName(f))+" "+manual.FlagWords(f)); missing != "" {
					t.Errorf("%s lacks %q of --%s", name, missing, f.Name)
				}
			}
		}
	}
}

// TestManualOfFormats: the page of a configuration file has every key, with its values and meaning.
func TestManualOfFormats(t *testing.T) {
	gate.Need(t, "man")
	for _, f := range setup.Formats() {
		if _, wrong := projectyaml.Read([]byte(f.Example), f.Name); f.Name == "gpuard.yaml" && len(wrong) > 0 {
			t.Errorf("the example of %s: %v", f.Name, wrong)
		}
		words := strings.Join(strings.Fields(rendered(t, manual.FormatPage(f, "v1.2.3"))), " ")
		for _, said := range []string{f.Short, f.Text, f.Places, f.Example} {
			if missing := firstMissing(words, said); missing != "" {
				t.Errorf("the page of %s lacks %q", f.Name, missing)
			}
		}
		for _, table := range f.Tables {
			if len(table.Keys) == 0 {
				t.Errorf("%s: there is no key %s", f.Name, table.Title)
			}
			for _, k := range table.Keys {
				if missing := firstMissing(words, k.Name+": "+k.Takes+" "+k.Text); missing != "" {
					t.Errorf("the page of %s lacks %q", f.Name, missing)
				}
			}
		}
	}
}

// checkSections: each page lists the exit codes, variables, files and related commands of its own command.
func checkSections(t *testing.T, pages map[string]string) {
	t.Helper()
	if !strings.Contains(pages["gpuard-run.1"], "\n\n       Exit codes of gpuard itself") {
		t.Errorf("there is no space between two paragraphs:\n%s", pages["gpuard-run.1"])
	}
	for _, c := range []struct{ page, section, has, lacks string }{
		{"gpuard-run.1", "EXIT STATUS", "That of the command", "no device can be read"},
		{"gpuard-run.1", "EXIT STATUS", "120 ", ""},
		{"gpuard-run.1", "OPTIONS", "Which device ", ""},
		{"gpuard-drain.1", "OPTIONS", "--help ", "Which device "},
		{"gpuard-reserve.1", "EXIT STATUS", "0 done 120 ", "That of"},
		{"gpuard-env.1", "EXIT STATUS", "0 done 1 refused", "120 "},
		{"gpuard-export-slurm.1", "EXIT STATUS", "0 the text is written 122 ", "121 "},
		{"gpuard-verify.1", "EXIT STATUS", "123 ", "120 "},
		{"gpuard-sweep.1", "EXIT STATUS", "0 all runs ended with 0 1 some runs failed 122 ", "121 "},
		{"gpuard-doctor.1", "EXIT STATUS", "1 a finding is a warning", "120 "},
		{"gpuard-lint.1", "EXIT STATUS", "0 no finding is a warning", "120 "},
		{"gpuard-explain.1", "EXIT STATUS", "0 done, also when nothing is visible", "120 "},
		{"gpuard-ps.1", "EXIT STATUS", "0 done 1 refused", "120 "},
		{"gpuard.1", "ENVIRONMENT", "GPUARD_TRACE ", ""},
		{"gpuard-run.1", "ENVIRONMENT", "GPUARD_TRACE ", ""},
		{"gpuard-ps.1", "ENVIRONMENT", "GPUARD_STATE ", "GPUARD_TRACE"},
		{"gpuard-ps.1", "FILES", "gpuard.yaml(5)", ""},
		{"gpuard-run.1", "FILES", "/run/gpuard ", "gpuard.yaml(5)"},
		{"gpuard-run.1", "SEE ALSO", "gpuard(1), ", "gpuard-setup-conda"},
		{"gpuard-setup-conda.1", "SEE ALSO", "gpuard-run(1), gpuard-serve(1), gpuard-setup(1), gpuard-setup-cdi(1), gpuard-setup-desktop(1), ", "gpuard-setup-conda"},
		{"gpuard.1", "SEE ALSO", "gpuard-run(1)", "gpuard-setup-conda"},
	} {
		_, text, _ := strings.Cut(pages[c.page], "\n"+c.section+"\n")
		if next := regexp.MustCompile(`(?m)^[A-Za-z]`).FindStringIndex(text); next != nil { // a title, or the foot of the page
			text = text[:next[0]]
		}
		text = strings.Join(strings.Fields(text), " ") + " "
		if !strings.Contains(text, c.has) || c.lacks != "" && strings.Contains(text, c.lacks) {
			t.Errorf("%s, %s: %q; want %q and not %q", c.page, c.section, text, c.has, c.lacks)
		}
	}
}

// rendered is a page as man shows it, 200 columns wide so that no line is broken. It calls groff, as man does, because
// man --warnings hides some of groff's warnings.
func rendered(t *testing.T, p manual.Page) string {
	t.Helper()
	cmd := exec.Command("groff", "-man", "-ww", "-Tutf8", "-K", "utf8", "-rLL=200n", "-P-cbou")
	var out, complaints strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(p.Text), &out, &complaints
	if err := cmd.Run(); err != nil || complaints.Len() > 0 {
		t.Errorf("groff %s: %v %s", p.Name, err, complaints.String())
	}
	return out.String()
}

// firstMissing is the first line of said that is not in words. White space does not count.
func firstMissing(words, said string) string {
	for line := range strings.Lines(said) {
		for part := range strings.SplitSeq(strings.TrimSpace(line), "  ") {
			if part = strings.Join(strings.Fields(part), " "); !strings.Contains(words, part) {
				return part
			}
		}
	}
	return ""
}

// TestRoff: the page shows any text unchanged.
func TestRoff(t *testing.T) {
	gate.Need(t, "man")
	for _, text := range []string{`.SH a`, `'br`, `a\fBb\e \n(.x \*(aq`, "`a' ^ ~ -- \"b\"", `printf '%s\n' "$x"`, `. . .`, "'", ".", `\`, "┌ … é"} {
		page := rendered(t, manual.Page{Name: "t.1", Text: manual.PageHead("T", 1, "x") + ".SH NAME\nt \\- x\n.SH OPTIONS\n.TP\n.B " + manual.EscapeRoff(text) + "\n" + manual.EscapeRoff(text) + "\n.PP\n.nf\n" + manual.EscapeRoff(text) + "\n.fi\n"})
		if n := strings.Count(page, text); n != 3 {
			t.Errorf("%q is %d times, not 3, on\n%s", text, n, page)
		}
	}
}
