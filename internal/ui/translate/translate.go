// Package translate says in another language what gpuard says in English. English is the source: a catalogue has the forms of sentences
// with holes, and a finished sentence is found by its form. What stands in a hole is looked for in the same way, and stays as it is where
// no form fits, as a name or a command does. So a sentence that nobody has translated is shown in English, and never half of it by chance.
//
//	translate.Of(env).Sentence("none of 4 is free")
package translate

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"gpuard/internal/core/visible"
)

//go:embed zh.txt
var chinese string

// Language is what sentences are said in. The zero value is English.
type Language struct{ catalogue *catalogue }

// catalogue is read when the first sentence is said.
type catalogue struct {
	forms func() []form // the longest first
}

// form is an entry of a catalogue.
type form struct {
	parts   []string // of the English sentence, between its holes
	numbers []bool   // of each hole: a number has to stand in it
	said    string   // the same in the language, with {1} for the first hole
}

// Of is the language of messages that setlocale(3) would choose.
func Of(env visible.Env) Language {
	for _, name := range []string{"LC_ALL", "LC_MESSAGES", "LANG"} {
		if value, _ := env.Lookup(name); value != "" {
			return Named(value)
		}
	}
	return Language{}
}

// Named is the language of a locale: Chinese for zh_CN.UTF-8 and others of Chinese in UTF-8, or else English.
func Named(locale string) Language {
	name, charset, _ := strings.Cut(strings.ToLower(locale), ".")
	if !strings.HasPrefix(name, "zh") || !strings.HasPrefix(strings.ReplaceAll(charset, "-", ""), "utf8") {
		return Language{}
	}
	return Language{&catalogue{forms: sync.OnceValue(func() []form { return readCatalogue(chinese) })}}
}

// IsEnglish reports whether sentences stay as they are.
func (l Language) IsEnglish() bool { return l.catalogue == nil }

// Sentence says a sentence in the language.
func (l Language) Sentence(text string) string {
	if l.IsEnglish() {
		return text
	}
	said, _ := say(l.catalogue.forms(), text)
	return said
}

// separators are what joins several sentences, or several things to do, and what joins them in Chinese.
var separators = [...][2]string{{"; ", "；"}, {", or ", "，或者"}}

// say finds the form of each part of a text, or else that of the whole.
func say(forms []form, text string) (said string, found bool) { return sayParts(forms, text, 0) }

// sayParts is say for a text that the separators before the first one do not part any more.
func sayParts(forms []form, text string, first int) (said string, found bool) {
	if first == len(separators) {
		return sayWhole(forms, text)
	}
	parts := partsOf(text, separators[first][0])
	for i, part := range parts {
		if parts[i], found = sayParts(forms, part, first+1); !found {
			return sayWhole(forms, text)
		}
	}
	return strings.Join(parts, separators[first][1]), true
}

// sayWhole finds the form of the whole of a text.
func sayWhole(forms []form, text string) (said string, found bool) {
	for i := range forms {
		if holes, fits := forms[i].holesIn(text); fits {
			return forms[i].fill(forms, holes), true
		}
	}
	return text, false
}

// partsOf are the parts of a text between separators. What is in brackets or quoted, such as a command, is not parted.
func partsOf(text, separator string) (parts []string) {
	depth, quote, from := 0, rune(0), 0
	for i, r := range text {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
		case r == '"' || r == '\'' && (i == 0 || text[i-1] == ' ' || text[i-1] == '='): // elsewhere it is an apostrophe
			quote = r
		case r == '(':
			depth++
		case r == ')':
			depth--
		case depth == 0 && strings.HasPrefix(text[i:], separator):
			parts, from = append(parts, text[from:i]), i+len(separator)
		}
	}
	return append(parts, text[from:])
}

// holesIn returns what stands in the holes, each as short as it can be but the last.
func (f *form) holesIn(text string) (holes []string, fits bool) {
	rest, fits := strings.CutPrefix(text, f.parts[0])
	last := len(f.parts) - 1
	if !fits || last == 0 {
		return nil, fits && rest == ""
	}
	for i, part := range f.parts[1:] {
		at := strings.Index(rest, part)
		if i+1 == last {
			at = len(rest) - len(part)
		}
		if at < 1 || rest[at:at+len(part)] != part || f.numbers[i] && strings.Trim(rest[:at], "0123456789") != "" {
			return nil, false
		}
		holes, rest = append(holes, rest[:at]), rest[at+len(part):]
	}
	return holes, true
}

// fill puts the holes, said in the language, into the form.
func (f *form) fill(forms []form, holes []string) string {
	words := make([]string, 0, 2*len(holes))
	for i, hole := range holes {
		said, _ := sayWhole(forms, hole)
		words = append(words, fmt.Sprintf("{%d}", i+1), said)
	}
	return strings.NewReplacer(words...).Replace(f.said)
}

// readCatalogue reads pairs of lines: a form in English with {} for each hole, {#} where only a number fits, and below it, behind a tab, the
// same in the language, with {1} for the first hole. Empty lines and those with # are left out.
func readCatalogue(text string) (forms []form) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch said, below := strings.CutPrefix(line, "\t"); {
		case below && len(forms) > 0:
			forms[len(forms)-1].said = said
		case line != "" && line[0] != '#':
			forms = append(forms, readForm(line))
		}
	}
	weigh := func(f form) int { return len(strings.Join(f.parts, "")) }
	slices.SortStableFunc(forms, func(a, b form) int { return cmp.Compare(weigh(b), weigh(a)) })
	return forms
}

// readForm reads a form in English.
func readForm(line string) (f form) {
	f.parts = strings.Split(strings.ReplaceAll(line, "{#}", "{}"), "{}")
	for rest := line; ; {
		at := strings.IndexByte(rest, '{')
		if at < 0 {
			return f
		}
		f.numbers = append(f.numbers, rest[at+1] == '#')
		rest = rest[at+1:]
	}
}
