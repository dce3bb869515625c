package shell

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/core/lint"
	"gpuard/test/steps"
)

// show writes the steps one per line.
func show(steps []lint.Step) string {
	var b strings.Builder
	for _, s := range steps {
		var words []string
		for _, w := range s.With {
			words = append(words, w.Name+"="+shownValue(w.Value))
		}
		for _, w := range s.Words {
			words = append(words, shownValue(w))
		}
		fmt.Fprintf(&b, "%d:%d-%d:%d %s", s.At.Line, s.At.Column, s.At.EndLine, s.At.EndColumn, s.Do)
		if s.Name != "" {
			b.WriteString(" " + s.Name)
		}
		if s.Do == lint.Set || s.Do == lint.Setting {
			b.WriteString("=" + shownValue(s.Value))
		}
		for _, w := range words {
			b.WriteString(" " + w)
		}
		for _, mark := range []struct {
			on   bool
			text string
		}{{s.How != "" && s.How != "assignment", "how " + s.How}, {s.Exported, "exported"}, {s.Lost != "", "lost in " + s.Lost}, {s.Join != "", "after " + s.Join}, {s.Beside, "beside"}, {s.Maybe, "maybe"}, {s.In != "", "in " + s.In}} {
			if mark.on {
				b.WriteString(", " + mark.text)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

func shownValue(v lint.Value) string {
	if !v.Known {
		return "?" + v.Text
	}
	return "[" + v.Text + "]"
}

// TestRead compares what a script does, one step per line.
func TestRead(t *testing.T) {
	for _, c := range []struct{ name, src, want string }{
		{"assignment", "X=1\n", "1:1-1:4 set X=[1]\n"},
		{"exported later", "X=1\nexport X\n", "1:1-1:4 set X=[1], exported\n"},
		{"exported before", "export X\nX=1\n", "2:1-2:4 set X=[1], exported\n"},
		{"export with value", "export X='0,1' Y\n", "1:8-1:15 set X=[0,1], how export, exported\n"},
		{"quoted whole", "export \"X=0\"\n", "1:8-1:13 set X=[0], how export, exported\n"},
		{"declare", "declare -x X=1; declare -i Y=1; typeset -gx Z=1; local -x A=1; readonly B=1\n", "1:12-1:15 set X=[1], how declare, exported\n1:28-1:31 set Y=[1], how declare\n" +
			"1:45-1:48 set Z=[1], how typeset, exported\n1:59-1:62 set A=[1], how local, exported\n1:73-1:76 set B=[1], how readonly\n"},
		{"all exported", "set -a\nX=1\nset +a\nY=1\nX=2\n", "1:1-1:7 command [set] [-a]\n2:1-2:4 set X=[1], exported\n3:1-3:7 command [set] [+a]\n4:1-4:4 set Y=[1]\n5:1-5:4 set X=[2], exported\n"},
		{"all exported, long", "set -euo allexport\nX=1\n", "1:1-1:19 command [set] [-euo] [allexport]\n2:1-2:4 set X=[1], exported\n"},
		{"export taken back", "export X=1; export -n X; X=2\n", "1:8-1:11 set X=[1], how export, exported\n1:26-1:29 set X=[2]\n"},
		{"prefix", "X=1 Y=\"$Z\" python train.py --n=\"4\"\n", "1:1-1:35 command X=[1] Y=?\"$Z\" [python] [train.py] [--n=4]\n"},
		{"chain", "X=1 a && b || c; d | e & f\n", "1:1-1:6 command X=[1] [a]\n1:10-1:11 command [b], after &&\n1:15-1:16 command [c], after ||, maybe\n" +
			"1:18-1:19 command [d], beside\n1:22-1:23 command [e], after |, beside\n1:26-1:27 command [f], after &\n"},
		{"subshell that uses it", "(export X=1; python a)\n", "1:9-1:12 set X=[1], how export, exported\n1:14-1:22 command [python] [a]\n"},
		{"subshell that does not", "(cd /tmp; export X=1)\npython a\n", "1:2-1:9 command [cd] [/tmp]\n1:18-1:21 set X=[1], how export, exported, lost in subshell\n2:1-2:9 command [python] [a]\n"},
		{"export in a subshell does not last", "X=1\n(X=2; export X)\nX=3\n", "1:1-1:4 set X=[1], exported\n2:2-2:5 set X=[2], exported, lost in subshell\n3:1-3:4 set X=[3]\n"},
		{"pipeline", "echo 1 | read X\nexport Y=1 | tee log\n", "1:1-1:7 command [echo] [1]\n1:10-1:16 command [read] [X], after |\n1:15-1:16 set X=?X, how read, lost in pipeline\n" +
			"2:8-2:11 set Y=[1], how export, exported, lost in pipeline\n2:14-2:21 command [tee] [log], after |\n"},
		{"lastpipe", "shopt -s lastpipe\necho 1 | read X\n", "1:1-1:18 command [shopt] [-s] [lastpipe]\n2:1-2:7 command [echo] [1]\n2:10-2:16 command [read] [X], after |\n2:15-2:16 set X=?X, how read\n"},
		{"loop in a pipeline", "a | while read g; do python x; export X=1; done\n", "1:1-1:2 command [a]\n1:11-1:17 command [read] [g], after |, maybe\n1:16-1:17 set g=?g, how read, maybe\n" +
			"1:22-1:30 command [python] [x], maybe\n1:39-1:42 set X=[1], how export, exported, maybe\n"},
		{"background", "export X=1 &\n", "1:8-1:11 set X=[1], how export, exported, lost in background\n"},
		{"substitution", "n=$(X=1 count)\n", "1:5-1:14 command X=[1] [count]\n1:1-1:15 set n=?$(X=1 count)\n"},
		{"branch", "if [ -z \"$X\" ]; then X=1; else X=2; fi\n[ -n \"$Y\" ] && Y=1\n", "1:4-1:15 command [[] [-z] ?\"$X\" []]\n1:22-1:25 set X=[1], how ${:=}, maybe\n1:32-1:35 set X=[2], maybe\n" +
			"2:1-2:12 command [[] [-n] ?\"$Y\" []]\n2:16-2:19 set Y=[1], maybe\n"},
		{"function", "f() {\n  export X=1\n}\nf\n", "1:1-3:2 define f\n2:10-2:13 set X=[1], how export, exported, in f\n4:1-4:2 command [f]\n"},
		{"default", ": \"${X:=0}\"\n", "1:4-1:11 set X=[0], how ${:=}, maybe\n1:1-1:12 command [:] ?\"${X:=0}\"\n"},
		{"for", "for X in 0 1; do python a & done; wait\n", "1:5-1:13 set X=?X in 0 1, how for\n1:18-1:26 command [python] [a], beside, maybe\n1:35-1:39 command [wait]\n"},
		{"here-doc", "cat > run.sh <<'EOF'\nX=1\nEOF\n", "1:1-1:4 command [cat]\n2:1-3:1 script\n"},
		{"unset", "unset X Y\nunset -f g\n", "1:1-1:10 command [unset] [X] [Y]\n1:7-1:8 unset X, how unset\n1:9-1:10 unset Y, how unset\n2:1-2:11 command [unset] [-f] [g]\n"},
		{"continued", "X=1 \\\n  python a\n", "1:1-2:11 command X=[1] [python] [a]\n"},
		{"escapes", `echo a\ b "c\"d" 'e'"f"g "\n" $'x\n' $'y'` + "\n", "1:1-1:42 command [echo] [a b] [c\"d] [efg] [\\n] ?$'x\\n' [y]\n"},
		{"empty", "X=\nY=''\nX= a\n", "1:1-1:3 set X=[]\n2:1-2:5 set Y=[]\n3:1-3:5 command X=[] [a]\n"},
		{"array and append", "X=(0 1)\nY+=,1\n", "1:1-1:8 set X=?X=(0 1)\n2:1-2:6 set Y=?Y+=,1\n"},
		{"declaration that is refused", "export X= 1\n", "1:1-1:12 command [export] [X=] [1]\n1:8-1:10 set X=[], how export, exported\n"},
		{"defaults", "[ -z \"$X\" ] && X=1\n[[ -z $X && $Y == \"\" ]] && { X=1; Y=2; Z=3; }\nif [ \"$X\" = \"\" ] && test -z $Y; then export X=1 Y=2; fi\nif [ -z \"$X\" ] || [ -z \"$Y\" ]; then X=1; fi\nif ! [ -z \"$X\" ]; then X=1; fi\n", strings.Join([]string{
			"1:1-1:12 command [[] [-z] ?\"$X\" []]", "1:16-1:19 set X=[1], how ${:=}, maybe",
			"2:30-2:33 set X=[1], how ${:=}, maybe", "2:35-2:38 set Y=[2], how ${:=}, maybe", "2:40-2:43 set Z=[3], maybe",
			"3:4-3:17 command [[] ?\"$X\" [=] [] []]", "3:21-3:31 command [test] [-z] ?$Y, after &&, maybe", "3:45-3:48 set X=[1], how ${:=}, exported, maybe", "3:49-3:52 set Y=[2], how ${:=}, exported, maybe",
			"4:4-4:15 command [[] [-z] ?\"$X\" []]", "4:19-4:30 command [[] [-z] ?\"$Y\" []], after ||, maybe", "4:37-4:40 set X=[1], exported, maybe",
			"5:6-5:17 command [[] [-z] ?\"$X\" []]", "5:24-5:27 set X=[1], exported, maybe", ""}, "\n")},
		{"chain of tests", "[ a ] && cd b && X=1\ncd b && X=1\n", "1:1-1:6 command [[] [a] []]\n1:10-1:14 command [cd] [b], after &&, maybe\n1:18-1:21 set X=[1], maybe\n2:1-2:5 command [cd] [b]\n2:9-2:12 set X=[1]\n"},
		{"slurm", "#!/bin/bash -l\n#SBATCH --gres=gpu:2 -N1 # two\n#SBATCH -G 4\n##SBATCH --gres=gpu:8\n\necho\n#SBATCH --gres=gpu:9\n", "1:1-1:15 setting shebang=[/bin/bash -l]\n2:9-2:21 setting sbatch.gres=[gpu:2], how #SBATCH\n" +
			"2:22-2:25 setting sbatch.nodes=[1], how #SBATCH\n3:9-3:13 setting sbatch.gpus=[4], how #SBATCH\n6:1-6:5 command [echo]\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := ReadSteps("a.sh", []byte(c.src))
			if err != nil {
				t.Fatal(err)
			}
			if got := show(f.Steps); got != c.want {
				t.Errorf("of\n%s\ngot\n%s\nwant\n%s", c.src, got, c.want)
			}
		})
	}
}

// TestReadPiecewise: what the parser refuses costs its line, and no other; the places of the rest are right.
func TestReadPiecewise(t *testing.T) {
	for _, c := range []struct {
		name, src string
		unread    int
		want      []string
	}{
		{"placeholder", "CKPT=<path to x>\nA=1 b\n", 0, []string{`1:1 set CKPT assignment ?"<path to x>"`, `2:1 command with A="1" ="b"`}},
		{"valid bash", "A=( --freq [0]*3+[1]*58 )\nA=1 b\n", 1, []string{`2:1 command with A="1" ="b"`}},
		{"in a loop", "for i in 1 2; do\n  a=(-x [0]*3)\n  b\ndone\nc; d\n", 1, []string{
			`1:5 set i for ?"i in 1 2"`, `3:3 command maybe ="b"`, `5:1 command ="c"`, `5:4 command ="d"`}},
		{"after another", "a; b (\nc\n", 1, []string{`1:1 command ="a"`, `2:1 command ="c"`}},
		{"continued", "a\n( b \\\n ) ) \\\n c\nd\n", 2, []string{`1:1 command ="a"`, `2:3 command ="b"`, `5:1 command ="d"`}},
		{"here-document kept", "cat <<X | b\nc )\nX\nd )\ne\n", 1, []string{`1:1 command ="cat"`, `1:11 command ="b"`, `5:1 command ="e"`}},
		{"here-document passed over", "a\ncat <<X )\nb\nX\nc\nd\n", 3, []string{`1:1 command ="a"`, `5:1 command ="c"`, `6:1 command ="d"`}},
		{"endless here-document", "a\ncat <<X\nd\ne\n", 3, []string{`1:1 command ="a"`}},
		{"endless quote", "a\necho \"b\nc\n", 1, []string{`1:1 command ="a"`, `3:1 command ="c"`}},
		{"open branch", "a\nif b; then\nc\n", 1, []string{`1:1 command ="a"`, `3:1 command ="c"`}},
	} {
		f, err := ReadSteps("a.sh", []byte(c.src))
		if got := steps.RenderSteps(c.src, f); err != nil || f.Unread != c.unread || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %d unread\n got %s\nwant %s", c.name, err, f.Unread, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
	}
}

// TestHanded: scripts that go to another shell, or into a file.
func TestHanded(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{`bash -c "A=1 b"`, `1:10 script indent 0 "A=1 b"`},
		{`bash -c "A=$x b"`, `1:10 script indent 0 "A=$x b"`},
		{`bash -o pipefail -c 'b'`, `1:22 script indent 0 "b"`},
		{`bash -x a.sh -c 'b'`, ``},
		{"bash -c '\n  b\nc'", `1:10 script indent 0 "\n  b\nc"`},
		{`bash -c "a \"b\""`, `1:9 script indent -1 "a \"b\""`},
		{`nohup env X=1 timeout 5 sh -c 'b' &`, `1:32 script indent 0 "b"`},
		{`ssh -p 22 host 'A=1 b'`, `1:17 script indent 0 apart "A=1 b"`},
		{`ssh host A=1  b`, `1:10 script indent 0 apart "A=1  b"`},
		{`ssh host`, ``},
		{`tmux new-session -d -s a "A=1 b"`, `1:27 script indent 0 apart "A=1 b"`},
		{`tmux send-keys -t a 'A=1 b' Enter`, `1:22 script indent 0 apart "A=1 b"`},
		{`tmux display-message "a b"`, ``},
		{`screen -dmS a bash -c 'A=1 b'`, `1:24 script indent 0 "A=1 b"`},
		{`screen -S a -X stuff 'A=1 b'`, `1:23 script indent 0 apart "A=1 b"`},
		{`sbatch --gres=gpu:1 --wrap "A=1 b"`, `1:29 script indent 0 "A=1 b"`},
		{`sbatch --wrap="A=1 b"`, `1:16 script indent 0 "A=1 b"`},
		{`su - user -c "A=1 b"`, `1:15 script indent 0 apart "A=1 b"`},
		{`seq 3 | xargs -I@ sh -c 'A=@ b'`, `1:26 script indent 0 "A=@ b"`},
		{`seq 3 | xargs -I{} sh -c 'A={} b'`, ``},
		{`docker run x bash -c 'A=1 b'`, `1:23 script indent 0 apart "A=1 b"`},
		{`echo "export A=1" >> ~/.bashrc`, `1:7 script indent 0 apart "export A=1"`},
		{`echo export A=1 >> ~/.bashrc`, `1:6 script indent 0 apart "export A=1"`},
		{`echo "A=1" >> log`, ``},
		{`echo "A=1" | sudo tee -a ~/.bashrc`, `1:7 script indent 0 apart "A=1"`},
		{`printf "A=1\n" >> ~/.profile`, `1:9 script indent -1 apart "A=1\n"`},
		{`printf "A=%s" 1 >> ~/.profile`, ``},
		{`eval "A=1 b"`, `1:7 script indent 0 apart "A=1 b"`},
		{"cat <<X >> ~/.bashrc\nexport A=1\nX", `2:1 script indent 0 apart "export A=1\n"`},
		{"cat > job.sh <<'X'\nb $c\nX", `2:1 script indent 0 apart "b $c\n"`},
		{"cat > job.sh <<X\nb \\$c\nX", `2:1 script indent -1 apart "b $c\n"`},
		{"cat > a.py <<X\n#!/usr/bin/env python\nX", ``},
		{"cat > a <<X\n#!/bin/bash\nX", `2:1 script indent 0 apart "#!/bin/bash\n"`},
		{"sudo tee /etc/profile.d/a.sh <<X\nb\nX", `2:1 script indent 0 apart "b\n"`},
		{"ssh -p 22 host <<X\nb\nX", `2:1 script indent 0 apart "b\n"`},
		{"ssh host 'cat > x' <<X\nb\nX", `1:11 script indent 0 apart "cat > x"`},
		{"ssh host bash -s <<X\nb\nX", `1:10 script indent 0 apart "bash -s" 2:1 script indent 0 apart "b\n"`},
		{"bash <<X\nb\nX", `2:1 script indent 0 "b\n"`},
		{"bash a.sh <<X\nb\nX", ``},
		{"python - <<X\nb\nX", ``},
		{"sbatch -p a <<X\n#!/bin/bash\nb\nX", `2:1 script indent 0 apart "#!/bin/bash\nb\n"`},
	} {
		f, err := ReadSteps("a.sh", []byte(c.src+"\n"))
		var got []string
		for _, s := range f.Steps {
			if s.Do != lint.Script {
				continue
			}
			one := fmt.Sprintf("%d:%d script indent %d", s.At.Line, s.At.Column, s.Indent)
			if s.Apart {
				one += " apart"
			}
			got = append(got, one+fmt.Sprintf(" %q", s.Value.Text))
		}
		if line := strings.Join(got, " "); err != nil || line != c.want {
			t.Errorf("%s: %v\n got %s\nwant %s", c.src, err, line, c.want)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	for name, src := range map[string]string{
		"half":     "if true; then\n",
		"fish":     "#!/usr/bin/env fish\nset -gx X 1\n",
		"csh":      "#!/bin/csh -f\nsetenv X 1\n",
		"nested":   strings.Repeat("(", 2<<20),
		"branches": strings.Repeat("if ", 2<<20/3),
	} {
		if f, err := ReadSteps("a.sh", []byte(src)); err == nil || len(f.Steps) > 0 {
			t.Errorf("%s: %d steps, error %v", name, len(f.Steps), err)
		}
	}
	if _, err := ReadSteps("conf.fish", []byte("set -gx X 1\n")); err == nil {
		t.Error("a fish script by its name is read")
	}
}

func FuzzRead(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.sh")
	for _, path := range files {
		src, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src)
	}
	f.Add([]byte("#!/bin/bash\n#SBATCH -G 2\nX=1 a && (export X=2) | b $(c) &\nfor i in 1; do f; done; : ${X:=1}\n"))
	f.Add([]byte("#!/bin/zsh\nX=1 a; export \"Y=$(b)\"; case $x in a) b;; esac; unset X; read X <<< 1\n"))
	f.Add([]byte("docker run --gpus device=0,1 -eX=1 -it image\nsudo -E env -u A B=1 nohup python x\nset X=1\nX= 1\nexport X= 1\nshopt lastpipe\n"))
	f.Add([]byte("CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=4 a.py && deepspeed --include localhost:0 b.py | vllm serve c -tp 2 &\nconda env config vars set HIP_VISIBLE_DEVICES=1\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		file, err := ReadSteps("a.sh", src)
		if err != nil && len(file.Steps) > 0 {
			t.Fatal("an error with steps")
		}
		lint.ApplyRules(file, true) // no rule may fail on what the reader gives
		lines := strings.Count(string(src), "\n") + 1
		for _, s := range file.Steps {
			if s.At.Line < 1 || s.At.EndLine > lines+1 || s.At.Column < 1 || s.At.EndLine < s.At.Line {
				t.Fatalf("place %+v of %d lines", s.At, lines)
			}
			if s.Do == lint.Command && len(s.Words) == 0 {
				t.Fatal("a command without words")
			}
		}
	})
}

// TestFirstUnread: of what is passed over the first line is told.
func TestFirstUnread(t *testing.T) {
	for text, want := range map[string]int{
		"echo a\nif then\nexport CUDA_VISIBLE_DEVICES=0\npython t.py\npython <x> | |\n": 2,
		"python t.py\npython u.py\npython v.py\necho \"open\n":                          4,
		"echo a\n": 0,
	} {
		f, err := ReadSteps("t.sh", []byte(text))
		if err != nil || f.FirstUnread != want {
			t.Errorf("%q: line %d, %v; want %d", text, f.FirstUnread, err, want)
		}
	}
}
