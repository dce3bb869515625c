package project

import (
	"slices"
	"strings"

	"gpuard/internal/core/lint"
	"gpuard/internal/core/near"
	"gpuard/internal/text/yamltree"
)

// node is one item of a list.
type node struct {
	text string
	at   lint.Place
}

// text reads a value that is one text.
func (r *reader) text(p yamltree.Pair, of string) (string, bool) {
	switch {
	case p.Value.Kind != yamltree.Scalar:
		r.wrong(p.Value.At, "%s%s is not one text", p.Key.Text, of)
		return "", false
	case strings.TrimSpace(p.Value.Text) == "":
		r.wrong(p.Value.At, "%s%s is empty", p.Key.Text, of)
		return "", false
	case strings.Contains(p.Value.Text, "\x00"):
		r.wrong(p.Value.At, "%s%s has a zero byte in it", p.Key.Text, of)
		return "", false
	}
	return strings.TrimSpace(p.Value.Text), true
}

// list reads [a, b], the same in lines, and "a,b".
func (r *reader) list(p yamltree.Pair, of string) (out []node) {
	switch p.Value.Kind {
	case yamltree.Scalar:
		text, _ := r.text(p, of)
		for _, part := range strings.Split(text, ",") {
			out = append(out, node{strings.TrimSpace(part), p.Value.At})
		}
	case yamltree.List:
		for _, item := range p.Value.Items {
			if item.Kind != yamltree.Scalar || item.Null {
				r.wrong(item.At, "%s%s has something in its list that is not one text", p.Key.Text, of)
				continue
			}
			for _, part := range strings.Split(item.Text, ",") {
				out = append(out, node{strings.TrimSpace(part), item.At})
			}
		}
		if len(p.Value.Items) == 0 {
			r.wrong(p.Value.At, "%s%s is an empty list; leave it out", p.Key.Text, of)
		}
	default:
		r.wrong(p.Value.At, "%s%s is not a list", p.Key.Text, of)
	}
	for _, n := range out {
		if n.text == "" && (p.Value.Kind == yamltree.List || len(out) > 1) {
			r.wrong(n.at, "%s%s has an empty name in its list", p.Key.Text, of)
		}
	}
	return slices.DeleteFunc(out, func(n node) bool { return n.text == "" })
}

// oneOf reports whether a word is one of those that a key takes, and finds fault with it when not.
func (r *reader) oneOf(key Key, word string, at lint.Place, of string) bool {
	if slices.Contains(key.Words, word) {
		return true
	}
	if meant := near.Word(word, key.Words); meant != "" {
		r.wrong(at, "%s%s is %q; did you mean %s?", key.Name, of, word, meant)
		return false
	}
	last := len(key.Words) - 1
	r.wrong(at, "%s%s is %q; write %s or %s", key.Name, of, word, strings.Join(key.Words[:last], ", "), key.Words[last])
	return false
}
