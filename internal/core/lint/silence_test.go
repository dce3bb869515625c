package lint

import (
	"slices"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/check"
)

func TestSilence(t *testing.T) {
	for _, c := range []struct {
		name, text string
		first, end int // lines of the finding mask-range
		steps      []Step
		silent     bool
	}{
		{"no comment", "a\n", 1, 1, nil, false},
		{"on the line", "a # gpuard:ignore mask-range\n", 1, 1, nil, true},
		{"without blanks", "a #gpuard:ignore mask-range\n", 1, 1, nil, true},
		{"among others, with commas", "a # gpuard:ignore late-assignment, mask-range,mask-quotes\n", 1, 1, nil, true},
		{"behind another comment", "a # known # gpuard:ignore mask-range\n", 1, 1, nil, true},
		{"with a reason", "a # gpuard:ignore mask-range (the tool expands it)\n", 1, 1, nil, true},
		{"another code", "a # gpuard:ignore mask-quotes\n", 1, 1, nil, false},
		{"a longer code", "a # gpuard:ignore mask-range-x\n", 1, 1, nil, false},
		{"no code silences nothing", "a # gpuard:ignore\n", 1, 1, nil, false},
		{"no comment at all", "echo gpuard:ignore mask-range\n", 1, 1, nil, false},
		{"on the line before, alone", "# gpuard:ignore mask-range\na\n", 2, 2, nil, true},
		{"indented, alone", "  # gpuard:ignore mask-range\n  a\n", 2, 2, nil, true},
		{"two comments before", "# gpuard:ignore mask-range\n# gpuard:ignore mask-quotes\na\n", 3, 3, nil, true},
		{"on the line before, beside code", "b # gpuard:ignore mask-range\na\n", 2, 2, nil, false},
		{"alone, two lines before", "# gpuard:ignore mask-range\n\na\n", 3, 3, nil, false},
		{"alone, on the line after", "a\n# gpuard:ignore mask-range\n", 1, 1, nil, false},
		{"on the last line of what is found", "a = (\n 1)  # gpuard:ignore mask-range\n", 1, 2, nil, true},
		{"of the whole file", "a\nb\n# gpuard:ignore-file mask-range\n", 1, 1, nil, true},
		{"of the whole file, another code", "# gpuard:ignore-file mask-quotes\na\n", 2, 2, nil, false},
		{"before a line that goes on", "# gpuard:ignore mask-range\ndocker run \\\n  -e X \\\n  image\n", 3, 3, nil, true},
		{"before a line that goes on, but another line", "# gpuard:ignore mask-range\necho\ndocker run \\\n  -e X\n", 4, 4, nil, false},
		{"before the call around it", "# gpuard:ignore mask-range\nrun(\n  1,\n  2)\n", 3, 3, []Step{{Do: Call, At: Place{Line: 2, Column: 1, EndLine: 4, EndColumn: 5}}}, true},
		{"before the function around it", "# gpuard:ignore mask-range\ndef f():\n  a\n", 3, 3, []Step{{Do: Define, At: Place{Line: 2, Column: 1, EndLine: 3, EndColumn: 4}}}, false},
		{"semicolons are comments of units", "; gpuard:ignore mask-range\na\n", 2, 2, nil, true},
		{"Windows lines", "docker \\\r\n -e X # gpuard:ignore mask-range\r\n", 2, 2, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := []Finding{{Finding: check.Finding{Code: "mask-range"}, At: Place{Line: c.first, Column: 1, EndLine: c.end, EndColumn: 2}}}
			kept, silenced := dropSilenced(File{Steps: c.steps}, map[int]string{0: c.text}, found)
			kept = slices.DeleteFunc(kept, func(f Finding) bool { return f.Code == codeSilence })
			if silenced != map[bool]int{true: 1}[c.silent] || len(kept)+silenced != 1 {
				t.Errorf("%d kept, %d silenced", len(kept), silenced)
			}
		})
	}
}

