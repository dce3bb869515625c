package gpu

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// node is one JSON value with its place, for error messages.
type node struct {
	// The token as json.Decoder.Token returns it; of an object or a list the opening bracket.
	token any
	// Bytes of the value.
	begin, end int
	items      []node
	// The key of this value and its offset, in an object.
	key   string
	keyAt int
}

// findKey returns the value of a key, nil when the object lacks it.
func (n *node) findKey(key string) *node {
	i := slices.IndexFunc(n.items, func(item node) bool { return item.key == key })
	if i < 0 || n.token != json.Delim('{') {
		return nil
	}
	return &n.items[i]
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

	return d.parseValue()
}

// parseValue reads the next value with all that is in it; the text is known to be valid JSON.
func (d *document) parseValue() (n node, err error) {
	n.begin = d.nextOffset()
	n.token, err = d.dec.Token()

	if _, isBracket := n.token.(json.Delim); isBracket {
		err = d.parseItems(&n)
	}

	n.end = int(d.dec.InputOffset())

	return n, err
}

// parseItems reads the rest of an object or a list up to its closing bracket.
func (d *document) parseItems(n *node) error {
	seen := map[string]bool{}
	for d.dec.More() {
		keyAt, key := d.nextOffset(), ""
		if n.token == json.Delim('{') {
			token, _ := d.dec.Token()
			key, _ = token.(string)
			if seen[key] {
				return d.errorAt(keyAt, "the key %q is twice in the same object: remove one", key)
			}
			seen[key] = true
		}

		item, err := d.parseValue()
		if err != nil {
			return err
		}

		item.key, item.keyAt = key, keyAt
		n.items = append(n.items, item)
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
