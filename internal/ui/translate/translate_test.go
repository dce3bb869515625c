package translate

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gpuard/internal/core/visible"
)

// TestChooseLanguage: the language is that of messages, as setlocale(3) finds it, and only where the character set is UTF-8.
func TestChooseLanguage(t *testing.T) {
	for _, c := range []struct {
		env     visible.Env
		chinese bool
	}{
		{nil, false}, {visible.Env{"LANG=C.UTF-8"}, false}, {visible.Env{"LANG=zh_CN.UTF-8"}, true}, {visible.Env{"LANG=zh_SG.utf8"}, true},
		{visible.Env{"LANG=zh_TW.UTF-8"}, false}, {visible.Env{"LANG=zh_CN.UTF-8", "LC_ALL=C"}, false}, {visible.Env{"LANG=en_US.UTF-8", "LC_MESSAGES=zh_CN.UTF-8"}, true},
		{visible.Env{"LANG=zh_CN"}, false}, {visible.Env{"LANG=zh_CN.GB18030"}, false}, {visible.Env{"LANG=zh_CN.UTF-8", "LC_CTYPE=C"}, false}, {visible.Env{"LANG=zh_CN.UTF-8", "LC_ALL="}, true},
	} {
		if got := ChooseLanguage(c.env).catalogue != nil; got != c.chinese {
			t.Errorf("%v: Chinese %v, want %v", c.env, got, c.chinese)
		}
	}
}

// TestIsUTF8: the first of the three that is not empty decides.
func TestIsUTF8(t *testing.T) {
	for _, tt := range []struct {
		env  visible.Env
		want bool
	}{
		{visible.Env{"LANG=C.UTF-8"}, true}, {visible.Env{"LANG=en_US.utf8"}, true}, {visible.Env{"LC_ALL=C", "LANG=C.UTF-8"}, false},
		{visible.Env{"LC_ALL=", "LC_CTYPE=C.UTF-8"}, true}, {nil, false}, {visible.Env{"LANG=POSIX"}, false},
	} {
		if got := IsUTF8(tt.env); got != tt.want {
			t.Errorf("%v speaks UTF-8: %v, want %v", tt.env, got, tt.want)
		}
	}
}

