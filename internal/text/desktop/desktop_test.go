package desktop

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
		{"plain", "[Desktop Entry]\nName=A=b\nExec=CUDA_VISIBLE_DEVICES=1 prog %F\n", []string{
			`3:1 command Exec in Desktop Entry ="CUDA_VISIBLE_DEVICES=1" ="prog" ?"%F"`,
		}},
		{"quoted", "[Desktop Entry]\nExec = \"/opt/a b/x\" \"--y=\\\\$HOME\" \"q\\\\\"q\" 100%% a\\sb\n", []string{
			`2:1 command Exec in Desktop Entry ="/opt/a b/x"@"\"/opt/a b/x\"" ="--y=$HOME"@"\"--y=\\\\$HOME\"" ="q\"q"@"\"q\\\\\"q\"" ="100%"@"100%%" ="a" ="b"`,
		}},
		{"shell", "[Desktop Entry]\nExec=sh -c \"CUDA_VISIBLE_DEVICES=1 prog\"\n[Desktop Action two]\nExec=env A=1 bash -c 'B=2 prog %u'\r\nExec[de]=x\n", []string{
			`2:1 command Exec in Desktop Entry ="sh" ="-c" ="CUDA_VISIBLE_DEVICES=1 prog"@"\"CUDA_VISIBLE_DEVICES=1 prog\""`,
			`2:13 script in Desktop Entry indent 0 ="CUDA_VISIBLE_DEVICES=1 prog"@"\"CUDA_VISIBLE_DEVICES=1 prog\""`,
			`4:1 command Exec in Desktop Action two ="env" ="A=1" ="bash" ="-c" ?"B=2 prog %u"@"'B=2 prog %u'"`,
			`4:23 script in Desktop Action two indent 0 ?"B=2 prog %u"@"'B=2 prog %u'"`,
		}},
		{"odd", "Exec=\nExec=  \n#Exec=a\nExec=\"open\nTryExec=a\nExec\n\ufeff Exec=b", []string{
			`4:1 command Exec ="open"@"\"open"`,
			`7:5 command Exec ="b"`,
		}},
	} {
		f, err := ReadSteps("a.desktop", []byte(c.src))
		if got := steps.RenderSteps(c.src, f); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v\n got %s\nwant %s", c.name, err, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
	}
	if _, err := ReadSteps("a.desktop", []byte("Exec=a\x00")); err == nil {
		t.Error("a binary is read")
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range []string{"[Desktop Entry]\nExec=\"a b\" 'c' \\\\\"d %% %f\n", "Exec=sh -c \"a\\sb\"\r\n", "\ufeffExec=a\\"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		file, err := ReadSteps("a.desktop", src)
		if err != nil {
			return
		}
		if astray := steps.FindAstray(string(src), file); astray != "" {
			t.Fatal(astray)
		}
	})
}
