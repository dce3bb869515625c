package lineshell

import (
	"slices"
	"strings"
	"testing"

	"gpuard/internal/core/lint"
	"gpuard/test/steps"
)

func TestRead(t *testing.T) {
	for _, c := range []struct {
		name, src string
		read      func(string, []byte) (lint.File, error)
		want      []string
	}{
		{"csh", "#!/bin/csh\nsetenv A 0,1 # x\nsetenv B \"c d\" ; unsetenv C\nset x = 1\npython a.py --b $x >& log &\nsetenv D\n", ReadCsh, []string{
			`2:1 set A setenv ="0,1"`,
			`3:1 set B setenv ="c d"@"\"c d\""`,
			`3:18 unset C unsetenv ?""`,
			`5:1 command ="python" ="a.py" ="--b" ?"$x"`,
			`6:1 set D setenv =""`,
		}},
		{"csh branches", "if ( $x == 1 && $y ) then\n  setenv A 1\nelse if ($z) then\n setenv A 2\nendif\nif ($q) setenv B 1\nforeach i (1 2)\n a $i\nend\necho it's \\\n  x\nb\n", ReadCsh, []string{
			`2:3 set A setenv maybe ="1"`,
			`4:2 set A setenv maybe ="2"`,
			`6:9 set B setenv maybe ="1"`,
			`8:2 command maybe ="a" ?"$i"`,
			`10:1 command ="echo" ?"it's \\"`,
			`11:3 command ="x"`,
			`12:1 command ="b"`,
		}},
		{"fish", "set -gx A 0,1\nset --export B 0 1\nset c d\nset -e A\nC=1 python a.py | tee 'x\ny'\nif test -n \"$D\"; and true\n  set -x E 1\nend\nfunction f --on-event x\n  export G=1\nend\nh (i j)\n", ReadFish, []string{
			`1:1 set A set -x ="0,1"`,
			`2:1 set B set -x ="0 1"`,
			`4:1 unset A set -e ?""`,
			`5:1 command with C="1" ="python" ="a.py"`,
			`5:19 command ="tee" ="x\ny"@"'x\ny'"`,
			`7:4 command ="test" ="-n" ?"\"$D\""`,
			`7:22 command maybe ="true"`,
			`8:3 set E set -x maybe ="1"`,
			`11:10 set G export in f ="1"`,
			`13:1 command ="h" ?"(i j)"`,
		}},
	} {
		f, err := c.read("a", []byte(c.src))
		if got := steps.RenderSteps(c.src, f); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v\n got %s\nwant %s", c.name, err, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("if ( $x ) then\n setenv A \"b\\\n c\" >& d\nendif\n"))
	f.Add([]byte("set -gx A 'b\nc' (d e); and F=1 g < h\nfunction i\nend\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		for _, read := range []func(string, []byte) (lint.File, error){ReadCsh, ReadFish} {
			file, err := read("a", src)
			if err != nil {
				continue
			}
			lint.ApplyRules(file, true)
			if astray := steps.FindAstray(string(src), file); astray != "" {
				t.Fatal(astray)
			}
		}
	})
}
