package unit

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
		{"variables", "[Service]\nEnvironment=CUDA_VISIBLE_DEVICES=0,1 \"A=b c\" 'D=e' F=\"g h\" I=%i J=$K L=50%%\n", []string{
			`2:13 set CUDA_VISIBLE_DEVICES Environment= in Service ="0,1"`,
			`2:38 set A Environment= in Service ="b c"`,
			`2:46 set D Environment= in Service ="e"`,
			`2:52 set F Environment= in Service ="g h"@"\"g h\""`,
			`2:60 set I Environment= in Service ?"%i"`,
			`2:65 set J Environment= in Service ="$K"`,
			`2:70 set L Environment= in Service ="50%%"`,
		}},
		{"no assignment", "[Service]\nEnvironment=CUDA_VISIBLE_DEVICES=0, 1\nEnvironment=export A=1\nEnvironment=B-C=1\n", []string{
			`2:13 set CUDA_VISIBLE_DEVICES Environment= in Service ="0,"`,
			`2:1 setting Environment in Service ="1"`,
			`3:1 setting Environment in Service ="export"`,
			`3:20 set A Environment= in Service ="1"`,
			`4:1 setting Environment in Service ="B-C=1"`,
		}},
		{"reset", "[Service]\nEnvironment=A=1\nEnvironment=\nEnvironment=B=2\n[Other]\nEnvironment=\n", []string{
			`4:13 set B Environment= in Service ="2"`,
		}},
		{"continued", "[Service]\r\n  Environment = A=1 \\\r\n# remark\r\n; remark\r\n   B=2\\\r\n C=3\r\nExecStart=/bin/x \\\r\n  --y\r\n", []string{
			`2:17 set A Environment= in Service ="1"`,
			`5:4 set B Environment= in Service ="2"`,
			`6:2 set C Environment= in Service ="3"`,
			`7:1 command ExecStart in Service ="/bin/x" ="--y"`,
		}},
		{"programs", "[Service]\nExecStartPre=-/bin/a ; @/bin/b c \\; d\nExecStart=+!!/usr/bin/env A=1 ${B} $C 'x $D' $$E %i \"f\\x41\\101\\tg\" h\\qi\nEnvironment=Z=1\n", []string{
			`4:13 set Z Environment= in Service ="1"`,
			`2:1 command ExecStartPre in Service ="/bin/a"`,
			`2:1 command ExecStartPre in Service ="/bin/b" ="c" =";"@"\\;" ="d"`,
			`3:1 command ExecStart in Service ="/usr/bin/env" ="A=1" ?"${B}" ?"$C" ="x $D"@"'x $D'" ="$E"@"$$E" ?"%i" ="fAA\tg"@"\"f\\x41\\101\\tg\"" ="h\\qi"`,
		}},
		{"shell", "[Service]\nExecStart=/bin/bash -c 'export A=1; exec prog'\n", []string{
			`2:1 command ExecStart in Service ="/bin/bash" ="-c" ="export A=1; exec prog"@"'export A=1; exec prog'"`,
			`2:25 script in Service indent 0 ="export A=1; exec prog"@"'export A=1; exec prog'"`,
		}},
		{"quadlet", "[Container]\nImage=vllm\nAddDevice=nvidia.com/gpu=2\nEnvironment=CUDA_VISIBLE_DEVICES=2\nExec=serve --x 1\nPodmanArgs=--gpus all\n", []string{
			`2:1 setting Image in Container ="vllm"`,
			`3:1 setting AddDevice in Container ="nvidia.com/gpu=2"`,
			`4:13 set CUDA_VISIBLE_DEVICES Environment= in Container ="2"`,
			`6:1 setting PodmanArgs in Container ="--gpus"`,
			`6:1 setting PodmanArgs in Container ="all"`,
			`5:1 command Exec in Container ="serve" ="--x" ="1"`,
		}},
		{"two backslashes", "[Service]\nEnvironment=A=1\\\\\nEnvironment=B=2 \\\\\\\n C=3\n", []string{
			`2:13 set A Environment= in Service ="1\\"@"1\\\\"`,
			`3:13 set B Environment= in Service ="2"`,
			`3:1 setting Environment in Service ="\\"@"\\\\"`,
			`4:2 set C Environment= in Service ="3"`,
		}},
		{"odd", "[Service\nno equals \\\n Environment=X=1\n=\n[Service]\nEnvironment='A=1\nExecStart=\nExecStart=-\n\ufeffEnvironment=B=1\\", []string{
			`9:16 set B Environment= in Service ="1"`,
		}},
	} {
		f, err := ReadSteps("a.service", []byte(c.src))
		if got := steps.RenderSteps(c.src, f); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v\n got %s\nwant %s", c.name, err, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
	}
	if _, err := ReadSteps("a.service", []byte("[Service]\x00")); err == nil {
		t.Error("a binary is read")
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range []string{"[Service]\nEnvironment=A=1 \\\n# x\n 'B=2' \"C=\\x41\" \\;\nExecStart=-/bin/sh -c \"a ${B}\" ; c\n", "\ufeffExec=a\\\r\n", "[Container]\nExec=a\nEnvironment=\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		file, err := ReadSteps("a.service", src)
		if err != nil {
			return
		}
		if astray := steps.FindAstray(string(src), file); astray != "" {
			t.Fatal(astray)
		}
	})
}
