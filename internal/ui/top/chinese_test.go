package top

import (
	"regexp"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"gpuard/internal/ui/translate"
)

// names are what stays as it is in every language: users, jobs, models, units and keys.
var names = strings.Fields("alice bob zoe carol erin dave frank mallory bert-large resnet.py train.py infer notebook vllm miner python quick.py python3 finetune eval.py tune GPU A100-SXM4-80GB --lr --epochs epochs e-4 light dark mono Enter Esc Ctrl-C PgUp PgDn Home End CPU PID gpuard dave! mallory! pt_data_worker kill -CONT min")

var letters = regexp.MustCompile(`[A-Za-z][A-Za-z0-9.!_-]*`)

// TestChinese: on a Chinese screen no word of English is left, and nothing is wider than the terminal.
func TestChinese(t *testing.T) {
	for _, situation := range []string{"day", "trouble", "idle"} {
		for _, keys := range [][]string{nil, {"?"}, {"d"}, {"e"}, {"x"}, {"o"}, {"t"}, {"T"}, {"/"}} {
			for _, width := range []int{80, 200} {
				m := screenOf(atNoon(situation), width, 24+width/10, nil)
				m.language = translate.ReadLocale("zh_CN")
				m = typed(m, keys...)
				text := ansi.Strip(m.View().Content)
				for line := range strings.Lines(text) {
					if ansi.StringWidth(strings.TrimRight(line, "\n")) > width {
						t.Errorf("%s %q, %d columns: too wide: %q", situation, keys, width, line)
					}
				}
				for _, word := range letters.FindAllString(text, -1) {
					if len(word) > 2 && !known(word) {
						t.Errorf("%s %q, %d columns: %q is English\n%s", situation, keys, width, word, text)
						return
					}
				}
			}
		}
	}
}

// atNoon is a situation whose reasons are those that a translation has.
func atNoon(name string) *lab {
	l := situation(name)
	for i := range l.report.Waiting {
		l.report.Waiting[i].Why = "enough is free, and others are ahead of it"
	}
	return l
}

// known reports whether a word is a name, or a part of a unit, a lease or a column that was cut.
func known(word string) bool {
	for _, name := range names {
		if strings.HasPrefix(name, strings.TrimRight(word, "…")) {
			return true
		}
	}
	return regexp.MustCompile(`^(k[a-z]\d\d|[A-Z]\d+.*|hw_.*)$`).MatchString(word)
}
