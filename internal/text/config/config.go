// Package config reads config.yaml, the policy of a machine or of a user, and what a project's file has of it: what each key may hold, and what to write in place of
// what it may not. It opens no file, and what the values of the flags of gpuard run mean is not known here.
package config

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/lint"
	"gpuard/internal/core/near"
	"gpuard/internal/core/policy"
	"gpuard/internal/text/yamltree"
)

// largest is how long a file may be, in bytes: far above any that people write.
const largest = 256 << 10

//go:embed example.yaml
var example string

// Example is a file in which everything is said once, with remarks. Remarks stand alone on their lines.
func Example() string { return example }

// Read returns what a file says, and the mistakes in it. Where there are any, the rest is not to be used.
func Read(data []byte, path string) (*policy.File, []policy.Mistake) {
	r := &reader{file: &policy.File{Path: path}, keys: AllKeys()}
	if root := r.root(data); root != nil {
		r.top(root)
	}
	return r.file, r.mistakes
}

// ReadProject returns what the file of a project says of rules and defaults; nil when it says nothing of them. All else in it,
// and whether it is YAML at all, is for others to judge.
func ReadProject(data []byte, path string) (*policy.File, []policy.Mistake) {
	r := &reader{file: &policy.File{Path: path}, keys: AllKeys()}
	root := r.root(data)
	if root == nil {
		return nil, nil
	}
	said := false
	for _, p := range root.Pairs {
		if said = said || slices.Contains(ProjectKeys(), p.Key.Text); p.Value.Null {
			continue // which is a mistake of any key
		}
		switch p.Key.Text {
		case "rules":
			r.rules(p.Value)
		case "defaults":
			r.defaults(p.Value)
		}
	}
	if !said {
		return nil, nil
	}
	return r.file, r.mistakes
}

type reader struct {
	file     *policy.File
	keys     Keys
	mistakes []policy.Mistake
}

func (r *reader) wrong(at lint.Place, format string, args ...any) {
	const most = 400 // of what may be quoted in it
	text := []rune(fmt.Sprintf(format, args...))
	if len(text) > most {
		text = append(text[:most-1], '…')
	}
	r.mistakes = append(r.mistakes, policy.Mistake{Line: at.Line, Column: at.Column, Text: string(text)})
}

// root is the map that the file is; nil when it is none. An empty file, or one of remarks alone, says nothing, and that is well.
func (r *reader) root(data []byte) *yamltree.Node {
	top := lint.Place{Line: 1, Column: 1}
	if len(data) > largest {
		r.wrong(top, "the file is longer than %d KiB", largest>>10)
		return nil
	}
	docs, err := yamltree.Parse(data)
	var place *yamltree.Error
	switch {
	case errors.As(err, &place):
		r.wrong(lint.Place{Line: place.Line, Column: place.Column}, "this is not YAML: %s%s", place.Text, mend(data, place))
	case err != nil:
		r.wrong(top, "%s", strings.TrimPrefix(err.Error(), "cannot read the file as YAML: "))
	case len(docs) == 0 || docs[0].Null && len(docs) == 1:
	case docs[0].Kind != yamltree.Map:
		r.wrong(docs[0].At, "the file is not a map; write rules:, and below it for instance - gpus: 2")
	case len(docs) > 1:
		r.wrong(docs[1].At, "a second document begins; a file is one")
	default:
		return docs[0]
	}
	return nil
}

// mend says what to write where a file is not YAML, by what stands there.
func mend(data []byte, e *yamltree.Error) string {
	lines := strings.Split(string(data), "\n")
	if e.Line < 1 || e.Line > len(lines) {
		return ""
	}
	line := strings.TrimRight(lines[e.Line-1], "\r")
	value := line[min(max(e.Column-1, 0), len(line)):]
	switch {
	case strings.Contains(line[:len(line)-len(strings.TrimLeft(line, " \t"))], "\t"):
		return "; indent with blanks, YAML takes no tabs"
	case value != "" && strings.Contains("*@`%", value[:1]):
		return fmt.Sprintf("; a value that begins with %s needs quotes", value[:1])
	}
	return ""
}

func (r *reader) top(root *yamltree.Node) {
	for _, p := range r.entries(root, r.keys.File, "the file", "") {
		switch p.key.Name {
		case "rules":
			r.rules(p.Value)
		case "tolerate":
			r.tolerate(p.Value)
		case "defaults":
			r.defaults(p.Value)
		default:
			if text, ok := r.word(p, ""); ok {
				r.file.Login = policy.Login(text)
			}
		}
	}
}

// entry is a key that is known, and its value, which is not nothing.
type entry struct {
	yamltree.Pair
	key Key
}

// entries are the keys of a map, once each. of says in messages whose key it is, such as " of rule 2".
func (r *reader) entries(n *yamltree.Node, table []Key, where, of string) (out []entry) {
	if n.Kind != yamltree.Map {
		r.wrong(n.At, "%s is not a map; write keys with a colon behind each, indented below it", where)
		return nil
	}
	first := map[string]int{}
	for _, p := range n.Pairs {
		line, twice := first[p.Key.Text]
		key, known := find(table, p.Key.Text)
		switch {
		case p.Key.Kind != yamltree.Scalar || p.Key.Null || p.Key.Text == "":
			r.wrong(p.Key.At, "a key of %s is not a name", where)
		case twice:
			r.wrong(p.Key.At, "%s stands twice in %s, first in line %d; leave one of them out", p.Key.Text, where, line)
		case of == "" && strings.HasPrefix(p.Key.Text, "x-"): // at the top: for anchors, and for other programs
		case !known:
			r.unknown(p.Key, table, of)
		case p.Value.Null:
			r.wrong(p.Key.At, "%s%s has no value%s", key.Name, of, sample(key))
		default:
			out = append(out, entry{p, key})
		}
		if !twice {
			first[p.Key.Text] = p.Key.At.Line
		}
	}
	return out
}

func sample(k Key) string {
	if k.Sample == "" {
		return ""
	}
	return "; write for instance " + k.Name + ": " + k.Sample
}

func (r *reader) unknown(key *yamltree.Node, table []Key, of string) {
	var names []string
	for _, k := range table {
		names = append(names, k.Name)
	}
	text := fmt.Sprintf("unknown key %q%s", key.Text, of)
	if meant := near.Word(key.Text, names); meant != "" {
		r.wrong(key.At, "%s; did you mean %s?", text, meant)
		return
	}
	r.wrong(key.At, "%s; there are %s", text, strings.Join(names, ", "))
}

// place is where something stands in this file.
func (r *reader) place(at lint.Place) policy.Place {
	return policy.Place{File: r.file.Path, Line: at.Line, Column: at.Column}
}

// unreachable finds rules behind one that names everybody. Root is not of those.
func (r *reader) unreachable(rules []policy.Rule) {
	i := slices.IndexFunc(rules, func(one policy.Rule) bool { return len(one.Users)+len(one.Groups) == 0 })
	if i < 0 {
		return
	}
	for _, late := range rules[i+1:] {
		if !slices.ContainsFunc(append(slices.Clone(late.Users), late.Groups...), func(name string) bool { return name == "root" || name == "0" }) {
			r.wrong(lint.Place{Line: late.At.Line, Column: late.At.Column}, "this rule never counts: the one of line %d names everybody, and the first that names you counts; put that one last", rules[i].At.Line)
		}
	}
}
