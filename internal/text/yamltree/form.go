package yamltree

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"gpuard/internal/core/diagnostic"
	"gpuard/internal/core/job"
	"gpuard/internal/core/option"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/source"
	"gpuard/internal/core/suggest"
)

// Takes is what a key of one of our own files takes.
type Takes = option.Takes

// What keys take beside what options do.
const (
	Text     = option.Text
	Number   = option.Number
	Switch   = option.Switch
	Size     = option.Size
	Time     = option.Time
	Texts    = option.Texts
	Optional = option.Optional

	Part Takes = "number from 0 to 1"
	// text is cut into words.
	Command Takes = "text, or a list of words"
	Pairs   Takes = "map, or a list of A=B" // variables
	// Service to condition.
	Needs Takes = "list of services, or a map"
	Keyed Takes = "map"
	Maps  Takes = "list of maps"
)

// Key is one key of such a file. Reading, the JSON Schema and the reference page are made of tables of them.
type Key struct {
	Name string
	// The flag of gpuard run that it stands for; "" for none.
	Flag  string
	Takes Takes
	// All that it can be, where that is known.
	Words []string
	// What it means: a sentence without its full stop.
	Text string
	// An example of the value, after the colon.
	Sample string
}

// KeysOf are options as keys of a file.
func KeysOf(options []option.Option) []Key {
	keys := make([]Key, len(options))
	for i, o := range options {
		text := option.ReplaceNames(cmp.Or(o.File, o.Text), func(name, value string) string {
			key := option.Option{Name: name}.Key()
			if value != "" {
				key += ": " + value
			}
			return key
		})
		if o.Else != "" {
			text += "; without it " + o.Else
		}
		keys[i] = Key{Name: o.Key(), Flag: o.Name, Takes: o.Takes, Words: o.Words, Text: text, Sample: o.SampleInFile()}
	}
	return keys
}

// FindKey is the key of that name in a table.
func FindKey(table []Key, name string) (Key, bool) {
	i := slices.IndexFunc(table, func(k Key) bool { return k.Name == name })
	if i < 0 {
		return Key{}, false
	}
	return table[i], true
}

// Form collects the mistakes in such a file. In messages, of says to what a key belongs, such as " of rule 2"; it is
// empty at the top of the file.
type Form struct{ Mistakes []diagnostic.One }

// Wrong notes a mistake.
func (f *Form) Wrong(at source.Place, format string, args ...any) {
	// Of what may be quoted in it.
	const most = 400
	text := []rune(fmt.Sprintf(format, args...))
	if len(text) > most {
		text = append(text[:most-1], '…')
	}
	f.Mistakes = append(f.Mistakes, diagnostic.One{Line: at.Line, Column: at.Column, Text: string(text)})
}

// MaxFileBytes is how long such a file may be, in bytes: far above any that people write.
const MaxFileBytes = 256 << 10

// ReadRoot is the map that the file is; nil when it is none, or empty, which is no mistake. such is how one begins.
func (f *Form) ReadRoot(data []byte, such string) *Node {
	top := source.Place{Line: 1, Column: 1}
	switch {
	case len(data) > MaxFileBytes:
		f.Wrong(top, "the file is longer than %d KiB", MaxFileBytes>>10)
		return nil
	case !isText(data):
		f.Wrong(unprintablePlace(data), "this is not text in UTF-8; write the file anew in that, without marks of other encodings")
		return nil
	}

	docs, err := Parse(data)
	var place *Error

	switch {
	case errors.As(err, &place):
		f.Wrong(source.Place{Line: place.Line, Column: place.Column}, "this is not YAML: %s%s", place.Text, adviceFor(data, place))
	case err != nil:
		f.Wrong(top, "%s", strings.TrimPrefix(err.Error(), "cannot read the file as YAML: "))
	case len(docs) == 0 || docs[0].Null && len(docs) == 1:
	case docs[0].Kind != Map:
		f.Wrong(docs[0].At, "the file is not a map; %s", such)
	case len(docs) > 1:
		f.Wrong(docs[1].At, "a second document begins; a file is one")
	case f.refuseZero(docs[0], map[*Node]bool{}):
		return nil
	default:
		return docs[0]
	}

	return nil
}

