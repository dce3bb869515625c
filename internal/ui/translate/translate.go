// Package translate says in another language what gpuard says in English. English is the source: a catalogue has the
// forms of sentences with holes, and a finished sentence is found by its form. What stands in a hole is copied, since
// it may be a name or a command, except where the form says that a piece of gpuard's own stands there. A sentence that
// no form fits is shown in English.
//
//	translate.ChooseLanguage(env).Translate("none of 4 is free")
package translate

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"gpuard/internal/core/visible"
)

// Language is what sentences are said in. The zero value is English. Copies of one share what they have read.
type Language struct{ catalogue *catalogue }

// catalogue has the forms of a language. They are read when the first sentence is said.
type catalogue struct {
	once  sync.Once
	forms []catalogueEntry
}

//go:embed zh.txt
var chinese string

// loadForms reads the forms when they are first asked for.
func (c *catalogue) loadForms() []catalogueEntry {
	c.once.Do(func() { c.forms = readForms(chinese) })
	return c.forms
}

// ChooseLanguage is the language of messages that setlocale(3) would choose, if the character set can show it. Choose
// once: its catalogue is read again for each.
func ChooseLanguage(env visible.Env) Language {
	if !IsUTF8(env) {
		return Language{}
	}
	return ReadLocale(firstSet(env, "LC_ALL", "LC_MESSAGES", "LANG"))
}

// IsUTF8 reports whether the character set of the locale is UTF-8.
func IsUTF8(env visible.Env) bool {
	locale := strings.ToLower(strings.ReplaceAll(firstSet(env, "LC_ALL", "LC_CTYPE", "LANG"), "-", ""))
	return strings.Contains(locale, "utf8")
}

// firstSet is the first of the variables that is not empty, as setlocale(3) reads them.
func firstSet(env visible.Env, names ...string) string {
	for _, name := range names {
		if value, _ := env.Lookup(name); value != "" {
			return value
		}
	}
	return ""
}

// ReadLocale is the language of a locale such as zh_CN.UTF-8, or of a tag such as zh-CN. What is written in traditional
// characters has no catalogue.
func ReadLocale(name string) Language {
	name, _, _ = strings.Cut(strings.ToLower(name), ".")
	switch strings.ReplaceAll(name, "-", "_") {
	case "zh", "zh_cn", "zh_sg", "zh_hans", "zh_hans_cn":
		return Language{&catalogue{}}
	}
	return Language{}
}

// Translate says a sentence in the language.
func (l Language) Translate(text string) string {
	if l.catalogue == nil || text == "" {
		return text
	}
	said, _ := translateText(l.catalogue.loadForms(), text)
	return said
}

// Join says each of several parts, and joins them as the language does: between is the English separator.
func (l Language) Join(between string, parts ...string) string {
	said := make([]string, len(parts))
	for i, part := range parts {
		said[i] = l.Translate(part)
	}
	if l.catalogue != nil {
		for _, s := range separators {
			if s.english == between {
				between = s.chinese
			}
		}
	}

	return strings.Join(said, between)
}

// separator is what joins sentences, things to do, or the members of a list. A finished text is parted where parts is
// set.
type separator struct {
	english, chinese string
	parts            bool
}

// separators are in the order in which a text is parted.
var separators = [...]separator{{"; ", "；", true}, {", or ", "，或者", true}, {": ", "：", false}, {", ", "，", false}}

// catalogueEntry is an entry of a catalogue.
type catalogueEntry struct {
	// The parts of the English sentence, between its holes.
	parts []string
	holes []placeholder
	// The same in the language, with {1} for the first hole.
	said string
	// The more of the sentence it has, the earlier it is tried.
	weight int
}

// placeholder says what text may stand at a place of a form.
type placeholder string

const (
	// A name, a command, a size: copied.
	shortest placeholder = "{}"
	// What a person wrote, up to the last place where the form goes on: copied.
	longest placeholder = "{*}"
	number  placeholder = "{#}" // digits
	// What gpuard says itself, such as a reason: translated if a form fits.
	sentence placeholder = "{s}"
)

// translateText finds the form of each part of a text, or else that of the whole.
func translateText(forms []catalogueEntry, text string) (said string, found bool) {
	return translateParts(forms, text, 0)
}

