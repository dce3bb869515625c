package linter

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/core/lint"
	"gpuard/internal/core/visible"
	"gpuard/internal/gate"
)

// TestMain: what these tests make is small and soon over, and to collect it took a third of their time.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	os.Exit(m.Run())
}

// example is a file of a rule or of a corpus, and what is found in it.
type example struct {
	lint.Example
	where string // which example it is, for the reader of a failed test
	code  string // of the rule, "" in a corpus
	bad   bool
	read  fileReading
	found []LocatedFinding
}

// everything reads the examples of every rule and the corpora, with one start of Python.
func everything(t *testing.T) (all []example) {
	t.Helper()
	for _, r := range lint.Descriptions() {
		for i, e := range r.Bad {
			all = append(all, example{Example: e, where: fmt.Sprintf("bad example %d of %s, %s", i+1, r.Code, e.Name), code: r.Code, bad: true})
		}
		for i, e := range r.Good {
			all = append(all, example{Example: e, where: fmt.Sprintf("good example %d of %s, %s", i+1, r.Code, e.Name), code: r.Code})
		}
	}
	for _, folder := range []string{"good", "bad"} {
		for _, e := range corpus(t, filepath.Join("testdata", folder)) {
			all = append(all, example{Example: e, where: folder + "/" + e.Name, bad: folder == "bad"})
		}
	}
	var sources []sourceFile
	for _, e := range all {
		sources = append(sources, e.source(t))
	}
	for i, one := range (Options{Env: visible.Env(os.Environ()), Preview: true}).parseAll(t.Context(), sources) {
		var r Report
		r.addFile(&one)
		all[i].read, all[i].found = one, r.Findings
		for _, n := range append(r.Problems, r.Skipped...) {
			t.Errorf("%s: %s", all[i].where, n.Why)
		}
	}
	return all
}

func (e example) source(t *testing.T) sourceFile {
	t.Helper()
	kind := kindByName(e.Name)
	if kind == "" {
		kind = guessKind(e.Name, []byte(e.Text))
	}
	if kind == "" {
		t.Fatalf("%s: cannot tell the format", e.where)
	}
	one := sourceFile{path: e.Name, kind: kind, text: []byte(e.Text)}
	if isHook(e.Name) {
		one.undo = &deactivation{}
	}
	return one
}

