package dockerfile

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
		{"variables", "FROM a:1\nENV CUDA_VISIBLE_DEVICES=0,1 A=\"b c\" B='$x' C=\"$x\" D=a\\ b\nenv OLD  one two \nENV E=\n", []string{
			`1:1 setting FROM in 0 ="a:1"`,
			`2:5 set CUDA_VISIBLE_DEVICES ENV in 0 ="0,1"`,
			`2:30 set A ENV in 0 ="b c"@"\"b c\""`,
			`2:38 set B ENV in 0 ="$x"@"'$x'"`,
			`2:45 set C ENV in 0 ?"\"$x\""`,
			`2:52 set D ENV in 0 ="a b"@"a\\ b"`,
			`3:5 set OLD ENV in 0 ="one two"`,
			`4:5 set E ENV in 0 =""`,
		}},
		{"continued", "FROM a\n  ENV A=1 \\\n# remark\n\n    B=2 \\  \n  C=3\n", []string{
			`1:1 setting FROM in 0 ="a"`,
			`2:7 set A ENV in 0 ="1"`,
			`5:5 set B ENV in 0 ="2"`,
			`6:3 set C ENV in 0 ="3"`,
		}},
		{"stages", "ARG V=1\nFROM --platform=linux/amd64 nvidia/cuda:${V} AS Build\nARG X=\nARG Y\nFROM build\n", []string{
			`1:5 set V ARG maybe ="1"`,
			`2:1 setting FROM in build ?"nvidia/cuda:${V}"`,
			`3:5 set X ARG in build maybe =""`,
			`5:1 setting FROM in 1 ="build"`,
		}},
		{"exec", "FROM a\nENTRYPOINT [\"torchrun\", \"--nproc_per_node=2\"]\nCMD [\"--x\",\n", []string{
			`1:1 setting FROM in 0 ="a"`,
			`2:12 command in 0 ="torchrun"@"\"torchrun\"" ="--nproc_per_node=2"@"\"--nproc_per_node=2\""`,
			`3:5 script in 0 indent 0 ="[\"--x\","`,
		}},
		{"options", "FROM a\nENTRYPOINT [\"vllm\"]\nCMD [ \"--x\", \\\n  \"y\\u0041\" ]\n", []string{
			`1:1 setting FROM in 0 ="a"`,
			`2:12 command in 0 ="vllm"@"\"vllm\""`,
			`3:5 command in 0 ="vllm"@"\"vllm\"" ="--x"@"\"--x\"" ="yA"@"\"y\\u0041\""`,
		}},
		{"shell form", "FROM a\nRUN --mount=type=cache,target=/x export A=1 \\\n # remark\n  && make\nCMD exec python x.py\nHEALTHCHECK --interval=5s CMD nvidia-smi\nHEALTHCHECK NONE\n", []string{
			`1:1 setting FROM in 0 ="a"`,
			`2:34 script in 0 indent 0 ="export A=1 \\\n        \\\n  && make"@"export A=1 \\\n # remark\n  && make"`,
			`5:5 script in 0 indent 0 ="exec python x.py"`,
			`6:31 script in 0 indent 0 ="nvidia-smi"`,
		}},
		{"sh -c", "FROM a\nCMD [\"/bin/bash\", \"-lc\", \"python x.py\"]\n", []string{
			`1:1 setting FROM in 0 ="a"`,
			`2:5 command in 0 ="/bin/bash"@"\"/bin/bash\"" ="-lc"@"\"-lc\"" ="python x.py"@"\"python x.py\""`,
			`2:27 script in 0 indent 0 ="python x.py"@"\"python x.py\""`,
		}},
		{"other shell", "FROM a\nSHELL [\"powershell\", \"-Command\"]\nRUN $x = 1\nFROM b\nRUN y\n", []string{
			`1:1 setting FROM in 0 ="a"`,
			`4:1 setting FROM in 1 ="b"`,
			`5:5 script in 1 indent 0 ="y"`,
		}},
		{"here-document", "FROM a\nRUN <<EOF\nexport A=1\nmake\nEOF\nRUN <<'PY' python3\nimport torch\nPY\nRUN <<EOF\n#!/usr/bin/env python3\nx = 1\nEOF\nENV B=1\n", []string{
			`1:1 setting FROM in 0 ="a"`,
			`3:1 script in 0 indent 0 ="export A=1\nmake\n"@"export A=1\nmake"`,
			`6:5 script in 0 indent 0 ="<<'PY' python3\nimport torch\nPY"@"<<'PY' python3"`,
			`13:5 set B ENV in 0 ="1"`,
		}},
		{"escape", "# escape=`\r\nFROM a\r\nENV A=1 `\r\n  B=C:\\x\r\nRUN x `\r\n  y\r\n", []string{
			`2:1 setting FROM in 0 ="a"`,
			`3:5 set A ENV in 0 ="1"`,
			`4:3 set B ENV in 0 ="C:\\x"`,
			"5:5 script in 0 indent 0 =\"x \\\\\\n  y\"@\"x `\\r\\n  y\"",
		}},
		{"later", "FROM a\nONBUILD ENV A=1\nONBUILD RUN make\n", []string{
			`1:1 setting FROM in 0 ="a"`,
			`2:13 set A ENV in 0 maybe ="1"`,
			`3:13 script in 0 maybe indent 0 ="make"`,
		}},
		{"mark and margin", "\ufeff  FROM a\n \tENV é=ü\n", []string{
			`1:6 setting FROM in 0 ="a"`,
			`2:7 set é ENV in 0 ="ü"`,
		}},
	} {
		f, err := ReadSteps("Dockerfile", []byte(c.src))
		if got := steps.RenderSteps(c.src, f); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v\n got %s\nwant %s", c.name, err, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
	}
}

