package gpu

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/core/prose"
	"gpuard/internal/core/suggest"
)

// value is one position in a machine file, bound to the variable that it sets.
type value interface {
	readNode(d *document, n *node, path string) error
	// nil when absent.
	jsonValue() any
}

// key is one key of an object. A required key must be present; its value decides whether it may be null.
type key struct {
	name     string
	required bool
	value    value
}

// record is an object. Unknown keys are kept in extra, unless that is nil.
type record struct {
	keys  []key
	extra *extraKeys
}

func (o record) readNode(d *document, n *node, path string) error {
	if n.kind != '{' {
		return d.errorAt(n.begin, "%s must be an object", pathOrFile(path))
	}

	known := map[string]bool{}
	for _, k := range o.keys {
		known[k.name] = true
		v := n.findKey(k.name)
		if v == nil && !k.required {
			continue
		}
		if v == nil {
			return o.missingKeyError(d, n, path, k.name)
		}
		if err := k.value.readNode(d, v, joinPath(path, k.name)); err != nil {
			return err
		}
	}

	if o.extra == nil {
		return nil
	}

	for _, m := range n.members {
		if known[m.key] {
			continue
		}

		if *o.extra == nil {
			*o.extra = extraKeys{}
		}

		var raw bytes.Buffer
		if err := json.Compact(&raw, d.data[m.value.begin:m.value.end]); err != nil {
			return d.errorAt(m.value.begin, "%s: %v", joinPath(path, m.key), err)
		}

		(*o.extra)[m.key] = raw.Bytes()
	}

	return nil
}

// missingKeyError reports the unknown key most similar to the missing one, else the object.
func (o record) missingKeyError(d *document, n *node, path, name string) error {
	best, far := -1, 1+len(name)/3
	for i, m := range n.members {
		if slices.ContainsFunc(o.keys, func(k key) bool { return k.name == m.key }) {
			continue
		}
		if dist := suggest.Distance(m.key, name); dist <= far && (best < 0 || dist < far) {
			best, far = i, dist
		}
	}
	if best >= 0 {
		m := n.members[best]
		return d.errorAt(m.at, "%s is not a key; the nearest valid key is %q: rename it", joinPath(path, m.key), name)
	}

	return d.errorAt(n.begin, "%s is missing: add it (a reading that is not known is null)", joinPath(path, name))
}

func (o record) jsonValue() any {
	out := orderedObject{}
	known := map[string]bool{}
	for _, k := range o.keys {
		known[k.name] = true
		if v := k.value.jsonValue(); v != nil || k.required {
			out = append(out, struct {
				key   string
				value any
			}{k.name, v})
		}
	}

	if o.extra == nil {
		return out
	}

	var rest []string
	for name := range *o.extra {
		if !known[name] {
			rest = append(rest, name)
		}
	}

	slices.Sort(rest)

	for _, name := range rest {
		out = append(out, struct {
			key   string
			value any
		}{name, (*o.extra)[name]})
	}

	return out
}

// list is an array; null leaves it nil, which is absent and differs from empty.
type list[T any] struct {
	into     *[]T
	item     func(*T) value
	nullable bool
}