// refuseZero finds fault with each text that has a zero byte in it (written \0 in quotes), which no program can be given: it
// would end there (execve(2)). A node may be at several places of a file, by its anchor.
func (f *Form) refuseZero(n *Node, seen map[*Node]bool) (found bool) {
	if n == nil || seen[n] {
		return false
	}

	seen[n] = true
	if n.Kind == Scalar && strings.Contains(n.Text, "\x00") {
		f.Wrong(n.At, "there is a zero byte (\\0) in this text, and no program can be given one; leave it out")
		found = true
	}

	for _, item := range n.Items {
		found = f.refuseZero(item, seen) || found
	}

	for _, p := range n.Pairs {
		found = f.refuseZero(p.Key, seen) || found
		found = f.refuseZero(p.Value, seen) || found
	}

	return found
}

// isText reports whether YAML may consist of these bytes.
func isText(data []byte) bool { return utf8.Valid(data) && !bytes.Contains(data, []byte{0}) }

// unprintablePlace is the place of the first byte that is not UTF-8 text.
func unprintablePlace(data []byte) source.Place {
	at := 0
	for at < len(data) && data[at] != 0 {
		r, width := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && width == 1 {
			break
		}
		at += width
	}
	return source.Place{Line: 1 + bytes.Count(data[:at], []byte("\n")), Column: at - bytes.LastIndexByte(data[:at], '\n')}
}

// adviceFor says what to write in a file that is not YAML, by the text at the error.
func adviceFor(data []byte, e *Error) string {
	lines := strings.Split(string(data), "\n")
	if e.Line < 1 || e.Line > len(lines) {
		return ""
	}

	line := strings.TrimRight(lines[e.Line-1], "\r")
	value := line[min(max(e.Column-1, 0), len(line)):]
	if e.Column > 1 && strings.HasPrefix(line[min(e.Column-2, len(line)):], "{{") {
		value = line[e.Column-2:]
	}

	switch {
	case strings.Contains(line[:len(line)-len(strings.TrimLeft(line, " \t-"))], "\t"):
		return "; indent with blanks, YAML takes no tabs"
	case value != "" && (strings.HasPrefix(value, "{{") || strings.Contains("*@`%", value[:1])):
		return fmt.Sprintf("; a value that begins with %s needs quotes", value[:1])
	case strings.Contains(e.Text, "mapping value") && strings.Contains(value, ": "):
		return "; a value with a colon and a blank in it needs quotes"
	}

	return ""
}

// UniqueEntries are the entries of a map with names as keys, each once. where names the map in messages, such as "rule 2".
func (f *Form) UniqueEntries(n *Node, where string) (out []Pair) {
	first := map[string]int{}
	for _, p := range n.Pairs {
		line, twice := first[p.Key.Text]
		switch {
		case p.Key.Kind != Scalar || p.Key.Null || p.Key.Text == "":
			f.Wrong(p.Key.At, "a key of %s is not a name", where)
		case twice:
			f.Wrong(p.Key.At, "%s is there twice in %s, first in line %d; leave one of them out", p.Key.Text, where, line)
		default:
			first[p.Key.Text] = p.Key.At.Line
			out = append(out, p)
		}
	}
	return out
}

// Entry is a key that is known, and its value, which is not nothing.
type Entry struct {
	Key   Key
	At    source.Place // of the key
	Value *Node
}

// KnownEntries are those of a map with keys of a table; it calls unknown for others. At the top it skips keys that begin
// with x-, which are for anchors and other programs.
func (f *Form) KnownEntries(n *Node, table []Key, where, of string, unknown func(key *Node)) (out []Entry) {
	for _, p := range f.UniqueEntries(n, where) {
		key, known := FindKey(table, p.Key.Text)
		switch {
		case of == "" && strings.HasPrefix(p.Key.Text, "x-"):
		case !known:
			unknown(p.Key)
		case p.Value.Null:
			f.Wrong(p.Key.At, "%s%s has no value%s", key.Name, of, key.sampleAdvice())
		default:
			out = append(out, Entry{key, p.Key.At, p.Value})
		}
	}
	return out
}

func (k *Key) sampleAdvice() string {
	if k.Sample == "" {
		return ""
	}
	return "; write for instance " + k.Name + ": " + k.Sample
}

