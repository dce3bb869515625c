package workflow

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
		{"variables", "on: push\nenv:\n  A: 0,1\njobs:\n  train:\n    env: {B: 0,1}\n    steps:\n      - uses: x\n      - env:\n          C: ${{ matrix.gpu }}\n          D: $GPU\n          E:\n        run: make\n", []string{
			`3:3 set A env ="0,1"`,
			`6:11 set B env in train ="0"`,
			`6:16 set 1 env, cut in train =""`,
			`10:11 set C env in train.steps[1] ?"${{ matrix.gpu }}"`,
			`11:11 set D env in train.steps[1] ="$GPU"`,
			`12:11 set E env in train.steps[1] =""`,
			`13:14 script in train.steps[1] indent 0 ="make"`,
		}},
		{"scripts", "jobs:\n  a:\n    steps:\n      - run: |\n          export A=${{ env.X }}\n          make\n      - run: >-\n          python x.py\n          --y\n      - run: echo\n        shell: python\n      - run: echo\n        shell: bash -el {0}\n        if: always()\n", []string{
			`5:11 script in a.steps[0] indent 10 ="export A=${__env_X__}\nmake\n"@"export A=${{ env.X }}\n          make"`,
			`8:11 script in a.steps[1] indent 10 ="python x.py \\\n--y\n"@"python x.py\n          --y"`,
			`12:14 script in a.steps[3] maybe indent 0 ="echo"`,
		}},
		{"other shells", "defaults:\n  run:\n    shell: pwsh\njobs:\n  a:\n    steps:\n      - run: x\n  b:\n    defaults: {run: {shell: sh}}\n    steps: [{run: y}]\n", []string{`10:19 script in b.steps[0] indent 0 ="y"`}},
		{"windows", "jobs:\n  a:\n    runs-on: [self-hosted, windows-2022]\n    steps: [{run: y}, {run: z, shell: bash}]\n", []string{`4:29 script in a.steps[1] indent 0 ="z"`}},
		{"a step for windows", "jobs:\n  a:\n    runs-on: ${{ matrix.os }}\n    steps:\n      - if: runner.os == 'Windows'\n        run: x\n      - if: runner.os == 'Windows'\n        run: y\n        shell: bash\n      - if: runner.os != 'Windows'\n        run: z\n", []string{
			`8:14 script in a.steps[1] maybe indent 0 ="y"`,
			`11:14 script in a.steps[2] maybe indent 0 ="z"`,
		}},
		{"container", "jobs:\n  a:\n    container:\n      image: nvidia/cuda:12\n      env:\n        B: 1\n      options: --gpus '\"device=0,1\"' --ipc=host\n  b:\n    container: c\n", []string{
			`6:9 set B container.env in a ="1"`,
			`4:14 setting container.image in a ="nvidia/cuda:12"`,
			`7:16 command container.options in a ="docker"@"--gpus '\"device=0,1\"' --ipc=host" ="create"@"--gpus '\"device=0,1\"' --ipc=host" ="--gpus" ="\"device=0,1\""@"'\"device=0,1\"'" ="--ipc=host" ="nvidia/cuda:12"`,
			`9:16 setting container.image in b ="c"`,
		}},
		{"action", "runs:\n  using: composite\n  steps:\n    - run: make\n      shell: bash\n", []string{`4:12 script in steps[0] indent 0 ="make"`}},
		{"odd", "jobs:\n  a:\n  b: [1]\n  c:\n    env: x\n    steps: y\n", nil},
	} {
		f, err := ReadSteps("a.yml", []byte(c.src))
		if got := steps.RenderSteps(c.src, f); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v\n got %s\nwant %s", c.name, err, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
	}
}

func TestMask(t *testing.T) {
	for _, c := range [][2]string{
		{"a ${{ b.c }} ${{ b-c }} ${{ b.c }}", "a ${__b_c__} ${_0b_c__} ${__b_c__}"},
		{"${{x}}", "${_x_}"}, {"${{ open", "${{ open"}, {"$ {", "$ {"},
		{"${{}}${{ }}${{ }}", "${__}${___}${___}"},
	} {
		if got := maskExpressions(c[0]); got != c[1] || len(got) != len(c[0]) {
			t.Errorf("%q: %q, want %q", c[0], got, c[1])
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range []string{"env: {A: 0,1}\njobs:\n  a:\n    container: {image: a, options: \"--x 'y z'\"}\n    steps:\n    - run: |\n        a ${{ b\n        }}\n      env:\n        C: d\n", "jobs: {a: {steps: [{run: \"a\\nb\"}]}}\n", "env: {&: 0,1}\n", "env: {A: &x 0, B: *x}\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		file, err := ReadSteps("a.yml", src)
		if err != nil {
			return
		}
		if astray := steps.FindAstray(string(src), file); astray != "" {
			t.Fatal(astray)
		}
	})
}
