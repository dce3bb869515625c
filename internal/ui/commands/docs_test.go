package commands

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"gpuard/internal/app/exit"
	"gpuard/internal/core/visible"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/console"
	"gpuard/internal/ui/manual"
	"gpuard/test/golden"
)

// reference is the folder of the pages that are made from the code.
const reference = "../../../docs/reference"

const made = "<!-- made from the code: make docs -->\n\n"

// TestDocs compares the reference pages with the code; -update writes them (make docs).
func TestDocs(t *testing.T) {
	pages := map[string]string{
		"commands.md":        commandsPage(),
		"compatibility.md":   compatibilityPage(),
		"exit-codes.md":      exitCodesPage(),
		"explain-notes.md":   notesPage(),
		"json.md":            jsonPage(t),
		"gpuard-yaml.md":     projectPage(),
		"gpuard.schema.json": projectSchema(),
		"config.md":          configPage(),
		"handoff.md":         handoffPage(),
		"config.schema.json": configSchema(),
	}
	maps.Copy(pages, findingsPages())
	for name, want := range pages {
		path := filepath.Join(reference, name)
		if *golden.Update {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		have, err := os.ReadFile(path)
		if err != nil {
			t.Errorf("%v: make docs writes it", err)
			continue
		}
		if diff := golden.FirstDifference(string(have), want); diff != "" {
			t.Errorf("docs/reference/%s is stale, make docs writes it again: %s", name, diff)
		}
	}
}

// shownCommands returns the commands of the help, with defaults that do not depend on this machine.
func shownCommands() []*cobra.Command {
	root := cli.CommandTree(CommandTable())
	list := []*cobra.Command{root}
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() || c.Name() == "help" {
			list = append(list, c)
		}
	}
	return list
}

// withTargets are the commands with those of export, which have as many flags as run.
func withTargets() (list []*cobra.Command) {
	for _, c := range shownCommands() {
		list = append(list, c)
		if c.Name() == "export" {
			list = append(list, c.Commands()...)
		}
	}
	return list
}

func commandsPage() string {
	var b strings.Builder
	b.WriteString("# Commands\n\n" + made)
	for _, c := range withTargets() {
		if c.Parent() != nil && c.Parent().Name() == "export" && c.Name() != "slurm" { // whose flags the others have
			continue
		}
		fmt.Fprintf(&b, "## %s\n\n```text\n%s```\n\n", c.CommandPath(), manual.HelpText(c, manual.HelpWidth))
	}
	b.WriteString("See also: [exit codes](exit-codes.md), [JSON answers](json.md), [notes of explain](explain-notes.md), [findings of doctor and lint](findings/README.md).\n")
	return b.String()
}

func exitCodesPage() string {
	var b strings.Builder
	b.WriteString("# Exit codes\n\n" + made)
	b.WriteString("`run` exits with the command's exit code, or dies by the signal that killed the command. gpuard's own codes, of `run` and `reserve`:\n\n")
	b.WriteString("| code | meaning |\n| ---: | --- |\n")
	for _, e := range exit.Codes() {
		fmt.Fprintf(&b, "| %d | %s |\n", e.Code, e.Meaning)
	}
	b.WriteString("\n`verify` says by its code what was found, not how the command ended:\n\n| code | meaning |\n| ---: | --- |\n")
	for _, e := range exit.VerifyCodes() {
		fmt.Fprintf(&b, "| %d | %s |\n", e.Code, e.Meaning)
	}
	b.WriteString("\n`doctor` and `lint` end with 1 when a finding is a warning or an error, with 0 when none is, and with 2 when used wrongly; `lint` also with 2 when it could not read or fix a file.\n")
	b.WriteString("\n`export` ends with 0 when the text is written, and with the codes of `run` from 122 on: 122 when the engine cannot be told something that was asked for.\n")
	b.WriteString("\n`sweep` ends with 0 when all runs ended with 0 and with 1 when some failed; its own failures have the codes of `run` from 122 on, and a signal that ends it is passed on.\n")
	b.WriteString("\n`submit` ends with 0 when the job is on the disk. `wait` ends with the code of the first job that failed, with 128 and the number of a signal, or with 1 for a job that was cancelled, lost or not run; the failures of both have the codes of `run` from 122 on.\n")
	b.WriteString(`
Every other command:

| code | meaning |
| ---: | --- |
| 0 | done; for ` + "`explain`" + ` also when nothing is visible |
| 1 | refused, failed, or no device can be read; for ` + "`explain`" + ` also when the driver ignores CUDA_VISIBLE_DEVICES and shows every GPU |
| 2 | used wrongly |
`)
	return b.String()
}

func notesPage() string {
	var b strings.Builder
	b.WriteString("# Notes of explain\n\n" + made)
	b.WriteString("`gpuard explain --json` gives each surprise a code. Codes are added and never renamed.\n\n| code | meaning |\n| --- | --- |\n")
	for _, n := range visible.Codes() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", n.Code, n.Text)
	}
	return b.String()
}

// TestHelp: every command has an example, and its help fits 80 columns.
func TestHelp(t *testing.T) {
	for _, c := range withTargets() {
		text := manual.HelpText(c, manual.HelpWidth)
		for line := range strings.Lines(text) {
			if n := console.CellWidth(strings.TrimSuffix(line, "\n")); n > manual.HelpWidth {
				t.Errorf("%s --help has a line of %d columns: %s", c.CommandPath(), n, line)
			}
		}
		if !strings.Contains(c.Example, c.CommandPath()) {
			t.Errorf("%s has no example of itself", c.CommandPath())
		}
		if strings.Contains(text, "help for "+c.Name()) {
			t.Errorf("%s --help has words that are not ours", c.CommandPath())
		}
	}
}

// TestHelpNarrow: below 80 columns no line is too wide, and no word is broken or lost.
func TestHelpNarrow(t *testing.T) {
	for _, c := range withTargets() {
		words := strings.Fields(manual.HelpText(c, manual.HelpWidth))
		slices.Sort(words)
		for _, width := range []int{40, 50, 60, 72} {
			text := manual.HelpText(c, width)
			got := strings.Fields(text)
			slices.Sort(got)
			if !slices.Equal(got, words) {
				t.Errorf("%s --help at %d columns has other words:\n%s", c.CommandPath(), width, text)
			}
			for line := range strings.Lines(text) {
				if n := console.CellWidth(strings.TrimSuffix(line, "\n")); n > width {
					t.Errorf("%s --help at %d columns has a line of %d: %s", c.CommandPath(), width, n, line)
				}
			}
		}
	}
}