// corpus is every file below a folder; the path below it is the name, so that .github/workflows is possible.
func corpus(t *testing.T, folder string) (all []lint.Example) {
	t.Helper()
	err := filepath.WalkDir(folder, func(p string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(p)
		rel, _ := filepath.Rel(folder, p)
		all = append(all, lint.Example{Name: rel, Text: string(text)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// told are findings in one line each, for the reader of a failed test.
func told(all []LocatedFinding) string {
	var lines []string
	for _, f := range all {
		lines = append(lines, fmt.Sprintf("  line %d: %s: %s", f.Line, f.Code, f.Seen))
	}
	return strings.Join(lines, "\n")
}

// TestExamples checks all examples, which are read once.
func TestExamples(t *testing.T) {
	gate.Need(t, "python3")
	all := everything(t)
	t.Run("findings", func(t *testing.T) { testFindings(t, all) })
	t.Run("places", func(t *testing.T) { testPlaces(t, all) })
	t.Run("mend", func(t *testing.T) { testMend(t, all) })
}

// testFindings: each correct file of the corpus has no finding, in the bad corpus "want CODE CODE" in a comment says exactly
// what is found on its line, and what is found in the examples of the rules is complete. Which rule finds what in those
// is a test of core/lint.
func testFindings(t *testing.T, all []example) {
	for _, e := range all {
		switch {
		case !e.bad && e.code == "" && len(e.found) > 0:
			t.Errorf("%s has findings:\n%s\n%s", e.where, told(e.found), e.Text)
		case e.bad && e.code == "":
			e.compare(t)
		}
		for _, f := range e.found {
			e.complete(t, f)
		}
	}
}

// complete fails where a finding lacks what is shown of it.
func (e example) complete(t *testing.T, f LocatedFinding) {
	t.Helper()
	page := slices.ContainsFunc(lint.Descriptions(), func(r lint.Description) bool { return r.Code == f.Code })
	if !page || f.Seen == "" || f.Why == "" || f.Do == "" && f.Instead == "" || f.Now == "" {
		t.Errorf("%s: a finding is not complete: %+v", e.where, f)
	}
	if f.Line < 1 || f.EndLine < f.Line || f.EndLine == f.Line && f.EndColumn < f.Column {
		t.Errorf("%s: a finding ends before it begins: %+v", e.where, f)
	}
}

func (e example) compare(t *testing.T) {
	t.Helper()
	want := regexp.MustCompile(`[#;"] want ([a-z0-9 -]+)`)
	var wanted, got []string
	for i, line := range strings.Split(e.Text, "\n") {
		if m := want.FindStringSubmatch(line); m != nil {
			for _, code := range strings.Fields(m[1]) {
				wanted = append(wanted, fmt.Sprintf("%d %s", i+1, code))
			}
		}
	}
	for _, f := range e.found {
		got = append(got, fmt.Sprintf("%d %s", f.Line, f.Code))
	}
	slices.Sort(wanted)
	slices.Sort(got)
	if len(wanted) == 0 || !slices.Equal(got, wanted) {
		t.Errorf("%s:\n got %q\nwant %q", e.where, got, wanted)
	}
}

// testPlaces: at the place that a reader reports, the text is what it says, byte for byte. Fixes depend on that.
func testPlaces(t *testing.T, all []example) {
	for _, e := range all {
		cells := e.read.cellTexts()
		eachValue(e.read.file.Steps, func(v lint.Value) {
			if v.Raw == "" || v.At.Column == 0 || e.read.kind == lint.Notebook {
				return
			}
			if there, ok := lint.TextAt(cells[v.At.Cell])(v.At); !ok || there != v.Raw {
				t.Errorf("%s: at %+v stands %q and not %q", e.where, v.At, there, v.Raw)
			}
		})
	}
}

// testMend: what a rule offers to mend is mended by it, the new text is read without new findings, and mending once
// more changes nothing. Files without findings are left alone.
func testMend(t *testing.T, all []example) {
	o := Options{Env: visible.Env(os.Environ()), Preview: true}
	read := make([]*fileReading, len(all))
	at := map[*fileReading]example{}
	for i, e := range all {
		read[i] = &e.read
		at[read[i]] = e
	}
	mended := 0
	for _, a := range o.findNewTexts(t.Context(), read) {
		e := at[a.read]
		if len(a.fixed) > 0 {
			mended++
		}
		if !e.bad && string(a.read.text) != e.Text {
			t.Errorf("%s is correct and was changed:\n%s", e.where, a.read.text)
		}
		found, _ := a.read.applyRules()
		for _, f := range a.read.describeFindings(found) {
			if f.Fixable {
				t.Errorf("%s: %s is still there and still offers to be mended:\n%s", e.where, f.Code, a.read.text)
			}
		}
	}
	for _, a := range o.findNewTexts(t.Context(), read) {
		if len(a.fixed) > 0 {
			t.Errorf("%s was mended once more:\n%s", at[a.read].where, a.read.text)
		}
	}
	t.Logf("%d of %d files were mended", mended, len(all))
}

// TestAdviceInJob: where a batch job has fewer GPUs than a list names, no right list of that kind is offered.
func TestAdviceInJob(t *testing.T) {
	for line, wanted := range map[string]bool{
		"export CUDA_VISIBLE_DEVICES=0-3": true,
		"export CUDA_VISIBLE_DEVICES=0-1": false,
		"export CUDA_VISIBLE_DEVICE=2":    true,
		"export CUDA_VISIBLE_DEVICE=1":    false,
	} {
		root := lay(t, map[string]string{"job.sh": "#!/bin/bash\n#SBATCH --gres=gpu:2\n" + line + "\npython t.py\n"})
		r := look(t, false, root)
		left := slices.ContainsFunc(r.Findings, func(f LocatedFinding) bool {
			return !f.Fixable && strings.HasPrefix(f.Do, "leave it out: the batch system")
		})
		if left != wanted {
			t.Errorf("%s: %s", line, told(r.Findings))
		}
	}
}
