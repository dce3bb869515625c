package desktop

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestRewrite(t *testing.T) {
	const src = "#!/x\n\n[Desktop Entry]\r\nName = a=b\nName[de]=ä\r\n# Name=c\nExec=x %U\nMimeType=a;\nno value\n[Other]\nName=c"
	var seen []string
	out, err := Rewrite([]byte(src), func(group, key, value string) (string, bool) {
		seen = append(seen, group+"|"+key+"|"+value)
		return value + "!", key != "MimeType"
	})
	const want = "#!/x\n\n[Desktop Entry]\r\nName = a=b!\nName[de]=ä!\r\n# Name=c\nExec=x %U!\nno value\n[Other]\nName=c!"
	if err != nil || string(out) != want {
		t.Errorf("%q %v\nwant %q", out, err, want)
	}
	if got := strings.Join(seen, " "); got != "Desktop Entry|Name|a=b Desktop Entry|Name[de]|ä Desktop Entry|Exec|x %U Desktop Entry|MimeType|a; Other|Name|c" {
		t.Error(got)
	}
	for _, bad := range []string{"Name=x\n", "[Desktop Entry]\nName=\xff\n", "\x00"} {
		if _, err := Rewrite([]byte(bad), func(_, _, v string) (string, bool) { return v, true }); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestPrefixed(t *testing.T) {
	words := []string{"/a b/gpuard", "run", "--"}
	for value, want := range map[string]string{
		`prog`:                       `"/a b/gpuard" run -- prog --x "y z"`,
		`prog --a %U --b`:            `"/a b/gpuard" run -- prog --a --x "y z" %U --b`,
		`"/p q/prog" "%U" %i %F`:     `"/a b/gpuard" run -- "/p q/prog" "%U" %i --x "y z" %F`,
		`sh -c "echo \\$X" 100%% %f`: `"/a b/gpuard" run -- sh -c "echo \\$X" 100%% --x "y z" %f`,
	} {
		if got := PrefixExec(value, words, []string{"--x", "y z"}); got != want {
			t.Errorf("%s: %s\nwant %s", value, got, want)
		}
		if got := PrefixExec(value, words, nil); got != `"/a b/gpuard" run -- `+value {
			t.Errorf("%s: %s", value, got)
		}
	}
}

// TestWord: what is written is read as it was, as one word among others.
func TestWord(t *testing.T) {
	runes := []rune("ab \"'`\\$%;~&*?#()<>|\t\n\r-é\U0001f600=[]{}!")
	for range 20000 {
		var words []string
		for range 1 + rand.IntN(4) {
			var b strings.Builder
			for range rand.IntN(8) {
				b.WriteRune(runes[rand.IntN(len(runes))])
			}
			words = append(words, b.String())
		}
		round(t, words)
	}
}

func round(t *testing.T, words []string) {
	t.Helper()
	value := PrefixExec("prog %U", nil, words)
	f, err := ReadSteps("a.desktop", []byte("[Desktop Entry]\nExec="+value+"\n"))
	if err != nil || len(f.Steps) == 0 || len(f.Steps[0].Words) != len(words)+2 {
		t.Fatalf("%q is written %s and read %+v %v", words, value, f.Steps, err)
	}
	for i, w := range f.Steps[0].Words[1 : len(words)+1] {
		if w.Text != words[i] || !w.Known {
			t.Fatalf("%q is written %s and read %q", words[i], value, w.Text)
		}
	}
}

func FuzzRewrite(f *testing.F) {
	f.Add([]byte("[Desktop Entry]\r\nName[de]= x\nExec=a \"b\" %U\\\n"), "$x")
	f.Fuzz(func(t *testing.T, src []byte, word string) {
		same, err := Rewrite(src, func(_, key, value string) (string, bool) {
			if key == "Exec" {
				_ = PrefixExec(value, []string{word}, []string{word})
			}
			return value, true
		})
		if err == nil && string(same) != string(src) {
			t.Fatalf("%q became %q", src, same)
		}
		if !strings.Contains(word, "\x00") {
			round(t, []string{word})
		}
	})
}

// TestWithoutLists: a list of devices is taken away with the env that has nothing else to do; everything else stays as it
// is written.
func TestWithoutLists(t *testing.T) {
	for value, want := range map[string]string{
		"env CUDA_VISIBLE_DEVICES=0 mtools %f":                     "mtools %f",
		"env CUDA_VISIBLE_DEVICES=0 LANG=C mtools":                 "env LANG=C mtools",
		"/usr/bin/env -u X HIP_VISIBLE_DEVICES=1 \"a b\" --x":      "/usr/bin/env -u X \"a b\" --x",
		"nice -n 5 env CUDA_VISIBLE_DEVICES=0,1 mtools":            "nice -n 5 mtools",
		"env LANG=C mtools":                                        "env LANG=C mtools",
		"mtools --devices CUDA_VISIBLE_DEVICES=0":                  "mtools --devices CUDA_VISIBLE_DEVICES=0",
		"env CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES= m": "env CUDA_DEVICE_ORDER=PCI_BUS_ID m",
		"": "",
	} {
		got, dropped := WithoutLists(value)
		if got != want || (len(dropped) > 0) != (got != value) {
			t.Errorf("%s: %q without %q, not %q", value, got, dropped, want)
		}
	}
}