// TestMistakenSilence: a comment that is meant to silence a finding and does not says so, and what is only like one does not.
func TestMistakenSilence(t *testing.T) {
	for text, want := range map[string]string{
		"# gpuard: ignore mask-range":                     "write: # gpuard:ignore CODE, with the code behind the finding",
		"a # gpuard:ignore":                               "write: # gpuard:ignore CODE, with the code behind the finding",
		"# GPUARD:IGNORE-FILE mask-range":                 "write: # gpuard:ignore-file CODE, with the code behind the finding",
		"# gpuard-noqa: mask-range":                       "write: # gpuard:ignore CODE, with the code behind the finding",
		"# gpuard:ignore mask-rnage":                      "write: mask-range",
		"# gpuard:ignore maskrange":                       "write: mask-range",
		"# gpuard:ignore mask-range, mask-qutes":          "write: mask-quotes",
		"# gpuard:ignore mask-range":                      "",
		"# gpuard:ignore mask-range, the tool expands it": "",
		"# gpuard ignores what it cannot read":            "",
		"# gpuard --gpus 1":                               "",
		"echo gpuard:ignore":                              "",
		"# gpuard:ignore mask-range, well-known reason":   "",
		"# gpuard:ignore mask-range, pre-commit runs it":  "",
		"# gpuard disable this on the login node":         "",
		"# gpuard ignore the old card":                    "",
		"echo start; gpuard ignore mask-range":            "",
		"# gpuard ignore mask-range":                      "write: # gpuard:ignore CODE, with the code behind the finding",
		"# gpuard:ignore mask-range mask-quotes":          "write: mask-range, mask-quotes",
		"# gpuard:ignore mask_range":                      "write: mask-range",
		"# gpuard:nolint":                                 "write: # gpuard:ignore CODE, with the code behind the finding",
	} {
		found, _ := dropSilenced(File{}, map[int]string{0: text + "\n"}, nil)
		if want == "" && len(found) > 0 || want != "" && (len(found) != 1 || found[0].Do != want) {
			t.Errorf("%q: %+v, want %q", text, found, want)
		}
	}
}

// TestSilenceManySteps: where no comment names the code of a finding, the steps of the file are not looked through for
// it.
func TestSilenceManySteps(t *testing.T) {
	f := File{Steps: make([]Step, 20_000)}
	found := make([]Finding, 20_000)
	for i := range found {
		f.Steps[i] = Step{Do: Command, At: Place{Line: i + 1, Column: 1, EndLine: i + 1, EndColumn: 2}}
		found[i] = Finding{Finding: check.Finding{Code: "mask-range"}, At: f.Steps[i].At}
	}
	for try := 1; ; try++ { // that the machine was busy once says nothing
		begun := time.Now()
		kept, silenced := dropSilenced(f, map[int]string{0: "# gpuard:ignore mask-quotes\n" + strings.Repeat("a\n", len(found))}, found)
		took := time.Since(begun)
		if len(kept) != len(found) || silenced != 0 || took > time.Second && try == 5 {
			t.Fatalf("%d kept, %d silenced, in %v", len(kept), silenced, took)
		}
		if took <= time.Second {
			return
		}
	}
}

// TestSilenceCells: the lines of a notebook count within their cell.
func TestSilenceCells(t *testing.T) {
	text := map[int]string{1: "a # gpuard:ignore mask-range\n", 2: "a\n"}
	found := []Finding{
		{Finding: check.Finding{Code: "mask-range"}, At: Place{Cell: 1, Line: 1}},
		{Finding: check.Finding{Code: "mask-range"}, At: Place{Cell: 2, Line: 1}},
	}
	kept, silenced := dropSilenced(File{Kind: Notebook}, text, found)
	if silenced != 1 || len(kept) != 1 || kept[0].At.Cell != 2 {
		t.Errorf("kept %+v, %d silenced", kept, silenced)
	}
}

// FuzzSilence: no text makes it fail, and no finding is lost.
func FuzzSilence(f *testing.F) {
	f.Add("# gpuard:ignore mask-range\n\\\na # gpuard:ignore-file x-y\n", 2, 3)
	f.Fuzz(func(t *testing.T, text string, line, end int) {
		if end-line > 1000 {
			return
		}
		found := []Finding{{Finding: check.Finding{Code: "mask-range"}, At: Place{Line: line, EndLine: end}}}
		kept, silenced := dropSilenced(File{}, map[int]string{0: text}, found)
		kept = slices.DeleteFunc(kept, func(f Finding) bool { return f.Code == codeSilence })
		if len(kept)+silenced != 1 || silenced == 1 && !strings.Contains(text, "gpuard:ignore") {
			t.Fatalf("%d kept, %d silenced", len(kept), silenced)
		}
	})
}
