package makefile

import (
	"slices"
	"strings"
	"testing"

	"gpuard/test/steps"
)

func TestRead(t *testing.T) {
	for _, c := range []struct {
		name, src string
		want      []string
	}{
		{"recipes", "export A = 0,1 # x\nB := 2\nexport C?=$(B)\nall: x y\n\t@-export D=1\n\tE=1 python \\\n\t  a.py\nx: export F := 3\nx:\n\techo $(B) $@\n", []string{
			`1:8 set A make ="0,1"`,
			`3:8 set C make maybe ?"$(B)"`,
			`5:1 script in all indent 0 ="   export D=1"@"\t@-export D=1"`,
			`6:1 script in all indent 0 =" E=1 python \\\n\t  a.py"@"\tE=1 python \\\n\t  a.py"`,
			`8:11 set F make in x ="3"`,
			`10:1 script in x indent 0 =" echo ${B} $a"@"\techo $(B) $@"`,
		}},
		{"shell variables", "a:\n\tfor i in 1; do b $$i; done\n\tc $(call f,$(x)) ${y\n", []string{
			`2:1 script in a indent -1 =" for i in 1; do b $i; done"@"\tfor i in 1; do b $$i; done"`,
			`3:1 script in a indent 0 =" c ${call_f___x_} ${}"@"\tc $(call f,$(x)) ${y"`,
		}},
		{"one shell", ".ONESHELL:\na:\n\texport A=1\n\t@b\nifdef X\nc:\n\td\nendif\n", []string{
			`3:1 script in a indent 0 =" export A=1\n  b"@"\texport A=1\n\t@b"`,
			`7:1 script in c maybe indent 0 =" d"@"\td"`,
		}},
		{"exported later", "A = 0,1\nB=2\nexport A C\n", []string{`1:1 set A make ="0,1"`}},
		{"no recipe", "define x\n\ta\nendef\nA = 1\n\tb\nexport\nexport B\n", nil},
	} {
		f, err := ReadSteps("Makefile", []byte(c.src))
		if got := steps.RenderSteps(c.src, f); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v\n got %s\nwant %s", c.name, err, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("export A=1\na: b\n\t@c $$d $(e \\\n\t f)\nx: export Y = $(z)\nifdef Q\n.ONESHELL:\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		file, err := ReadSteps("Makefile", src)
		if err != nil {
			return
		}
		if astray := steps.FindAstray(string(src), file); astray != "" {
			t.Fatal(astray)
		}
	})
}