// Text reads a value that is one text.
func (f *Form) Text(e Entry, of string) (string, bool) {
	text := strings.TrimSpace(e.Value.Text)
	switch {
	case e.Value.Kind != Scalar:
		f.Wrong(e.Value.At, "%s%s is not one text%s", e.Key.Name, of, e.Key.sampleAdvice())
	case text == "":
		f.Wrong(e.Value.At, "%s%s is empty%s", e.Key.Name, of, e.Key.sampleAdvice())
	case strings.ContainsAny(text, "\x00\n"):
		f.Wrong(e.Value.At, "%s%s has more than one line, or a zero byte, in it", e.Key.Name, of)
	default:
		return text, true
	}
	return "", false
}

// Duration reads a length of time.
func (f *Form) Duration(e Entry, of string) (time.Duration, bool) {
	text, ok := f.Text(e, of)
	if !ok {
		return 0, false
	}

	d, err := job.ParseTime(text)
	if err != nil {
		f.Wrong(e.Value.At, "%s%s is %q: %v", e.Key.Name, of, text, err)
	}

	return d, err == nil
}

// Word reads a text, one of those that the key takes where they are known.
func (f *Form) Word(e Entry, of string) (string, bool) {
	text, ok := f.Text(e, of)
	return text, ok && f.CheckOneOf(e.Key, text, e.Value.At, of)
}

// CheckOneOf reports whether a word is one of those that a key takes, and finds fault with it when not.
func (f *Form) CheckOneOf(key Key, word string, at source.Place, of string) bool {
	if len(key.Words) == 0 || slices.Contains(key.Words, word) {
		return true
	}

	if meant := suggest.ClosestWord(word, key.Words); meant != "" {
		f.Wrong(at, "%s%s is %q; did you mean %s?", key.Name, of, word, meant)
		return false
	}

	f.Wrong(at, "%s%s is %q; write %s", key.Name, of, word, prose.JoinWords(key.Words, "or"))

	return false
}

// Item is one of a list.
type Item struct {
	Text string
	At   source.Place
}

// List reads [a, b], the same in lines, and "a,b".
func (f *Form) List(e Entry, of string) (out []Item) {
	values := e.Value.Items
	switch {
	case e.Value.Kind == Map:
		f.Wrong(e.Value.At, "%s%s is not a list%s", e.Key.Name, of, e.Key.sampleAdvice())
	case e.Value.Kind == Scalar:
		if _, ok := f.Text(e, of); !ok {
			return nil
		}
		values = []*Node{e.Value}
	case len(values) == 0:
		f.Wrong(e.Value.At, "%s%s is an empty list; leave it out", e.Key.Name, of)
	}
	for _, n := range values {
		if n.Kind != Scalar || n.Null || strings.ContainsAny(n.Text, "\x00\n") {
			f.Wrong(n.At, "%s%s has something in its list that is not one text", e.Key.Name, of)
			return nil
		}
		for _, part := range strings.Split(n.Text, ",") {
			part = strings.TrimSpace(part)
			if part == "" {
				f.Wrong(n.At, "%s%s has an empty name in its list", e.Key.Name, of)
				return nil
			}
			out = append(out, Item{part, n.At})
		}
	}

	return out
}

// ReadSetting reads the value of a flag, "" for one without; set is false if the flag is not to be given.
func (f *Form) ReadSetting(e Entry, of string) (value string, set bool) {
	alone := e.Key.Takes == Switch || e.Key.Takes == Optional
	word := ""
	if e.Value.Kind == Scalar && e.Value.Plain {
		word = e.Value.Text
	}

	switch {
	case alone && (word == "true" || word == "false"):
		// Where it is false that is so anyway.
		return "", word == "true"
	case e.Key.Takes == Switch:
		f.Wrong(e.Value.At, "%s%s is neither true nor false; write %[1]s: true or %[1]s: false", e.Key.Name, of)
		return "", false
	case e.Key.Takes == Texts || e.Key.Takes == Optional:
		value = strings.Join(prose.Texts(f.List(e, of), func(item Item) string { return item.Text }), ",")

		return value, value != ""
	}

	return f.Text(e, of)
}
