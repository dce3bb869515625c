package checkcmd

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/check"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/console"
	"gpuard/test/golden"
)

// sick is a diagnosis with a finding of every severity.
func sick() check.Diagnosis {
	return check.Diagnosis{
		Verdict: check.Verdict{Runs: new(false), Summary: "GPU programs will not run here: the driver's two halves differ", Next: "sudo reboot"},
		Findings: []check.Finding{
			{Code: "driver-loaded", Severity: check.OK, Seen: "the driver 550.54.15 is loaded"},
			{Code: "persistence", Severity: check.Info, Seen: "persistence mode is off on GPU 0", Why: "It starts slowly.", Do: "sudo nvidia-smi -pm 1"},
			{Code: "persistence", Severity: check.Info, Seen: "persistence mode is off on GPU 1", Why: "It starts slowly.", Do: "sudo nvidia-smi -pm 1"},
			{Code: "cdi", Severity: check.Unknown, Seen: "cannot see CDI files: not looked: nobody asked"},
			{Code: "kernel-log", Severity: check.Unknown, Seen: "cannot see the kernel's log: permission denied", Do: "sudo gpuard doctor"},
			{Code: "xid", Severity: check.Unknown, Seen: "cannot see the driver's errors: permission denied"},
			{Code: "throttle", Severity: check.Warning, Seen: "GPU 1 is slowed down by heat", Why: "It runs at half its speed.", Do: "look at the fans"},
			{Code: "library-version", Severity: check.Error, Seen: "the library is 555.42.06 and the kernel module 550.54.15", Why: "Each call fails.", Do: "sudo reboot"},
		},
	}
}

func TestDoctorView(t *testing.T) {
	want := `GPU programs will not run here: the driver's two halves differ. Next: sudo reboot

error: the library is 555.42.06 and the kernel module 550.54.15
       (library-version)
  Each call fails.
  do: sudo reboot

warning: GPU 1 is slowed down by heat (throttle)
  It runs at half its speed.
  do: look at the fans

unknown: cannot see the kernel's log, the driver's errors: permission denied
         (kernel-log, xid)
  do: sudo gpuard doctor

info: persistence mode is off on GPU 0
info: persistence mode is off on GPU 1 (persistence)
  It starts slowly.
  do: sudo nvidia-smi -pm 1

1 error, 1 warning, 3 unknown, 2 info, 1 ok; --all shows the rest;
what a code means: gpuard doctor --why CODE
`
	var b strings.Builder
	console.Draw(&b, console.Term{Width: 80}, func(page *console.Page) { doctorView(page, sick(), false) })
	if diff := golden.FirstDifference(b.String(), want); diff != "" {
		t.Errorf("%s\n%s", diff, b.String())
	}
	b.Reset()
	console.Draw(&b, console.Term{Width: 80}, func(page *console.Page) { doctorView(page, sick(), true) })
	for _, part := range []string{"ok: the driver 550.54.15 is loaded (driver-loaded)", "not looked: nobody asked (cdi)"} {
		if !strings.Contains(b.String(), part) {
			t.Errorf("--all does not show %q:\n%s", part, b.String())
		}
	}
	if strings.Contains(b.String(), "--all") {
		t.Errorf("--all is advised by --all:\n%s", b.String())
	}
}

// TestDoctorNarrow: on a terminal no text is lost and no line is too wide; in a file the first line has the whole
// verdict.
func TestDoctorNarrow(t *testing.T) {
	for _, width := range []int{30, 40, 60} {
		var b strings.Builder
		console.Draw(&b, console.Term{Width: width, TTY: true}, func(page *console.Page) { doctorView(page, sick(), true) })
		for line := range strings.Lines(b.String()) {
			if n := console.CellWidth(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("a line of %d columns on %d: %s", n, width, line)
			}
		}
		text := strings.Join(strings.Fields(b.String()), "")
		for _, f := range sick().Findings {
			if !strings.Contains(text, strings.Join(strings.Fields(f.Seen), "")) {
				t.Errorf("%d columns do not show %q:\n%s", width, f.Seen, b.String())
			}
		}
		b.Reset()
		console.Draw(&b, console.Term{Width: width}, func(page *console.Page) { doctorView(page, sick(), true) })
		if first, _, _ := strings.Cut(b.String(), "\n"); !strings.HasSuffix(first, "Next: sudo reboot") {
			t.Errorf("the first line of a file is %q", first)
		}
	}
}