// TestHereDocuments: an instruction inside of a here-document is none. The last line shows where it ended.
func TestHereDocuments(t *testing.T) {
	for _, c := range []struct {
		src  string
		ends bool // it is a here-document, and X is set only below it
	}{
		{"RUN <<EOF\nENV X=1\nEOF\n", true},
		{"RUN << EOF\nENV X=1\nEOF\n", true},
		{"RUN cat <<A 3<<\"B\"\nENV X=1\nA\nENV X=2\nB\n", true},
		{"COPY <<'a b' /x\r\nENV X=1\r\na b\r\n", true},
		{"run --mount=type=x cat <<-EOF\nENV X=1\n\t\tEOF\n", true},
		{"ONBUILD RUN <<EOF\nENV X=1\nEOF\n", true},
		{"RUN x \\\n# no\n <<EOF\nENV X=1\nEOF\n", true},
		{"RUN cat \"<<EOF\"\n", false},
		{"RUN cat a<<EOF\n", false},
		{"RUN cat <<<EOF\n", false},
		{"RUN it's <<EOF\n", false},
		{"CMD <<EOF\n", false},
		{"RUN [\"x\", \"<<EOF\"]\n", false},
	} {
		f, err := ReadSteps("Dockerfile", []byte(c.src+"ENV Y=1\n"))
		var set []string
		for _, s := range f.Steps {
			if s.Name != "" {
				set = append(set, s.Name)
			}
		}
		if err != nil || !slices.Equal(set, []string{"Y"}) {
			t.Errorf("%q: %v, %v", c.src, set, err)
		}
		cut := c.src[:strings.LastIndexByte(strings.TrimRight(c.src, "\n"), '\n')+1]
		if _, err := ReadSteps("Dockerfile", []byte("FROM a\n"+cut)); (err != nil) != c.ends {
			t.Errorf("%q, without its last line: %v", c.src, err)
		}
	}
}

// TestRefused: the messages of faults that Docker's parser finds.
func TestRefused(t *testing.T) {
	for src, want := range map[string]string{
		"":                              "there is no instruction in it",
		"# escape=`\n\n":                "there is no instruction in it",
		"# escape=x\nFROM a\n":          "line 1: escape must be \\ or `, and not \"x\"",
		"# escape=`\n#ESCAPE = `\nX\n":  "line 2: escape is set for the second time",
		"FROM a\nRUN <<EOF\nx\n":        "line 2: the here-document EOF does not end",
		"FROM a\nENV A\n":               "line 2: ENV A has no value",
		"FROM a\nLABEL a=b c\n":         "line 2: there is no = in \"c\": LABEL takes NAME=value",
		"FROM a\nONBUILD CMD [1]\n":     "line 2: the list of CMD must have strings only",
		"HEALTHCHECK CMD [\"a\", {}]\n": "line 1: the list of HEALTHCHECK must have strings only",
	} {
		if _, err := ReadSteps("Dockerfile", []byte(src)); err == nil || err.Error() != "cannot read the Dockerfile: "+want {
			t.Errorf("%q: %v", src, err)
		}
	}
	for _, src := range []string{"X\n# escape=x\n", "# a=b\n# escape=x\nX\n", "ENV A b c\n", "ENV\n", "HEALTHCHECK NONE\n", "CMD [x\n", "RUN x \\"} {
		if _, err := ReadSteps("Dockerfile", []byte(src)); err != nil {
			t.Errorf("%q: %v", src, err)
		}
	}
}

// TestUnread: an instruction that Docker refuses costs itself.
func TestUnread(t *testing.T) {
	for _, c := range []struct {
		src    string
		unread int
		want   []string
	}{
		{"FROM a\nLABEL a=b c\nENV A=1\n", 1, []string{`1:1 setting FROM in 0 ="a"`, `3:5 set A ENV in 0 ="1"`}},
		{"ENV A=0, 1\nRUN <<X\ny\n", 2, []string{`1:5 set A ENV ="0,"`, `1:1 setting ENV ="1"`}},
	} {
		f, err := ReadSteps("Dockerfile", []byte(c.src))
		if got := steps.RenderSteps(c.src, f); err != nil || f.Unread != c.unread || !slices.Equal(got, c.want) {
			t.Errorf("%q: %v, %d unread\n got %s", c.src, err, f.Unread, strings.Join(got, "\n     "))
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range []string{"FROM a AS b\nENV A=\"b\\\" c\" \\\n# x\n\n D='e'\nRUN --mount=a <<EOF\nx\nEOF\n", "# escape=`\nFROM a\nCMD [\"a\", \"\\\"b\"]\n", "FROM a\nENV a b\nONBUILD RUN x \\\n y\nHEALTHCHECK CMD x\n", "FROM a\nSHELL [\"x\"]\nRUN a\n", "\ufeffFROM a\r\nRUN <<-A <<B x\n\tA\nB\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		file, err := ReadSteps("Dockerfile", src)
		if err != nil {
			return
		}
		if astray := steps.FindAstray(string(src), file); astray != "" {
			t.Fatal(astray)
		}
	})
}
