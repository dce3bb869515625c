package top

import (
	"regexp"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"gpuard/internal/ui/translate"
)

// untranslatedNames are what stays as it is in every language: users, jobs, models, units and keys.
var untranslatedNames = strings.Fields("alice bob zoe carol erin dave frank mallory bert-large resnet.py train.py infer notebook vllm miner python quick.py python3 finetune eval.py tune GPU A100-SXM4-80GB --lr --epochs epochs e-4 light dark mono Enter Esc Ctrl-C PgUp PgDn Home End CPU PID gpuard dave! mallory! pt_data_worker kill -CONT min")

var wordPattern = regexp.MustCompile(`[A-Za-z][A-Za-z0-9.!_-]*`)

// TestChinese: on a Chinese screen no word of English is left, and nothing is wider than the terminal.
func TestChinese(t *testing.T) {
	for _, situation := range []string{"day", "trouble", "idle"} {
		for _, keys := range [][]string{nil, {"?"}, {"d"}, {"e"}, {"x"}, {"o"}, {"t"}, {"T"}, {"/"}} {
			for _, width := range []int{80, 200} {
				m := newModelOf(translatableMachine(situation), width, 24+width/10, nil)
				m.language = translate.ReadLocale("zh_CN")
				m = pressKeys(m, keys...)
				text := ansi.Strip(m.View().Content)
				for line := range strings.Lines(text) {
					if ansi.StringWidth(strings.TrimRight(line, "\n")) > width {
						t.Errorf("%s %q, %d columns: too wide: %q", situation, keys, width, line)
					}
				}
				for _, word := range wordPattern.FindAllString(text, -1) {
					if len(word) > 2 && !isKnownWord(word) {
						t.Errorf("%s %q, %d columns: %q is English\n%s", situation, keys, width, word, text)
						return
					}
				}
			}
		}
	}
}

// translatableMachine is a situation whose reasons are those that a translation has.
func translatableMachine(name string) *observedMachine {
	l := namedMachine(name)
	for i := range l.report.Waiting {
		l.report.Waiting[i].Why = "enough is free, and others are ahead of it"
	}
	return l
}

// isKnownWord reports whether a word is a name, or a part of a unit, a lease or a column that was cut.
func isKnownWord(word string) bool {
	for _, name := range untranslatedNames {
		if strings.HasPrefix(name, strings.TrimRight(word, "…")) {
			return true
		}
	}
	return regexp.MustCompile(`^(k[a-z]\d\d|[A-Z]\d+.*|hw_.*)$`).MatchString(word)
}