// TestAdvice: text is wrapped, but a command is never broken, because users copy it.
func TestAdvice(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"sudo reboot", "  do: sudo reboot\n"},
		{"/home/alice/.venv/bin/python -m pip install --force-reinstall torch==2.9.0 -i https://download.pytorch.org/whl/cu128",
			"  do: /home/alice/.venv/bin/python -m pip install --force-reinstall torch==2.9.0 -i https://download.pytorch.org/whl/cu128\n"},
		{"install a driver of at least 580 and reboot, or take a wheel for CUDA 12: pip install --force-reinstall torch -i https://x.org/whl/cu128",
			"  do: install a driver of at least 580 and\n      reboot, or take a wheel for CUDA 12:\n      pip install --force-reinstall torch -i https://x.org/whl/cu128\n"},
	} {
		p := console.Page{Term: console.Term{Width: 45}}
		writeAdvice(&p, console.Bold.Span("  do: "), console.Normal, c.text)
		if got := p.Out.String(); got != c.want {
			t.Errorf("%q is shown as\n%s", c.text, got)
		}
		p = console.Page{}
		writeAdvice(&p, console.Bold.Span("  do: "), console.Normal, c.text)
		if got := p.Out.String(); got != "  do: "+c.text+"\n" {
			t.Errorf("without a limit %q is shown as\n%s", c.text, got)
		}
	}
}

// TestDoctorColor: colours are written only if the terminal has them.
func TestDoctorColor(t *testing.T) {
	for _, color := range []bool{false, true} {
		var b strings.Builder
		console.Draw(&b, console.Term{Width: 80, TTY: true, Color: color}, func(page *console.Page) { doctorView(page, sick(), false) })
		if strings.Contains(b.String(), "\x1b[31m") != color {
			t.Errorf("color %t: %q", color, b.String())
		}
	}
}

// TestJoined: checks that failed for the same reason are one finding; --all lists each.
func TestJoined(t *testing.T) {
	var d check.Diagnosis
	for _, what := range []string{"one", "two", "three", "four", "five"} {
		d.Findings = append(d.Findings, check.Finding{Code: "code-" + what, Severity: check.Unknown, Seen: "cannot see " + what + ": no driver"})
	}
	d.Findings = append(d.Findings, check.Finding{Code: "code-six", Severity: check.Unknown, Seen: "cannot see six: permission denied"})
	for all, want := range map[bool][]string{
		false: {"unknown: cannot see one, two, and 3 others: no driver (code-one, code-two, ...)\n", "unknown: cannot see six: permission denied (code-six)\n"},
		true:  {"unknown: cannot see one: no driver (code-one)\n", "unknown: cannot see five: no driver (code-five)\n"},
	} {
		var b strings.Builder
		console.Draw(&b, console.Term{}, func(page *console.Page) { doctorView(page, d, all) })
		for _, line := range want {
			if !strings.Contains(b.String(), line) {
				t.Errorf("all %t: no line %q in\n%s", all, line, b.String())
			}
		}
	}
}

func TestSentence(t *testing.T) {
	for in, want := range map[string]string{
		"programs hang or fail":              "Programs hang or fail.",
		"Each call fails.":                   "Each call fails.",
		"torch.cuda.is_available() is False": "torch.cuda.is_available() is False.",
		"cuDNN 9 is needed":                  "cuDNN 9 is needed.",
		"is that what you want?":             "Is that what you want?",
	} {
		if got := asSentence(in); got != want {
			t.Errorf("%q becomes %q", in, got)
		}
	}
}

