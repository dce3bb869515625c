package checkcmd

import (
	"strings"
	"testing"

	"gpuard/internal/app/linter"
	"gpuard/internal/core/check"
	"gpuard/internal/core/lint"
	"gpuard/internal/ui/console"
	"gpuard/test/golden"
)

func mistakes() linter.Report {
	return linter.Report{
		Files: 4, Silenced: 1,
		Findings: []linter.LocatedFinding{
			{Path: "jobs/train.sh", Kind: lint.Shell, Line: 2, Column: 29, EndLine: 2, EndColumn: 32,
				Finding: check.Finding{Code: "mask-range", Severity: check.Error, Seen: "CUDA_VISIBLE_DEVICES=0-3 shows GPU 0 alone", Why: "no runtime knows ranges", Do: "write CUDA_VISIBLE_DEVICES=0,1,2,3"},
				Now:     "export CUDA_VISIBLE_DEVICES=0-3", Instead: "export CUDA_VISIBLE_DEVICES=0,1,2,3", Fixable: true},
			{Path: "demo.ipynb", Kind: lint.Notebook, Cell: 3, Line: 1, Column: 1, EndLine: 1, EndColumn: 40,
				Finding: check.Finding{Code: "late-assignment", Severity: check.Warning, Seen: "CUDA_VISIBLE_DEVICES is set after \x1b[2Jimport torch", Why: "a library that is loaded already may have looked at it", Do: "set it in the first cell, then start the kernel again"},
				Now:     "os.environ['CUDA_VISIBLE_DEVICES'] = '0'"},
			{Path: "old.sh", Kind: lint.Shell, Line: 7, Column: 1, EndLine: 7, EndColumn: 28,
				Finding: check.Finding{Code: "variable-old-name", Severity: check.Info, Seen: "NCCL_BLOCKING_WAIT is an old name", Do: "write TORCH_NCCL_BLOCKING_WAIT"}},
		},
		Skipped:  []linter.Omission{{Path: "old.py", Why: "not read: line 1: Python 2"}},
		Problems: []linter.Omission{},
	}
}

func TestLintView(t *testing.T) {
	for _, width := range []int{0, 40, 80} {
		var out strings.Builder
		console.Draw(&out, console.Term{Width: width, UTF8: true}, func(page *console.Page) { lintView(page, mistakes()) })
		golden.Compare(t, "lint-"+map[int]string{0: "0", 40: "40", 80: "80"}[width], out.String())
	}
	fixed := mistakes()
	fixed.Findings[0].Fixed = true
	for name, c := range map[string]struct {
		report linter.Report
		want   []string
	}{
		"fixed":    {fixed, []string{"jobs/train.sh:2:29: fixed: ", "4 files: 1 fixed, 1 warning, 1 remark, 1 silenced, 1 not read; what a code means"}},
		"nothing":  {linter.Report{Files: 1}, []string{"no findings in 1 file\n"}},
		"unread":   {linter.Report{Problems: []linter.Omission{{Path: "a.py", Why: "permission denied"}}}, []string{"nothing was checked\n"}},
		"silenced": {linter.Report{Files: 2, Silenced: 3}, []string{"no findings in 2 files: 3 silenced\n"}},
		"colours":  {mistakes(), []string{"\x1b[31merror\x1b[0m: ", "\x1b[32m  + export"}},
	} {
		var out strings.Builder
		console.Draw(&out, console.Term{Color: name == "colours", UTF8: true}, func(page *console.Page) { lintView(page, c.report) })
		for _, want := range c.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q in:\n%s", name, want, out.String())
			}
		}
		if strings.Contains(out.String(), "\x1b[2J") {
			t.Errorf("%s: a control sequence of a file reached the terminal: %q", name, out.String())
		}
	}
}

// TestLintSkippedMany: a long list of skipped files does not hide the findings.
func TestLintSkippedMany(t *testing.T) {
	r := linter.Report{Files: 1}
	for range 9 {
		r.Skipped = append(r.Skipped, linter.Omission{Path: "old.py", Why: "not read: line 1: Python 2"})
	}
	var out strings.Builder
	console.Draw(&out, console.Term{}, func(page *console.Page) { lintView(page, r) })
	if text := out.String(); strings.Count(text, "\n") != 5 || !strings.Contains(text, "and 6 more: --json lists them") {
		t.Errorf("%s", text)
	}
}