// translateParts is translateText with the separators from the first one on. A single word is no part: it may be the
// end of what a person wrote.
func translateParts(forms []catalogueEntry, text string, first int) (said string, found bool) {
	if !separators[first].parts {
		return translateWhole(forms, text)
	}
	parts := partsOf(text, separators[first].english)
	for i, part := range parts {
		isWord := len(parts) > 1 && !strings.Contains(part, " ")
		parts[i], found = translateParts(forms, part, first+1)
		if !found || isWord {
			return translateWhole(forms, text)
		}
	}

	return strings.Join(parts, separators[first].chinese), true
}

// translateWhole finds the form of the whole of a text.
func translateWhole(forms []catalogueEntry, text string) (said string, found bool) {
	if day := dayIn(text); day != "" {
		return day, true
	}
	for i := range forms {
		if found, fits := forms[i].matchText(text); fits {
			return forms[i].fillHoles(forms, found), true
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
		case r == '"', r == '\'' && !isApostrophe(text, i):
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

// isApostrophe reports whether the single quote at this place belongs to a word, as in "Ctrl-C's".
func isApostrophe(text string, at int) bool {
	return at > 0 && text[at-1] != ' ' && text[at-1] != '='
}

// matchText returns what stands in the holes, each as short as its kind allows.
func (c *catalogueEntry) matchText(text string) (found []string, fits bool) {
	rest, fits := strings.CutPrefix(text, c.parts[0])
	if !fits || len(c.holes) == 0 {
		return nil, fits && rest == ""
	}

	for i, part := range c.parts[1:] {
		at := strings.Index(rest, part)
		if c.holes[i] == longest {
			at = strings.LastIndex(rest, part)
		}

		if i+1 == len(c.holes) {
			at = len(rest) - len(part)
		}

		if at < 1 || rest[at:at+len(part)] != part || c.holes[i] == number && strings.Trim(rest[:at], "0123456789") != "" {
			return nil, false
		}

		found, rest = append(found, rest[:at]), rest[at+len(part):]
	}

	return found, true
}

// fillHoles puts what was found in the holes into the sentence of the language.
func (c *catalogueEntry) fillHoles(forms []catalogueEntry, found []string) string {
	words := make([]string, 0, 2*len(found))
	for i, text := range found {
		if c.holes[i] == sentence {
			text, _ = translateText(forms, text)
		} else if day := dayIn(text); day != "" {
			text = day
		}
		words = append(words, fmt.Sprintf("{%d}", i+1), text)
	}
	return strings.NewReplacer(words...).Replace(c.said)
}

// dayIn says a day with or without its time, such as "3 Mar 22:32" or "22:32 yesterday", and nothing else; "" of any other text.
func dayIn(text string) string {
	for word, said := range map[string]string{" yesterday": "昨天 ", " tomorrow": "明天 "} {
		if clock, cut := strings.CutSuffix(text, word); cut {
			if _, err := time.Parse("15:04", clock); err == nil {
				return said + clock
			}
		}
	}

	for _, layout := range [...]string{"2 Jan 15:04", "2 Jan"} {
		at, err := time.Parse(layout, text)
		if err != nil {
			continue
		}

		day := fmt.Sprintf("%d月%d日", int(at.Month()), at.Day())
		if layout == "2 Jan" {
			return day
		}

		return day + at.Format(" 15:04")
	}
	return ""
}

// readForms reads pairs of lines: a form in English with its holes, and below it, behind a tab, the same in the
// language. Empty lines and those with # are left out.
func readForms(text string) (forms []catalogueEntry) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch said, below := strings.CutPrefix(line, "\t"); {
		case below && len(forms) > 0:
			forms[len(forms)-1].said = said
		case line != "" && line[0] != '#':
			forms = append(forms, readForm(line))
		}
	}
	slices.SortStableFunc(forms, func(a, b catalogueEntry) int { return cmp.Compare(b.weight, a.weight) })
	return forms
}

// readForm reads a form in English.
func readForm(line string) (f catalogueEntry) {
	for {
		part, rest, found := strings.Cut(line, "{")
		f.parts, f.weight = append(f.parts, part), f.weight+len(part)
		if !found {
			return f
		}

		kind, rest, _ := strings.Cut(rest, "}")
		f.holes, line = append(f.holes, placeholder("{"+kind+"}")), rest
	}
}