// TestExampleCodes: the codes in the help and in the guide exist.
func TestExampleCodes(t *testing.T) {
	guide, err := os.ReadFile("../../../../docs/how-to/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`doctor --why ([a-z0-9-]+)`).FindAllStringSubmatch(NewDoctorCommand((&cli.Program{Host: &machine.Host{}})).Example+string(guide), -1)
	if len(named) < 2 {
		t.Fatalf("only %q were found", named)
	}
	for _, n := range named {
		if !slices.ContainsFunc(FindingPages(), func(p check.Page) bool { return p.Code == n[1] }) {
			t.Errorf("there is no code %s", n[1])
		}
	}
}

func TestFindingPage(t *testing.T) {
	about := check.Page{Code: "some-code", Title: "what it means", Text: "One line\nand its end.\n\n- a point\n- another\n\n```sh\nsudo reboot\n```\n\nThe last.", From: []string{"https://example.org/a/page/whose/address/is/longer/than/a/line/of/this/terminal/is/wide", "nvml.h"}}
	want := `some-code: what it means

One line and its end.

- a point
- another

    sudo reboot

The last.

from: https://example.org/a/page/whose/address/is/longer/than/a/line/of/this/terminal/is/wide
from: nvml.h
`
	var b strings.Builder
	console.Draw(&b, console.Term{Width: 80}, func(page *console.Page) { findingPageView(page, about) })
	if diff := golden.FirstDifference(b.String(), want); diff != "" {
		t.Errorf("%s\n%s", diff, b.String())
	}
}

// TestLikely: a misspelt code suggests the right one; part of a code suggests the codes with that part, the nearest
// first.
func TestLikely(t *testing.T) {
	for code, want := range map[string]string{
		"mask-rang": "did you mean mask-range?",
		"xid-eror":  "did you mean xid-errors?",
		"gone-late": "did you mean late-assignment or late-cell?",
		"zzz":       "gpuard doctor and gpuard lint show the code of a finding in parentheses after it",
	} {
		if got := nearestCodes(code, FindingPages()); got != want {
			t.Errorf("%s: %s", code, got)
		}
	}
	if got := nearestCodes("driver-something-library", FindingPages()); !strings.HasPrefix(got, "did you mean driver-library or ") {
		t.Error(got)
	}
}

// TestTallyWhole: the command at the end of the last line is never broken.
func TestTallyWhole(t *testing.T) {
	for width := 40; width < 100; width++ {
		var b strings.Builder
		console.Draw(&b, console.Term{Width: width, TTY: true}, func(page *console.Page) { doctorView(page, sick(), false) })
		if !strings.Contains(b.String(), "gpuard doctor --why CODE\n") {
			t.Fatalf("%d columns:\n%s", width, b.String())
		}
	}
}

// TestTally: the last line counts hidden findings, and explains codes if one is shown.
func TestTally(t *testing.T) {
	fine, blind := check.Finding{Code: "a", Severity: check.OK, Seen: "well"}, check.Finding{Code: "b", Severity: check.Unknown, Seen: "cannot see it: not looked: nobody asked"}
	bad := check.Finding{Code: "c", Severity: check.Error, Seen: "broken"}
	for want, findings := range map[string][]check.Finding{
		"2 ok; --all shows the rest": {fine, fine},
		"1 error, 1 unknown; --all shows the rest; what a code means: gpuard doctor --why CODE": {bad, blind},
		"1 error; what a code means: gpuard doctor --why CODE":                                  {bad},
	} {
		if got := tallyText(findings, false); got != want {
			t.Errorf("%q and not %q", got, want)
		}
	}
}

// TestAlike: findings with a different remedy are not grouped.
func TestAlike(t *testing.T) {
	one := check.Finding{Code: "a", Severity: check.Error, Seen: "x", Why: "w", Do: "mend x"}
	same, other := one, one
	same.Seen, other.Do = "y", "mend z"
	if got := groupAlike([]check.Finding{one, other, same}); len(got) != 2 || len(got[0]) != 2 || got[1][0] != other {
		t.Errorf("%+v", got)
	}
}
