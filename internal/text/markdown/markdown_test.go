package markdown

import (
	"slices"
	"strings"
	"testing"

	"gpuard/test/steps"
)

func TestRead(t *testing.T) {
	const src = "# x\n```bash\nA=1 b\nc\n```\n  - y\n    ~~~~ console\n    (base) $ d \\\n      e\n    out\n    ~~~~\n```python\nf\n```\n> ``` {.sh}\n> g\n> ```\n```\nh\n```\n`` ```sh ``\n```sh\nopen\n"
	want := []string{
		`3:1 script indent 0 ="A=1 b\nc"`,
		`8:1 script indent 0 ="             d \\\n      e\n"@"    (base) $ d \\\n      e\n"`,
		`16:1 script indent 0 ="  g"@"> g"`,
	}
	f, err := ReadSteps("README.md", []byte(src))
	if got := steps.RenderSteps(src, f); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\n got %s\nwant %s", err, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("```sh\n$ a \\\n b\nc\n```\n> ~~~ bash\n> d\n> ~~~\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		file, err := ReadSteps("a.md", src)
		if err != nil {
			return
		}
		if astray := steps.FindAstray(string(src), file); astray != "" {
			t.Fatal(astray)
		}
	})
}
