// Package yamltree reads YAML into a plain tree in which every node knows its place in the file. It knows no format
// that is written in YAML: what the keys mean is for its callers.
package yamltree

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"gpuard/internal/core/source"
)

// Kind says what a node is.
type Kind int

// Kinds of nodes.
const (
	Scalar Kind = iota
	List
	Map
)

// Node is one value. A nil node is an absent one, and every method answers for it.
type Node struct {
	Kind Kind
	// The text of a scalar, without quotes and escapes; a number or a word stays as it is written.
	Text string
	// The text as written, with quotes.
	Raw  string
	Null bool // nothing, null or ~
	// A scalar without quotes.
	Plain bool
	// A list in [] or a map in {}.
	Flow  bool
	Items []*Node
	Pairs []Pair
	At    source.Place

	// '|' or '>' of a block scalar.
	block byte
}

// Pair is one entry of a map.
type Pair struct {
	Key, Value *Node
	// A key in {} without a colon: {A: 0,1} has the entries A: 0 and 1.
	Bare bool
}

// maxDepth is how many levels a file may nest: far above any file that people write, far below what exhausts the stack.
const maxDepth = 200

// Parse returns the documents of a file. A file that is not YAML is an error that begins with "cannot read".
func Parse(src []byte) (docs []*Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			// The library has met bytes that it does not expect.
			docs, err = nil, fmt.Errorf("cannot read the file as YAML: %v", p)
		}
	}()

	bom := 0
	if bytes.HasPrefix(src, []byte("\xef\xbb\xbf")) {
		bom = 3
	}

	// The library takes such bytes for others, and places after them would be wrong.
	if !isText(src) {
		return nil, fmt.Errorf("cannot read the file as YAML: line %d is not UTF-8, or has a byte 0", unprintablePlace(src).Line)
	}
	if nestsTooDeep(src) {
		return nil, fmt.Errorf("cannot read the file as YAML: it nests deeper than %d levels", maxDepth)
	}

	file, err := parser.ParseBytes(src[bom:], 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, parseError(err)
	}

	r := reader{lines: bytes.SplitAfter(src[bom:], []byte("\n")), bom: bom, anchors: map[string]*Node{}}
	for _, d := range file.Docs {
		if d.Body == nil {
			continue
		}
		if n := r.readNode(d.Body, 0); n != nil {
			docs = append(docs, n)
		}
	}

	switch {
	case r.deep:
		return nil, errors.New("cannot read the file as YAML: it nests too deeply")
	case r.wrong != nil:
		return nil, r.wrong
	}

	return docs, nil
}

// Error is a place at which a file is not YAML.
type Error struct {
	Line, Column int
	Text         string
}

// Error begins with "cannot read".
func (e *Error) Error() string {
	return fmt.Sprintf("cannot read the file as YAML: [%d:%d] %s", e.Line, e.Column, e.Text)
}

// parseError takes the place out of the library's error, and leaves out the lines of the file that it would show.
func parseError(err error) error {
	var at interface {
		GetMessage() string
		GetToken() *token.Token
	}
	if errors.As(err, &at) && at.GetToken() != nil {
		where := at.GetToken().Position
		return &Error{Line: where.Line, Column: where.Column, Text: at.GetMessage()}
	}
	text, _, _ := strings.Cut(err.Error(), "\n")

	return fmt.Errorf("cannot read the file as YAML: %s", text)
}

// nestsTooDeep reports whether brackets, or dashes and question marks before a value, are nested so deep that a recursive
// parser would need too much memory.
func nestsTooDeep(src []byte) bool {
	depth, dashes := 0, 0
	for _, c := range src {
		switch c {
		case '[', '{':
			depth++
		case ']', '}':
			depth = max(depth-1, 0)
		case '-', '?', ':':
			dashes++
		case ' ', '\t':
		default:
			dashes = 0
		}
		if depth > maxDepth || dashes > 4*maxDepth {
			return true
		}
	}
	return false
}

type reader struct {
	lines [][]byte // with their ends
	// Bytes before the first line.
	bom     int
	anchors map[string]*Node
	deep    bool
	// The spot of the token before, from where the next one is looked for.
	last spot
	// The first thing that the parser lets through though it is not YAML.
	wrong *Error
}

// spot is a place in a line: the number of characters and bytes before it.
type spot struct{ line, chars, bytes int }

