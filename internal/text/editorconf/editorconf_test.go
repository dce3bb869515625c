package editorconf

import (
	"slices"
	"strings"
	"testing"

	"gpuard/internal/core/lint"
	"gpuard/test/steps"
)

func TestRead(t *testing.T) {
	for _, c := range []struct {
		src  string
		read func(string, []byte) (lint.File, error)
		want []string
	}{
		{"{\n\t// x \"\n\t\"configurations\": [\n\t\t{\n\t\t\t\"type\": \"debugpy\", /* y\n */ \"program\": \"a.py\",\n\t\t\t\"args\": [\"--b\", \"${file}\"],\n\t\t\t\"env\": {\"CUDA_VISIBLE_DEVICES\": \"0-3\", \"U\": \"http://x\", \"N\": 1,},\n\t\t},\n\t]\n}\n", ReadLaunch, []string{
			`8:12 set CUDA_VISIBLE_DEVICES env in configuration 1 ="0-3"@"\"0-3\""`,
			`8:43 set U env in configuration 1 ="http://x"@"\"http://x\""`,
			`8:60 set N env in configuration 1 ="1"`,
			`5:12 command in configuration 1 ="python"@"\"debugpy\"" ="a.py"@"\"a.py\"" ="--b"@"\"--b\"" ?"${file}"@"\"${file}\""`,
		}},
		{"{\"argv\": [\"python\", \"-m\", \"ipykernel_launcher\"],\n \"env\": {\"A\": \"0,1\"}}\n", ReadKernel, []string{
			`2:10 set A env ="0,1"@"\"0,1\""`,
			`1:11 command ="python"@"\"python\"" ="-m"@"\"-m\"" ="ipykernel_launcher"@"\"ipykernel_launcher\""`,
		}},
		{"", ReadKernel, nil},
		{"[1]", ReadLaunch, nil},
	} {
		f, err := c.read("a.json", []byte(c.src))
		if got := steps.RenderSteps(c.src, f); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q: %v\n got %s\nwant %s", c.src, err, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("{\"configurations\": [{\"env\": {\"A\": \"b\"}, // c\n \"program\": \"d\", /* e */ \"args\": [\"f\"]}]}"))
	f.Fuzz(func(t *testing.T, src []byte) {
		for _, read := range []func(string, []byte) (lint.File, error){ReadLaunch, ReadKernel} {
			file, err := read("a.json", src)
			if err != nil {
				continue
			}
			for _, s := range file.Steps {
				if s.At.Line < 1 || s.At.EndLine < s.At.Line {
					t.Fatalf("place %+v", s.At)
				}
			}
		}
	})
}
