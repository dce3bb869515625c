package lint_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/app/linter"
	"gpuard/internal/core/check"
	"gpuard/internal/core/lint"
	"gpuard/internal/core/visible"
	"gpuard/internal/gate"
)

// TestDescriptions: what a rule needs to be shown and looked up.
func TestDescriptions(t *testing.T) {
	form := regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)+$`)
	seen := map[string]bool{}
	for _, r := range lint.Descriptions() {
		switch {
		case !form.MatchString(r.Code):
			t.Errorf("%q is not lower-case words with - between them", r.Code)
		case seen[r.Code]:
			t.Errorf("%s: two rules", r.Code)
		case r.Title == "" || r.Text == "" || len(r.From) == 0:
			t.Errorf("%s: a title, a text and a source, please", r.Code)
		case !slices.Contains([]check.Severity{check.Info, check.Warning, check.Error}, r.Severity):
			t.Errorf("%s: severity %q", r.Code, r.Severity)
		case !slices.Contains(strings.Split("the line,the run,another file,the shell,the version,the intention", ","), r.Rests):
			t.Errorf("%s rests on %q", r.Code, r.Rests)
		case r.Severity == check.Error && r.Rests != "the line" && (r.Rests != "the run" || r.Right < 5):
			t.Errorf("%s is %s and rests on %s: an error is wrong by itself", r.Code, r.Severity, r.Rests)
		case len(r.Bad) == 0 || len(r.Good) == 0:
			t.Errorf("%s: %d bad and %d good examples, at least one of each", r.Code, len(r.Bad), len(r.Good))
		}
		seen[r.Code] = true
	}
}

// TestSeverities: what ends gpuard lint with an error. A code comes in here with what people said of its findings, and leaves where
// they were doubted; an error rests on nothing beside the line.
func TestSeverities(t *testing.T) {
	want := map[check.Severity]string{
		check.Error: `assignment-as-program backslash-before-blank deepspeed-ignores-mask gpus-list-unquoted list-cut-at-blank
			mask-duplicate mask-range more-processes-than-gpus no-break-space`,
		check.Warning: `capabilities-missing count-beside-device-ids device-ids-not-strings gpu-request-misplaced mask-quotes`,
	}
	got := map[check.Severity][]string{}
	for _, d := range lint.Descriptions() {
		got[d.Severity] = append(got[d.Severity], d.Code)
		doubted := 10*d.Right < 9*d.Judged && (d.Right < 5 || d.Judged > d.Right+1)
		if d.Right > d.Judged || d.Severity != check.Info && !d.Documented && (doubted || d.Right < 2) || d.Severity == check.Error && d.Rests != "the line" {
			t.Errorf("%s is %s; it rests on %s, and %d of %d were right", d.Code, d.Severity, d.Rests, d.Right, d.Judged)
		}
	}
	for _, severity := range []check.Severity{check.Error, check.Warning} {
		slices.Sort(got[severity])
		if wanted := strings.Fields(want[severity]); !slices.Equal(got[severity], wanted) {
			t.Errorf("%s:\n got %q\nwant %q", severity, got[severity], wanted)
		}
	}
}

// TestExamples: each bad example of a rule has a finding of it, as a file that somebody has, and each good one has none of
// any rule.
func TestExamples(t *testing.T) {
	gate.Need(t, "python3")
	root := t.TempDir()
	code := map[string]string{} // of a bad example, by its folder
	for _, r := range lint.Descriptions() {
		for i, e := range r.Bad {
			code[lay(t, root, fmt.Sprintf("%s-bad%d", r.Code, i+1), e)] = r.Code
		}
		for i, e := range r.Good {
			lay(t, root, fmt.Sprintf("%s-good%d", r.Code, i+1), e)
		}
	}

	report, err := linter.RunLint(t.Context(), linter.Options{Paths: []string{root}, Docs: true, Env: visible.Env(os.Environ()), Preview: true})
	if err != nil || len(report.Problems)+len(report.Skipped) > 0 {
		t.Fatalf("%v, %v, %v", err, report.Problems, report.Skipped)
	}
	found := map[string][]string{}
	for _, m := range report.Findings {
		below, err := filepath.Rel(root, m.Path)
		if err != nil {
			t.Fatal(err)
		}
		folder, _, _ := strings.Cut(below, string(filepath.Separator))
		found[folder] = append(found[folder], m.Code)
		if code[folder] == "" {
			t.Errorf("%s, line %d has a finding: %s: %s", below, m.Line, m.Code, m.Seen)
		}
	}
	for folder, want := range code {
		if !slices.Contains(found[folder], want) {
			t.Errorf("%s has no finding of its rule, but %q", folder, found[folder])
		}
	}
}

// lay writes an example below a repository of its own, and returns the name of that.
func lay(t *testing.T, root, folder string, e lint.Example) string {
	t.Helper()
	path := filepath.Join(root, folder, e.Name)
	err := os.MkdirAll(filepath.Join(root, folder, ".git"), 0o755)
	if err != nil {
		t.Fatal(err)
	}
	err = os.MkdirAll(filepath.Dir(path), 0o755)
	if err != nil {
		t.Fatal(err)
	}
	err = os.WriteFile(path, []byte(e.Text), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	return folder
}
