package gitlab

import (
	"slices"
	"strings"
	"testing"

	"gpuard/test/steps"
)

func TestRead(t *testing.T) {
	src := `variables:
  A: "0,1"
before_script:
  - cd x
train:
  variables:
    B:
      value: "2"
    C: $D
  before_script:
    - export E=1

  - "ignored"
  script:
    - 'b "$E"'
    - |
      c
        d
  after_script: e
low:
  after_script: [f, "g\th"]
`
	src = strings.Replace(src, "  - \"ignored\"\n", "", 1)
	f, err := ReadSteps(".gitlab-ci.yml", []byte(src))
	want := []string{
		`2:3 set A variables ="0,1"@"\"0,1\""`,
		`4:1 script indent 0 ="    cd x"@"  - cd x"`,
		`7:5 set B variables in train ="2"@"\"2\""`,
		`9:5 set C variables in train ?"$D"`,
		`11:1 script in train indent 0 ="      export E=1\n\n\n       b \"$E\"\n\n      c\n        d"@"    - export E=1\n\n  script:\n    - 'b \"$E\"'\n    - |\n      c\n        d"`,
		`18:1 script in train indent 0 ="                e"@"  after_script: e"`,
		`20:1 script in low indent 0 ="                 f"@"  after_script: [f"`,
		`20:1 script in low indent -1 ="                    g\th"@"  after_script: [f, \"g\\"`,
	}
	if got := steps.RenderSteps(src, f); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\n got %s\nwant %s", err, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("variables: {A: 0,1}\na:\n  script:\n    - b\n    - |\n      c\n    - [d, \"e\\n f\"]\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		file, err := ReadSteps(".gitlab-ci.yml", src)
		if err != nil {
			return
		}
		for _, s := range file.Steps {
			if s.At.Line < 1 || s.At.EndLine < s.At.Line {
				t.Fatalf("place %+v", s.At)
			}
		}
	})
}