func (r *reader) readNode(n ast.Node, depth int) *Node {
	if depth > maxDepth {
		r.deep = true
		return nil
	}
	switch n := n.(type) {
	case *ast.AnchorNode:
		inner := r.readNode(n.Value, depth+1)
		if inner != nil && n.Name != nil {
			r.anchors[n.Name.GetToken().Value] = inner
		}
		return inner
	case *ast.AliasNode:
		if n.Value == nil {
			return nil
		}
		return r.resolveAlias(n)
	case *ast.TagNode:
		return r.readNode(n.Value, depth+1)
	case *ast.MappingNode:
		return r.readMapping(n.Values, n.IsFlowStyle, n.Start, depth)
	case *ast.MappingValueNode:
		return r.readMapping([]*ast.MappingValueNode{n}, n.IsFlowStyle, n.Start, depth)
	case *ast.SequenceNode:
		list := &Node{Kind: List, Flow: n.IsFlowStyle, At: r.tokenPlace(n.Start)}
		for _, item := range n.Values {
			if v := r.readNode(item, depth+1); v != nil {
				list.Items = append(list.Items, v)
				list.At.EndLine, list.At.EndColumn = v.At.EndLine, v.At.EndColumn
			}
		}

		if n.IsFlowStyle && n.End != nil {
			end := r.tokenPlace(n.End)
			list.At.EndLine, list.At.EndColumn = end.EndLine, end.EndColumn
		}

		list.At = clampEnd(list.At)

		return list
	case *ast.LiteralNode:
		return r.readBlockScalar(n)
	case ast.ScalarNode:
		return r.readScalar(n)
	}
	return nil
}

// resolveAlias is the value of an anchor above (https://yaml.org/spec/1.2.2/#71-alias-nodes: one without an anchor is an
// error).
func (r *reader) resolveAlias(n *ast.AliasNode) *Node {
	name := n.Value.GetToken().Value
	value, known := r.anchors[name]
	if !known {
		r.noteError(r.tokenPlace(n.Start), fmt.Sprintf("there is no anchor &%s for the alias *%[1]s", name))
	}

	return value
}

func (r *reader) noteError(at source.Place, text string) {
	if r.wrong == nil {
		r.wrong = &Error{Line: at.Line, Column: at.Column, Text: text}
	}
}

// readMapping reads the entries of a map, and those that << takes over from elsewhere unless the map has them itself
// (https://yaml.org/type/merge.html).
func (r *reader) readMapping(values []*ast.MappingValueNode, flow bool, start *token.Token, depth int) *Node {
	m := &Node{Kind: Map, Flow: flow, At: r.tokenPlace(start)}
	var merged []*Node

	for _, v := range values {
		value := r.readNode(v.Value, depth+1)
		if v.Key.IsMergeKey() {
			merged = append(merged, value)
			if value == nil || value.Kind == Scalar {
				r.noteError(r.tokenPlace(v.Key.GetToken()), "<< takes a map, or a list of maps")
			}
			continue
		}

		key := r.readNode(v.Key, depth+1)
		if k, ok := v.Key.(*ast.MappingKeyNode); ok {
			// "? key".
			key = r.readNode(k.Value, depth+1)
		}

		if key == nil {
			continue
		}

		p := Pair{Key: key, Value: value}
		if value == nil {
			p.Value = &Node{Null: true, Plain: true, At: emptyPlaceAfter(key.At)}
		}

		p.Bare = flow && p.Value.Null && p.Value.Raw == "" && v.Start != nil && v.Start.Value != ":"
		m.Pairs = append(m.Pairs, p)
	}

	if len(m.Pairs) > 0 {
		m.At = JoinPlaces(m.Pairs[0].Key.At, m.Pairs[len(m.Pairs)-1].Value.At)
	}

	for _, from := range merged {
		m.mergeMissing(from)
	}

	return m
}

// mergeMissing adds the entries of another map, or of a list of maps, that are not there yet.
func (n *Node) mergeMissing(from *Node) {
	if from == nil {
		return
	}
	for _, item := range from.Items {
		if item.Kind == Map {
			n.mergeMissing(item)
		}
	}
	for _, p := range from.Pairs {
		if p.Key.Kind == Scalar && n.Find(p.Key.Text) == nil {
			n.Pairs = append(n.Pairs, p)
		}
	}
}

// Find follows keys through maps; nil if one of them is missing. The last one of equal keys counts.
func (n *Node) Find(keys ...string) *Node {
	for _, key := range keys {
		if n == nil {
			return nil
		}

		i := len(n.Pairs) - 1
		for i >= 0 && (n.Pairs[i].Key.Kind != Scalar || n.Pairs[i].Key.Text != key) {
			i--
		}

		if i < 0 {
			return nil
		}

		n = n.Pairs[i].Value
	}
	return n
}

// ScalarText is the text of a scalar; "" of anything else, and of no node.
func (n *Node) ScalarText() string {
	if n == nil || n.Kind != Scalar || n.Null {
		return ""
	}
	return n.Text
}

// Entries returns the pairs of a map whose keys are plain scalars; of anything else none.
func (n *Node) Entries() []Pair {
	if n == nil || n.Kind != Map {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(n.Pairs), func(p Pair) bool { return p.Key.Kind != Scalar })
}

// Value is a scalar as a value of a step.
func (n *Node) Value() source.Value {
	if n == nil {
		return source.Value{}
	}
	return source.Value{Text: n.Text, Known: n.Kind == Scalar, At: n.At, Raw: n.Raw}
}
