package condaenv

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
		{"all", "name: a\nchannels: [conda-forge]\ndependencies:\n  - python=3.11\n  - \"pytorch>=2\" # gpu\n  - pip:\n    - onnxruntime-gpu\n    - -r x.txt\nvariables:\n  CUDA_VISIBLE_DEVICES: 0,1\n  A: \"b\"\n", []string{
			`2:12 setting channels[0] ="conda-forge"`,
			`4:5 setting dependencies[0] ="python=3.11"`,
			`5:5 setting dependencies[1] ="pytorch>=2"@"\"pytorch>=2\""`,
			`7:7 setting dependencies[2].pip[0] ="onnxruntime-gpu"`,
			`8:7 setting dependencies[2].pip[1] ="-r x.txt"`,
			`10:3 set CUDA_VISIBLE_DEVICES variables ="0,1"`,
			`11:3 set A variables ="b"@"\"b\""`,
		}},
		{"cut", "variables: {A: 0,1}\n", []string{`1:13 set A variables ="0"`, `1:18 set 1 variables, cut =""`}},
		{"odd", "dependencies: a\nvariables: [b]\n", nil},
	} {
		f, err := ReadSteps("environment.yml", []byte(c.src))
		if got := steps.RenderSteps(c.src, f); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v\n got %s\nwant %s", c.name, err, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range []string{"dependencies:\n- a\n- pip: [b, c]\nvariables: {A: 0,1}\n", "variables:\n  A:\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		file, err := ReadSteps("environment.yml", src)
		if err != nil {
			return
		}
		if astray := steps.FindAstray(string(src), file); astray != "" {
			t.Fatal(astray)
		}
	})
}
