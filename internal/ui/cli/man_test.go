package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/app"
	"gpuard/internal/app/setup"
	"gpuard/internal/gate"
	"gpuard/internal/text/project"
)

// TestManual: every command has a page that man shows without a warning, and everything that its help says is on it.
func TestManual(t *testing.T) {
	gate.Need(t, "man")
	pages := map[string]string{}
	for _, p := range Manual("v1.2.3") {
		if pages[p.Name] != "" {
			t.Errorf("there are two pages %s", p.Name)
		}
		pages[p.Name] = rendered(t, p)
	}
	for _, cmd := range withPages((&Program{App: &app.App{}}).root()) {
		name := pageOf(cmd) + ".1"
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
		for _, said := range []string{cmd.Short, cmd.Long, cmd.Example, "gpuard v1.2.3"} {
			if missing := firstMissing(words, said); missing != "" {
				t.Errorf("%s lacks %q", name, missing)
			}
		}
		for _, g := range groupedFlags(cmd) {
			for _, f := range g.flags {
				if missing := firstMissing(words, strings.TrimSpace(flagName(f))+" "+flagWords(f)); missing != "" {
					t.Errorf("%s lacks %q of --%s", name, missing, f.Name)
				}
			}
		}
	}
}

// TestManualOfFormats: every key of a file that people write stands on its page, with what it takes and means.
func TestManualOfFormats(t *testing.T) {
	gate.Need(t, "man")
	for _, f := range setup.Formats() {
		if _, wrong := project.Read([]byte(f.Example), f.Name); f.Name == "gpuard.yaml" && len(wrong) > 0 {
			t.Errorf("the example of %s: %v", f.Name, wrong)
		}
		words := strings.Join(strings.Fields(rendered(t, formatPage(f, "v1.2.3"))), " ")
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

// rendered is a page as a wide terminal shows it: wide, so that no line of ours is broken.
func rendered(t *testing.T, p Page) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), p.Name)
	if err := os.WriteFile(file, []byte(p.Text), 0o644); err != nil {
		t.Fatal(err)
	}
	// groff comes with man, whose own --warnings keeps some of groff's to itself.
	if out, err := exec.Command("groff", "-man", "-ww", "-z", "-Tutf8", "-K", "utf8", file).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("groff %s: %v %s", p.Name, err, out)
	}
	cmd := exec.Command("man", "-l", file)
	cmd.Env = append(os.Environ(), "MANWIDTH=200", "LC_ALL=C.UTF-8")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("man -l %s: %v %s", p.Name, err, out)
	}
	return string(out)
}

// firstMissing is the first line of said that does not stand in words, whatever the breaks between words.
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

// TestRoff: whatever a text has in it, the page shows just that.
func TestRoff(t *testing.T) {
	gate.Need(t, "man")
	for _, text := range []string{`.SH a`, `'br`, `a\fBb\e \n(.x \*(aq`, "`a' ^ ~ -- \"b\"", `printf '%s\n' "$x"`, `. . .`, "'", ".", `\`, "┌ … é"} {
		page := rendered(t, Page{"t.1", manHead("T", 1, "x") + ".SH NAME\nt \\- x\n.SH OPTIONS\n.TP\n.B " + roff(text) + "\n" + roff(text) + "\n.PP\n.nf\n" + roff(text) + "\n.fi\n"})
		if n := strings.Count(page, text); n != 3 {
			t.Errorf("%q stands %d times, not 3, on\n%s", text, n, page)
		}
	}
}
