package lint

import (
	"errors"
	"testing"
)

// TestExpand: a script within a file takes the place of its step, with places in the file.
func TestExpand(t *testing.T) {
	inner := File{Kind: Shell, Steps: []Step{
		{Do: Set, Name: "X", At: Place{Line: 1, Column: 1, EndLine: 1, EndColumn: 4}, Value: Value{Text: "1", Raw: "1", At: Place{Line: 1, Column: 3, EndLine: 1, EndColumn: 4}}},
		{Do: Command, In: "f", At: Place{Line: 2, Column: 1, EndLine: 2, EndColumn: 7}, Words: []Word{{Text: "python", At: Place{Line: 2, Column: 1, EndLine: 2, EndColumn: 7}}},
			With: []Step{{Do: Set, Name: "Y", At: Place{Line: 2, Column: 1, EndLine: 2, EndColumn: 2}}}},
	}}
	script := Step{Do: Script, In: "job", Maybe: true, Indent: 8, At: Place{Line: 10, Column: 14, EndLine: 11, EndColumn: 15}, Value: Value{Text: "X=1\npython"}}
	for _, c := range []struct {
		name            string
		indent          int
		first, second   Place
		valued, worded  Place
		expectedColumns bool
	}{
		{"places are known", 8,
			Place{Line: 10, Column: 14, EndLine: 10, EndColumn: 17}, Place{Line: 11, Column: 9, EndLine: 11, EndColumn: 15}, Place{Line: 10, Column: 16, EndLine: 10, EndColumn: 17}, Place{Line: 11, Column: 9, EndLine: 11, EndColumn: 15}, true},
		{"places are not known", -1,
			Place{Line: 10, Column: 0, EndLine: 11, EndColumn: 0}, Place{Line: 10, Column: 0, EndLine: 11, EndColumn: 0}, Place{Line: 10, Column: 0, EndLine: 11, EndColumn: 0}, Place{Line: 10, Column: 0, EndLine: 11, EndColumn: 0}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			script.Indent = c.indent
			file := File{Kind: Workflow, Steps: []Step{{Do: Setting, Name: "a"}, script, script, {Do: Setting, Name: "b"}}}
			got := ExpandScripts(file, func(string) (File, error) { return inner, nil })
			if len(got.Steps) != 6 || got.Steps[0].Name != "a" || got.Steps[5].Name != "b" {
				t.Fatalf("steps %+v", got.Steps)
			}
			set, command := got.Steps[1], got.Steps[2]
			if set.At != c.first || command.At != c.second || set.Value.At != c.valued || command.Words[0].At != c.worded {
				t.Errorf("at %+v and %+v, value %+v, word %+v", set.At, command.At, set.Value.At, command.Words[0].At)
			}
			if set.Shell != 1 || got.Steps[3].Shell != 2 || set.In != "job" || command.In != "job.f" || !set.Maybe || command.With[0].Shell != 1 {
				t.Errorf("steps %+v", got.Steps)
			}
			if scripts := Scripts(got); len(scripts) != 2 || len(scripts[0].Steps) != 2 || scripts[1].Kind != Shell {
				t.Errorf("scripts %+v", scripts)
			}
		})
	}
	if inner.Steps[1].Words[0].At.Line != 2 {
		t.Error("the script itself was changed")
	}
}

// TestExpandUnread: a script that is no shell stays as it is.
func TestExpandUnread(t *testing.T) {
	file := File{Kind: Workflow, Steps: []Step{{Do: Script, Value: Value{Text: "if ("}}}}
	got := ExpandScripts(file, func(string) (File, error) { return File{}, errors.New("no shell") })
	if len(got.Steps) != 1 || got.Steps[0].Do != Script || len(Scripts(got)) != 0 {
		t.Errorf("steps %+v", got.Steps)
	}
}
