package shell

import (
	"slices"

	"mvdan.cc/sh/v3/syntax"

	"gpuard/internal/core/lint"
)

// readDefault reads what happens where a condition holds: of a variable that it found empty, what is assigned is a default,
// which the caller can change.
func (r *reader) readDefault(s *scope, condition []*syntax.Stmt, read func()) {
	was := s.empty
	s.empty = slices.Concat(was, r.emptyVariables(condition))
	read()
	s.empty = was
}

// maxAsked bounds how many variables are kept that the conditions around a command ask about.
const maxAsked = 50

// withAsked adds the variables that a condition names to those that the conditions around it ask about.
func withAsked(asked []string, condition syntax.Node) []string {
	asked = slices.Clip(asked)
	syntax.Walk(condition, func(n syntax.Node) bool {
		p, is := n.(*syntax.ParamExp)
		if is && p.Param != nil && len(asked) < maxAsked && !slices.Contains(asked, p.Param.Value) {
			asked = append(asked, p.Param.Value)
		}
		return true
	})
	return asked
}

// emptyVariables are those that a condition finds empty or missing: [ -z "$A" ], [[ -z $A ]], [ "$A" = "" ] and [ ! "$A" ], with
// others beside it by && alone.
func (r *reader) emptyVariables(condition []*syntax.Stmt) (names []string) {
	if len(condition) == 0 || condition[len(condition)-1].Negated {
		return nil
	}

	switch c := condition[len(condition)-1].Cmd.(type) {
	case *syntax.BinaryCmd:
		if c.Op == syntax.AndStmt {
			return slices.Concat(r.emptyVariables([]*syntax.Stmt{c.X}), r.emptyVariables([]*syntax.Stmt{c.Y}))
		}
	case *syntax.TestClause:
		return r.emptyInTest(c.X)
	case *syntax.CallExpr:
		var words []lint.Word
		for _, w := range c.Args {
			words = append(words, r.wordValue(w))
		}
		return emptyInWords(words)
	}

	return nil
}

// emptyInTest reads what stands within [[ ]].
func (r *reader) emptyInTest(x syntax.TestExpr) []string {
	switch x := x.(type) {
	case *syntax.ParenTest:
		return r.emptyInTest(x.X)
	case *syntax.BinaryTest:
		if x.Op == syntax.AndTest {
			return slices.Concat(r.emptyInTest(x.X), r.emptyInTest(x.Y))
		}
		left, isWord := x.X.(*syntax.Word)
		right, areWords := x.Y.(*syntax.Word)
		if isWord && areWords && (x.Op == syntax.TsMatch || x.Op == syntax.TsMatchShort) {
			return emptyInWords([]lint.Word{{Text: "["}, r.wordValue(left), {Text: "=", Known: true}, r.wordValue(right)})
		}
	case *syntax.UnaryTest:
		if w, isWord := x.X.(*syntax.Word); isWord && x.Op == syntax.TsEmpStr {
			return nameOf(r.wordValue(w))
		}
	}
	return nil
}

// emptyInWords reads the words of [ and of test.
func emptyInWords(words []lint.Word) []string {
	if len(words) < 3 || words[0].Text != "[" && words[0].Text != "test" {
		return nil
	}
	words = words[1:]
	if words[len(words)-1].Text == "]" {
		words = words[:len(words)-1]
	}

	switch {
	case len(words) == 2 && (words[0].Text == "-z" || words[0].Text == "!"):
		return nameOf(words[1])
	case len(words) == 3 && (words[1].Text == "=" || words[1].Text == "==") && words[2].Known && words[2].Text == "":
		return nameOf(words[0])
	}

	return nil
}

// nameOf is the variable that a word is; none of ${A}x.
func nameOf(w lint.Word) []string {
	if w.From == "" {
		return nil
	}
	return []string{w.From}
}
