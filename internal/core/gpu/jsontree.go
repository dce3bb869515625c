package gpu

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// node is one JSON value with its position, for error messages.
type node struct {
	// '{' '[' '"' '0' 't' 'n' (null).
	kind       byte
	begin, end int // bytes of the value
	text       string
	members    []member
	items      []node
}

// member is one key of an object.
type member struct {
	key   string
	at    int // offset of the key
	value node
}

// findKey returns the value of a key, nil when the object lacks it.
func (n *node) findKey(key string) *node {
	for i := range n.members {
		if n.members[i].key == key {
			return &n.members[i].value
		}
	}
	return nil
}

// document is the text being read.
type document struct {
	data []byte
	dec  *json.Decoder
}

// parseDocument reads the whole text as exactly one JSON value without duplicate keys.
func (d *document) parseDocument() (node, error) {
	if !utf8.Valid(d.data) {
		return node{}, d.errorAt(invalidUTF8At(d.data), "the text is not UTF-8: save the file as UTF-8")
	}

	// A strict pass first: it rejects trailing data, excessive depth and syntax errors before the tree is built.
	if err := json.Unmarshal(d.data, new(json.RawMessage)); err != nil {
		at := len(d.data)
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
			at = max(int(syntax.Offset)-1, 0)
		}
		return node{}, d.errorAt(at, "the text is not JSON: %v", err)
	}

	d.dec = json.NewDecoder(bytes.NewReader(d.data))
	d.dec.UseNumber()

	return d.readValue()
}

// readValue reads the next value; the text is known to be valid JSON.
func (d *document) readValue() (node, error) {
	n := node{begin: d.nextOffset()}
	token, err := d.dec.Token()
	if err != nil {
		return n, d.errorAt(n.begin, "the text is not JSON: %v", err)
	}

	switch t := token.(type) {
	case json.Delim:
		n.kind = byte(t)
		err = d.readMembers(&n)
	case string:
		n.kind, n.text = '"', t
	case json.Number:
		n.kind, n.text = '0', t.String()
	case bool:
		n.kind, n.text = 't', fmt.Sprint(t)
	case nil:
		n.kind = 'n'
	}

	n.end = int(d.dec.InputOffset())

	return n, err
}

// readMembers reads the rest of an object or array up to its closing bracket.
func (d *document) readMembers(n *node) error {
	seen := map[string]bool{}
	for d.dec.More() {
		m := member{at: d.nextOffset()}
		if n.kind == '{' {
			token, err := d.dec.Token()
			if err != nil {
				return d.errorAt(m.at, "the text is not JSON: %v", err)
			}

			m.key, _ = token.(string)
			if seen[m.key] {
				return d.errorAt(m.at, "the key %q is twice in the same object: remove one", m.key)
			}

			seen[m.key] = true
		}

		value, err := d.readValue()
		if err != nil {
			return err
		}

		if n.kind == '{' {
			m.value = value
			n.members = append(n.members, m)
		} else {
			n.items = append(n.items, value)
		}
	}
	_, err := d.dec.Token()

	return err
}

// nextOffset is the offset of the next token.
func (d *document) nextOffset() int {
	at := int(d.dec.InputOffset())
	for at < len(d.data) && bytes.IndexByte([]byte(" \t\r\n,:"), d.data[at]) >= 0 {
		at++
	}
	return at
}

// errorAt makes an error with line and column (both from 1, columns in characters) of an offset.
func (d *document) errorAt(at int, format string, args ...any) error {
	before := d.data[:min(at, len(d.data))]
	line := 1 + bytes.Count(before, []byte{'\n'})
	column := 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])

	return fmt.Errorf("cannot read machine file: line %d, column %d: %s", line, column, fmt.Sprintf(format, args...))
}

func invalidUTF8At(data []byte) int {
	at := 0
	for at < len(data) {
		r, size := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && size <= 1 {
			break
		}
		at += size
	}
	return at
}

// orderedObject is an object whose keys keep their order when written.
type orderedObject []struct {
	key   string
	value any
}

// MarshalJSON writes the object without escaping <, > and &, so that kept values stay byte for byte the same.
func (o orderedObject) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	out.WriteByte('{')

	for i, m := range o {
		if i > 0 {
			out.WriteByte(',')
		}
		if err := enc.Encode(m.key); err != nil {
			return nil, err
		}
		out.WriteByte(':')
		if err := enc.Encode(m.value); err != nil {
			return nil, fmt.Errorf("%s: %w", m.key, err)
		}
	}

	out.WriteByte('}')

	return out.Bytes(), nil
}
