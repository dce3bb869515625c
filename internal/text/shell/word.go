package shell

import (
	"reflect"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"gpuard/internal/core/lint"
)

func (r *reader) place(n syntax.Node) lint.Place {
	from, to := n.Pos(), n.End()
	return lint.Place{Line: int(from.Line()), Column: int(from.Col()), EndLine: int(to.Line()), EndColumn: int(to.Col())}
}

func (r *reader) raw(n syntax.Node) string {
	from, to := int(n.Pos().Offset())+r.shift, int(n.End().Offset())+r.shift
	if from < 0 || from > to || to > len(r.src) {
		return ""
	}
	return string(r.src[from:to])
}

// unknown is a value that the shell computes: the text is its source.
func (r *reader) unknown(n syntax.Node) lint.Value {
	raw := r.raw(n)
	return lint.Value{Text: raw, At: r.place(n), Raw: raw, From: variable(n)}
}

// variable is the one variable that a word takes its value from; "" when it takes several, or runs something.
func variable(n syntax.Node) string {
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
			if sole = sole && plain && name == ""; sole {
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

// value reads a word. It is known when the shell has nothing to expand in it.
func (r *reader) value(w *syntax.Word) lint.Value {
	text, known := literal(w.Parts, false)
	if !known {
		return r.unknown(w)
	}
	return lint.Value{Text: text, Known: true, At: r.place(w), Raw: r.raw(w)}
}

// literal takes the quoting away.
func literal(parts []syntax.WordPart, quoted bool) (text string, known bool) {
	var b strings.Builder
	for _, part := range parts {
		switch p := part.(type) {
		case *syntax.Lit:
			unescape(&b, p.Value, quoted)
		case *syntax.SglQuoted:
			if p.Dollar && strings.Contains(p.Value, `\`) {
				return "", false
			}
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			inside, ok := literal(p.Parts, true)
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

// unescape takes backslashes away: outside quotes each one, inside double quotes those before a character that would
// mean something there.
//
// https://pubs.opengroup.org/onlinepubs/9799919799/utilities/V3_chap02.html#tag_19_02
func unescape(b *strings.Builder, s string, quoted bool) {
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

// inner reads the commands inside a node: command and process substitutions, and ${NAME:=word}.
func (r *reader) inner(s *scope, node syntax.Node) {
	if node == nil || reflect.ValueOf(node).IsNil() {
		return
	}
	join := r.join
	syntax.Walk(node, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CmdSubst:
			r.substitute(s, n.Stmts)
			return false
		case *syntax.ProcSubst:
			r.substitute(s, n.Stmts)
			return false
		case *syntax.ParamExp:
			if n.Exp != nil && n.Exp.Word != nil && n.Param != nil && (n.Exp.Op == syntax.AssignUnset || n.Exp.Op == syntax.AssignUnsetOrNull) {
				r.set(s, lint.Step{At: r.place(n), Name: n.Param.Value, How: "${:=}", Value: r.value(n.Exp.Word), Maybe: true})
			}
		}
		return true
	})
	r.join = join
}

func (r *reader) substitute(s *scope, stmts []*syntax.Stmt) {
	r.join = ""
	r.apart(s, "subshell", func(in *scope) { r.list(in, stmts) })
}
