package crontab

import (
	"slices"
	"strings"
	"testing"

	"gpuard/test/steps"
)

func TestRead(t *testing.T) {
	const src = "# x\nA = \"0,1\"\n*/5 * * * * B=1 python a.py %in%x\n@reboot  root c\\%d\n* * * *\n0 1 * * * user E=1 f\n"
	for file, want := range map[string][]string{
		"crontab": {
			`2:1 set A crontab ="0,1"@"\"0,1\""`,
			`3:13 script in line 3 indent 0 ="B=1 python a.py "`,
			`4:10 script in line 4 indent -1 ="root c%d"@"root c\\%d"`,
			`6:11 script in line 6 indent 0 ="user E=1 f"`,
		},
		"/etc/cron.d/x": {
			`2:1 set A crontab ="0,1"@"\"0,1\""`,
			`3:17 script in line 3 indent 0 ="python a.py "`,
			`4:15 script in line 4 indent -1 ="c%d"@"c\\%d"`,
			`6:16 script in line 6 indent 0 ="E=1 f"`,
		},
	} {
		f, err := ReadSteps(file, []byte(src))
		if got := steps.RenderSteps(src, f); err != nil || f.Unread != 1 || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %d unread\n got %s\nwant %s", file, err, f.Unread, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("A = 'b' \n* * * * * c %d\\%e\n@daily f\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		file, err := ReadSteps("crontab", src)
		if err != nil {
			return
		}
		if astray := steps.FindAstray(string(src), file); astray != "" {
			t.Fatal(astray)
		}
	})
}
