package supervisord

import (
	"slices"
	"strings"
	"testing"

	"gpuard/test/steps"
)

func TestRead(t *testing.T) {
	const src = "; x\n[supervisord]\nenvironment=A=\"0,1\",B=2 ; c\n[program:web]\ncommand=bash -c \"C=1 python\n  a.py\" %(x)s\nenvironment =\n    D='0,1',\n    E=0,1, F = \"%(ENV_G)s\"\nuser=x\n"
	want := []string{
		`3:13 set A environment ="0,1"@"\"0,1\""`,
		`3:21 set B environment ="2"`,
		`5:9 command command in program:web ="bash" ="-c" ="C=1 python\n  a.py"@"\"C=1 python\n  a.py\"" ?"%(x)s"`,
		`5:17 script in program:web indent -1 ="C=1 python\n  a.py"@"\"C=1 python\n  a.py\""`,
		`8:5 set D environment in program:web ="0,1"@"'0,1'"`,
		`9:5 set E environment in program:web ="0"`,
		`9:9 set 1 environment, cut in program:web ?""@"1"`,
		`9:12 set F environment in program:web ?"%(ENV_G)s"@"\"%(ENV_G)s\""`,
	}
	f, err := ReadSteps("supervisord.conf", []byte(src))
	if got := steps.RenderSteps(src, f); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\n got %s\nwant %s", err, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("[program:a]\nenvironment=B=\"c\",D=e,\n  F='g'\ncommand=sh -c 'h i'\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		file, err := ReadSteps("supervisord.conf", src)
		if err != nil {
			return
		}
		if astray := steps.FindAstray(string(src), file); astray != "" {
			t.Fatal(astray)
		}
	})
}