// TestForms: forms are found in what is finished, holes are copied unless the form says otherwise, and what no form fits stays as it is.
func TestForms(t *testing.T) {
	forms := readForms("free\n\t空闲\n{#} of {} are {s}\n\t{2} 中 {1} 个{3}\nheld by {}\n\t被 {1} 占用\nPID {#} ({s})\n\tPID {1} ({2})\nby name ({})\n\t按名称 ({1})\nend it\n\t结束它\n")
	for text, want := range map[string]string{
		"free":                               "空闲",
		"2 of 4 are free":                    "4 中 2 个空闲",
		"two of 4 are free":                  "two of 4 are free",
		"held by free":                       "被 free 占用",
		"PID 7 (free)":                       "PID 7 (空闲)",
		"PID 7 (held by a; held by sh)":      "PID 7 (被 a 占用；被 sh 占用)",
		"held by a; held by bob":             "被 a 占用；被 bob 占用",
		"held by a; free":                    "被 a; free 占用",
		"free; whatever":                     "free; whatever",
		"held by bob, or end it":             "被 bob 占用，或者结束它",
		"by name (a; free)":                  "按名称 (a; free)",
		"held by ":                           "held by ",
		"held by {1} and {2}":                "被 {1} and {2} 占用",
		"":                                   "",
		"2 of {3} are free":                  "{3} 中 2 个空闲",
		"python -c 'free; 2 of 3 are free;'": "python -c 'free; 2 of 3 are free;'",
	} {
		if got, _ := translateText(forms, text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for locale, want := range map[string]string{"C": "free: a; free", "zh_CN": "空闲：a；空闲"} {
		l := ReadLocale(locale)
		if got := l.Join(": ", "free", l.Join("; ", "a", "free")); got != want {
			t.Errorf("%s: %q, want %q", locale, got, want)
		}
	}
}

// TestDays: a day that stands in a form is said in Chinese, and one inside of a name is not.
func TestDays(t *testing.T) {
	say := ReadLocale("zh").Translate
	for text, want := range map[string]string{"3 Mar 22:32": "3月3日 22:32", "11 Nov": "11月11日", "since 3 Mar 22:32": "自 3月3日 22:32", "free since 22:32 yesterday": "自 昨天 22:32 起空闲", "until about 00:32 tomorrow": "预计到 明天 00:32", "22 yesterday": "22 yesterday", "run of 3 Mar": "run of 3 Mar", "33 Mar": "33 Mar"} {
		if got := say(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// typed is what a person types: it must be the same in every language.
var typed = regexp.MustCompile(`gpuard [a-z]+|--[a-z][a-z-]*|kill -[A-Z]+|\(kill|sudo -u|nvidia-smi`)

// TestCatalogue: each form has one translation, which has every hole and every command of the English one.
func TestCatalogue(t *testing.T) {
	seen := map[string]bool{}
	for i := range readForms(chinese) {
		f := &readForms(chinese)[i]
		english := strings.Join(f.parts, "{}")
		if f.said == "" || seen[english] {
			t.Errorf("%q: no translation, or a second one", english)
		}
		seen[english] = true
		for i, h := range f.holes {
			if place := fmt.Sprintf("{%d}", i+1); strings.Count(f.said, place) != 1 {
				t.Errorf("%q: %s is not there once: %q", english, place, f.said)
			}
			if !slices.Contains([]placeholder{shortest, longest, number, sentence}, h) {
				t.Errorf("%q: %q is no hole", english, h)
			}
		}
		if strings.Contains(f.said, fmt.Sprintf("{%d}", len(f.parts))) || strings.Contains(f.said, "{}") {
			t.Errorf("%q: a hole too many: %q", english, f.said)
		}
		for _, words := range typed.FindAllString(english, -1) {
			if !strings.Contains(f.said, words) {
				t.Errorf("%q: %q is typed, and not in %q", english, words, f.said)
			}
		}
		if strings.TrimSpace(strings.Join(f.parts, "")) == "" {
			t.Errorf("%q fits anything", english)
		}
	}
}

// inChinese says a sentence.
func inChinese(text string) string { return ReadLocale("zh_CN").Translate(text) }

// TestWordsOfUsers: a name, a command or a reason that a person wrote comes out as it went in, whatever its words mean elsewhere.
func TestWordsOfUsers(t *testing.T) {
	for _, words := range []string{"free", "display", "held", "no GPU", "SIGTERM", "1 GPU", "it is 80 % busy", "loose (cable), until it is in use again", "a; free", "x, or end it", "broken (psu, since monday)", "fan noisy; no other is free"} {
		for _, sentence := range []string{"drained: %s (bob, since 27 Nov 17:35)", "GPU 2: drained: %s (bob, since 14:02)"} {
			text := fmt.Sprintf(sentence, words)
			if said := inChinese(text); !strings.Contains(said, words) {
				t.Errorf("%q\n\tis %q", text, said)
			}
		}
		isName := !strings.ContainsAny(words, "(;,")
		if !isName {
			continue
		}
		for _, sentence := range []string{
			"%s's run (lease k3f9, process 7) keeps it until it ends", "ask them, or act as them: sudo -u %s gpuard cancel k3f9",
			"leased as k3f9 by %s (train, PID 7)", "leased as k3f9 by bob (%s, PID 7, since 13:00)", "in use without a lease by PID 7 of bob (%s, 20 GiB, 3 h old)", "ended process 7 (%s)", "GPU 2: run of %s (PID 7) since 14:02", "GPU 2: %s of bob (PID 7) since 14:02", "service %s is up",
			"job 4 is queued; its output: /home/%s/log", "cannot find device %s: this machine has 0-3",
		} {
			text := fmt.Sprintf(sentence, words)
			if said := inChinese(text); !strings.Contains(said, words) {
				t.Errorf("%q\n\tis %q", text, said)
			}
		}
	}
}

// TestAnswers: each line that a command answers with has a form.
func TestAnswers(t *testing.T) {
	files, err := filepath.Glob("../cli/*cmd/*.go")
	more, _ := filepath.Glob("../commands/*.go")
	if files = append(files, more...); err != nil || len(files) < 50 {
		t.Fatal(len(files), err)
	}
	// the wholes of these have forms
	composed := []string{"%s", "job %d is %s", "%s, until %s", "%s: %s has ended"}
	verb := strings.NewReplacer("%d", "7", "%[1]d", "7", "%[2]d", "7", "%s", "x1", "%[1]s", "x1")
	count := 0
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			f, isMethod := call.Fun.(*ast.SelectorExpr)
			form, isText := call.Args[0].(*ast.BasicLit)
			if !isMethod || !isText || f.Sel.Name != "Answer" {
				return true
			}
			text, _ := strconv.Unquote(form.Value)
			count++
			if !slices.Contains(composed, text) && inChinese(verb.Replace(text)) == verb.Replace(text) {
				t.Errorf("%s: %q has no form in zh.txt", file, text)
			}
			return true
		})
	}
	if count < 20 {
		t.Errorf("only %d answers", count)
	}
}

// TestRefusals: what core/pick says in its scenarios is said in Chinese. Of refusals, remedies and notes no word of its own is left over; a
// scenario has only a piece of a reason, so there it is counted.
func TestRefusals(t *testing.T) {
	files, err := filepath.Glob("../../core/pick/testdata/*.txt")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	answer := regexp.MustCompile(`(?m)^  (reason \S+ \S+ \S+|busy|never|remedy-is|note-is) (.+)$`)
	checked, reasons, told, language := 0, 0, 0, ReadLocale("zh_CN")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(file) == "README.txt" {
			continue
		}
		for _, m := range answer.FindAllStringSubmatch(string(text), -1) {
			said := language.Translate(m[2])
			left := leftOver(said)
			switch whole := said != m[2] && len(left) == 0; {
			case strings.HasPrefix(m[1], "reason"):
				reasons++
				if whole {
					told++
				}
			case !whole:
				t.Errorf("%s: %q\n\tis %q, in which is English: %q", filepath.Base(file), m[2], said, left)
			default:
				checked++
			}
		}
	}
	if checked < 120 || told < reasons*7/10 {
		t.Errorf("%d sentences and %d of %d reasons", checked, told, reasons)
	}
}

// leftOver finds the words that should have been translated: English ones, but no names and nothing that is typed.
func leftOver(said string) []string {
	said = regexp.MustCompile(`\([^)]*\)|（[^）]*）|--[a-z-]+(?:[ =][^ ，；。）]+)?|/[^ ，；。]+|(?:sudo )?gpuard [^，；。、）]*|(?:kill|nvidia-smi|amd-smi|journalctl) [^，；。）]*|"[^"]*"`).ReplaceAllString(said, "")
	words := regexp.MustCompile(`[A-Za-z][a-z]{2,}[a-z]*`).FindAllString(said, -1)
	return slices.DeleteFunc(words, func(word string) bool { return slices.Contains(strings.Fields(names), word) })
}

// names are words of the scenarios that no language has another word for.
const names = `all none abcdef Force Mar alice bob carol python train slice docker gpuard cuda hip sub aaaa amd nvidia root rtx tolerate display Tensor Core GeForce Quadro Tesla NUMA PCIe NVLink Intel Ascend config yaml blender`

// TestDiscreetReason: what the page says to people without the token is Chinese, too.
func TestDiscreetReason(t *testing.T) {
	for text, want := range map[string]string{
		"cannot give GPU 0: in use by PID 7 of bob (python, 20 GiB)": "被占用：bob 的 PID 7 (python, 20 GiB)",
		"in use by PID 7 of bob (sh) and PID 8 of ann (python)":      "被占用：bob 的 PID 7 (sh) 和 ann 的 PID 8 (python)",
	} {
		if got := inChinese(text); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