func (l list[T]) readNode(d *document, n *node, path string) error {
	if n.kind == 'n' && l.nullable {
		*l.into = nil
		return nil
	}

	if n.kind != '[' {
		return d.errorAt(n.begin, "%s must be a list", path)
	}

	*l.into = make([]T, len(n.items))

	for i := range n.items {
		if err := l.item(&(*l.into)[i]).readNode(d, &n.items[i], fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}

	return nil
}

func (l list[T]) jsonValue() any {
	if *l.into == nil && l.nullable {
		return nil
	}
	out := make([]any, len(*l.into))
	for i := range *l.into {
		out[i] = l.item(&(*l.into)[i]).jsonValue()
	}

	return out
}

// optional is a reading that may be absent: null, or no key at all.
type optional[T any] struct {
	into **T
	item func(*T) value
}

func (o optional[T]) readNode(d *document, n *node, path string) error {
	if n.kind == 'n' {
		*o.into = nil
		return nil
	}
	*o.into = new(T)
	return o.item(*o.into).readNode(d, n, path)
}

func (o optional[T]) jsonValue() any {
	if *o.into == nil {
		return nil
	}
	return o.item(*o.into).jsonValue()
}

// number is a bounded number. With hideZero, zero means unknown and is written as absent.
type number[N ~int | ~int64 | ~uint32 | ~uint64 | ~float64] struct {
	into     *N
	low      N
	high     N
	hideZero bool
}

func (v number[N]) readNode(d *document, n *node, path string) error {
	if n.kind != '0' {
		return d.errorAt(n.begin, "%s must be a number", path)
	}

	// true for every integer type.
	whole := N(1)/2 == 0
	var got N
	if i, err := strconv.ParseInt(n.text, 10, 64); err == nil && whole && float64(i) <= float64(v.high) {
		got = N(i)
		if i < 0 && got > 0 {
			return d.errorAt(n.begin, "%s is %s, which must not be negative", path, n.text)
		}
	} else {
		f, err := strconv.ParseFloat(n.text, 64)
		if err != nil || f < float64(v.low) || f > float64(v.high) {
			return d.errorAt(n.begin, "%s is %s, outside %v to %v", path, n.text, v.low, v.high)
		}
		if whole && (f != math.Trunc(f) || math.Abs(f) > 1<<53) {
			return d.errorAt(n.begin, "%s is %s, which must be a whole number", path, n.text)
		}
		got = N(f)
	}

	if got < v.low || got > v.high {
		return d.errorAt(n.begin, "%s is %s, outside %v to %v", path, n.text, v.low, v.high)
	}

	*v.into = got

	return nil
}

func (v number[N]) jsonValue() any {
	if v.hideZero && *v.into == 0 {
		return nil
	}
	return *v.into
}

type truth struct{ into *bool }

func (v truth) readNode(d *document, n *node, path string) error {
	if n.kind != 't' {
		return d.errorAt(n.begin, "%s must be true or false", path)
	}
	*v.into = n.text == "true"
	return nil
}

func (v truth) jsonValue() any { return *v.into }

// text is a string, cleaned because it is printed on terminals.
type text[S ~string] struct {
	into *S
	// "" and null are errors.
	filled bool
	// Converts the string to its normal form; false when it has none.
	tidy func(S) (S, bool)
	// What tidy accepts, in words.
	want string
}

func (v text[S]) readNode(d *document, n *node, path string) error {
	if n.kind != '"' && n.kind != 'n' {
		return d.errorAt(n.begin, "%s must be a string", path)
	}

	s := S(prose.Clean(n.text))
	if s == "" {
		if v.filled {
			return d.errorAt(n.begin, "%s must not be empty: write %s", path, v.want)
		}
		*v.into = ""
		return nil
	}

	if v.tidy != nil {
		tidied, ok := v.tidy(s)
		if !ok {
			return d.errorAt(n.begin, "%s is %q: write %s", path, string(s), v.want)
		}
		s = tidied
	}

	*v.into = s

	return nil
}

func (v text[S]) jsonValue() any {
	if *v.into == "" && !v.filled {
		return nil
	}
	return string(*v.into)
}

// textOneOf is a text that accepts only the given words.
func textOneOf[S ~string](into *S, filled bool, words ...S) text[S] {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = string(w)
	}
	return text[S]{into, filled, func(s S) (S, bool) { return s, slices.Contains(words, s) }, "one of " + strings.Join(quoted, ", ")}
}

// instant is a time in RFC 3339; null is the zero time, which means unknown.
type instant struct{ into *time.Time }

func (v instant) readNode(d *document, n *node, path string) error {
	*v.into = time.Time{}
	if n.kind == 'n' {
		return nil
	}

	t, err := time.Parse(time.RFC3339Nano, n.text)
	if n.kind != '"' || err != nil {
		return d.errorAt(n.begin, "%s must be a time such as \"2026-01-31T14:05:00Z\"", path)
	}

	*v.into = t.UTC()

	return nil
}

func (v instant) jsonValue() any {
	if v.into.IsZero() {
		return nil
	}
	return v.into.UTC().Format(time.RFC3339Nano)
}

type capability struct{ into *Capability }

func (v capability) readNode(d *document, n *node, path string) error {
	c, err := ParseCapability(n.text)
	if n.kind != '"' || err != nil {
		return d.errorAt(n.begin, "%s must be a compute capability such as \"8.0\"", path)
	}
	*v.into = c

	return nil
}

func (v capability) jsonValue() any { return v.into.String() }

func joinPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func pathOrFile(path string) string {
	if path == "" {
		return "the file"
	}
	return path
}
