package shell

import (
	"reflect"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"gpuard/internal/core/lint"
)

func (r *reader) placeOf(n syntax.Node) lint.Place {
	from, to := n.Pos(), n.End()
	return lint.Place{Line: int(from.Line()), Column: int(from.Col()), EndLine: int(to.Line()), EndColumn: int(to.Col())}
}

func (r *reader) rawText(n syntax.Node) string {
	from, to := int(n.Pos().Offset())+r.shift, int(n.End().Offset())+r.shift
	if from < 0 || from > to || to > len(r.src) {
		return ""
	}
	return string(r.src[from:to])
}

// unknownValue is a value that the shell computes: the text is its source.
func (r *reader) unknownValue(n syntax.Node) lint.Value {
	raw := r.rawText(n)
	return lint.Value{Text: raw, At: r.placeOf(n), Raw: raw, From: soleVariable(n)}
}

// soleVariable is the one variable that a word takes its value from; "" when it takes several, or runs something.
func soleVariable(n syntax.Node) string {
	w, ok := n.(*syntax.Word)
	if !ok {
		return ""
	}

	name, sole := "", true
	syntax.Walk(w, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CmdSubst, *syntax.ProcSubst, *syntax.ArithmExp, *syntax.ExtGlob:
			sole = false
		case *syntax.ParamExp:
			plain := !n.Excl && !n.Length && !n.Width && !n.IsSet && n.Index == nil && n.Repl == nil && n.Slice == nil && n.Names == 0 && n.Param != nil
			sole = sole && plain && name == ""
			if sole {
				name = n.Param.Value
			}
		}
		return sole
	})

	if !sole || !syntax.ValidName(name) {
		return ""
	}

	return name
}

// wordValue reads a word. It is known when the shell has nothing to expand in it.
func (r *reader) wordValue(w *syntax.Word) lint.Value {
	text, known := literalText(w.Parts, false)
	if !known {
		return r.unknownValue(w)
	}
	return lint.Value{Text: text, Known: true, At: r.placeOf(w), Raw: r.rawText(w)}
}

// literalText takes the quoting away.
func literalText(parts []syntax.WordPart, quoted bool) (text string, known bool) {
	var b strings.Builder
	for _, part := range parts {
		switch p := part.(type) {
		case *syntax.Lit:
			writeUnescaped(&b, p.Value, quoted)
		case *syntax.SglQuoted:
			if p.Dollar && strings.Contains(p.Value, `\`) {
				return "", false
			}
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			inside, ok := literalText(p.Parts, true)
			if !ok || p.Dollar {
				return "", false
			}
			b.WriteString(inside)
		default:
			return "", false
		}
	}
	return b.String(), true
}

// writeUnescaped takes backslashes away: outside quotes each one, inside double quotes those before a character that would
// mean something there.
//
// https://pubs.opengroup.org/onlinepubs/9799919799/utilities/V3_chap02.html#tag_19_02
func writeUnescaped(b *strings.Builder, s string, quoted bool) {
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) || quoted && !strings.ContainsRune("$`\"\\\n", rune(s[i+1])) {
			b.WriteByte(s[i])
			continue
		}
		i++
		if s[i] != '\n' {
			b.WriteByte(s[i])
		}
	}
}

// readInner reads the commands inside a node: command and process substitutions, and ${NAME:=word}.
func (r *reader) readInner(s *scope, node syntax.Node) {
	if node == nil || reflect.ValueOf(node).IsNil() {
		return
	}
	join := r.join
	syntax.Walk(node, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CmdSubst:
			r.readSubstitution(s, n.Stmts)
			return false
		case *syntax.ProcSubst:
			r.readSubstitution(s, n.Stmts)
			return false
		case *syntax.ParamExp:
			if n.Exp != nil && n.Exp.Word != nil && n.Param != nil && (n.Exp.Op == syntax.AssignUnset || n.Exp.Op == syntax.AssignUnsetOrNull) {
				r.addSet(s, lint.Step{At: r.placeOf(n), Name: n.Param.Value, How: "${:=}", Value: r.wordValue(n.Exp.Word), Maybe: true})
			}
		}
		return true
	})
	r.join = join
}

func (r *reader) readSubstitution(s *scope, stmts []*syntax.Stmt) {
	r.join = ""
	r.readInProcess(s, "subshell", func(in *scope) { r.readList(in, stmts) })
}
