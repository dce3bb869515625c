package translate

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/core/visible"
)

// TestOf: the language is that of messages, as setlocale(3) finds it, and only in UTF-8.
func TestOf(t *testing.T) {
	for _, c := range []struct {
		env     visible.Env
		chinese bool
	}{
		{nil, false}, {visible.Env{"LANG=C.UTF-8"}, false}, {visible.Env{"LANG=zh_CN.UTF-8"}, true}, {visible.Env{"LANG=zh_TW.utf8"}, true},
		{visible.Env{"LANG=zh_CN.UTF-8", "LC_ALL=C"}, false}, {visible.Env{"LANG=en_US.UTF-8", "LC_MESSAGES=zh_CN.UTF-8"}, true},
		{visible.Env{"LANG=zh_CN"}, false}, {visible.Env{"LANG=zh_CN.GB18030"}, false}, {visible.Env{"LANG=zh_CN.UTF-8", "LC_ALL="}, true},
	} {
		if got := !Of(c.env).IsEnglish(); got != c.chinese {
			t.Errorf("%v: Chinese %v, want %v", c.env, got, c.chinese)
		}
	}
}

// TestSentence: forms are found in what is finished, and what no form fits stays as it is.
func TestSentence(t *testing.T) {
	forms := readCatalogue("free\n\t空闲\n{#} of {} are {}\n\t{2} 中 {1} 个{3}\nheld by {}\n\t被 {1} 占用\nPID {#} ({})\n\tPID {1}（{2}）\n")
	for text, want := range map[string]string{
		"free":                               "空闲",
		"2 of 4 are free":                    "4 中 2 个空闲",
		"two of 4 are free":                  "two of 4 are free",
		"held by PID 7 (free; held by sh)":   "被 PID 7（free; held by sh） 占用",
		"free; held by bob":                  "空闲；被 bob 占用",
		"free; whatever":                     "free; whatever",
		"held by ":                           "held by ",
		"held by {1} and {2}":                "被 {1} and {2} 占用",
		"":                                   "",
		"2 of {3} are free":                  "{3} 中 2 个空闲",
		"python -c 'free; 2 of 3 are free;'": "python -c 'free; 2 of 3 are free;'",
	} {
		if got, _ := say(forms, text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// typed is what a person types: it must be the same in every language.
var typed = regexp.MustCompile(`gpuard [a-z]+|--[a-z][a-z-]*|\b(?:kill|sudo|nvidia-smi|mkdir|ssh)\b`)

// TestCatalogue: each form is translated, once, with all that stands in its holes and all that is typed.
func TestCatalogue(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range readCatalogue(chinese) {
		english := strings.Join(f.parts, "{}")
		if f.said == "" || seen[english] {
			t.Errorf("%q: no translation, or a second one", english)
		}
		seen[english] = true
		for i := range len(f.parts) - 1 {
			if hole := fmt.Sprintf("{%d}", i+1); strings.Count(f.said, hole) != 1 {
				t.Errorf("%q: %s is not there once: %q", english, hole, f.said)
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
		if len(f.parts) > 1 && len(strings.Fields(strings.Join(f.parts, " "))) == 0 {
			t.Errorf("%q fits anything", english)
		}
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
	checked, reasons, told, language := 0, 0, 0, Named("zh_CN.UTF-8")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(file) == "README.txt" {
			continue
		}
		for _, m := range answer.FindAllStringSubmatch(string(text), -1) {
			said := language.Sentence(m[2])
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

// leftOver are the English words of a sentence in Chinese that nobody types and that are no names.
func leftOver(said string) []string {
	said = regexp.MustCompile(`\([^)]*\)|（[^）]*）|--[a-z-]+(?:[ =][^ ，；。）]+)?|/[^ ，；。]+|(?:sudo )?gpuard [^，；。、）]*|(?:kill|nvidia-smi|amd-smi|journalctl) [^，；。）]*|"[^"]*"`).ReplaceAllString(said, "")
	words := regexp.MustCompile(`[A-Za-z][a-z]{2,}[a-z]*`).FindAllString(said, -1)
	return slices.DeleteFunc(words, func(word string) bool { return slices.Contains(strings.Fields(names), word) })
}

// names are words of the scenarios that no language has another word for.
const names = `all none abcdef Force Mar alice bob carol python train slice docker gpuard cuda hip sub aaaa amd nvidia root rtx tolerate display Tensor Core GeForce Quadro Tesla NUMA PCIe NVLink Intel Ascend config yaml blender`
