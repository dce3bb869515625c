package shell

import (
	"slices"

	"mvdan.cc/sh/v3/syntax"

	"gpuard/internal/core/lint"
)

// reader turns the tree of a script into steps.
type reader struct {
	src         []byte
	shift       int // what is added to an offset of the tree for one in src
	unread      int // lines
	steps       []lint.Step
	join        string // of the next command
	loops       int    // seen so far
	processes   int    // seen so far
	lastInPlace bool   // the last command of a pipeline runs in the shell itself: zsh, ksh, bash after shopt -s lastpipe
}

// list reads statements in their order.
func (r *reader) list(s *scope, stmts []*syntax.Stmt) {
	for i, stmt := range stmts {
		if i > 0 {
			r.join = ""
			if stmts[i-1].Background {
				r.join = "&"
			}
		}
		r.stmt(s, stmt)
	}
}

func (r *reader) stmt(s *scope, stmt *syntax.Stmt) {
	if stmt == nil {
		return
	}
	if stmt.Background || stmt.Coprocess || stmt.Disown {
		r.apart(s, "background", func(in *scope) {
			in.beside = true
			r.command(in, stmt)
		})
		return
	}
	r.command(s, stmt)
}

func (r *reader) command(s *scope, stmt *syntax.Stmt) {
	for _, redirect := range stmt.Redirs {
		r.inner(s, redirect.Word)
	}
	switch c := stmt.Cmd.(type) {
	case *syntax.CallExpr:
		r.call(s, c, stmt.Redirs)
	case *syntax.DeclClause:
		r.declare(s, c)
	case *syntax.BinaryCmd:
		r.binary(s, c)
	case *syntax.Block:
		r.list(s, c.Stmts)
	case *syntax.Subshell:
		r.apart(s, "subshell", func(in *scope) { r.list(in, c.Stmts) })
	case *syntax.FuncDecl:
		r.function(s, c)
	case *syntax.TimeClause:
		r.stmt(s, c.Stmt)
	case *syntax.CoprocClause:
		r.apart(s, "background", func(in *scope) {
			in.beside = true
			r.stmt(in, c.Stmt)
		})
	case *syntax.TestDecl:
		r.stmt(s, c.Body)
	case nil:
	default:
		r.branches(s, c)
	}
}

// branches reads what may happen, and tests.
func (r *reader) branches(s *scope, c syntax.Command) {
	switch c := c.(type) {
	case *syntax.IfClause:
		r.list(s, c.Cond)
		for ; c != nil; c = c.Else {
			r.branch(s, c.Then)
			if c.Else != nil {
				r.branch(s, c.Else.Cond)
			}
		}
	case *syntax.WhileClause:
		r.loops++
		r.branch(s, c.Cond, c.Do)
	case *syntax.ForClause:
		r.loops++
		if each, ok := c.Loop.(*syntax.WordIter); ok {
			for _, w := range each.Items {
				r.inner(s, w)
			}
			if each.Name != nil {
				r.set(s, lint.Step{At: r.place(each), Name: each.Name.Value, How: "for", Value: r.unknown(each)})
			}
		} else {
			r.inner(s, c.Loop)
		}
		r.branch(s, c.Do)
	case *syntax.CaseClause:
		r.inner(s, c.Word)
		for _, item := range c.Items {
			r.branch(s, item.Stmts)
		}
	default: // [[ ]], (( )), let
		r.inner(s, c)
	}
}

func (r *reader) function(s *scope, c *syntax.FuncDecl) {
	name := ""
	if c.Name != nil {
		name = c.Name.Value
	} else if len(c.Names) > 0 {
		name = c.Names[0].Value
	}
	in, join := s.in, r.join
	s.in, r.join = name, ""
	r.steps = append(r.steps, lint.Step{At: r.place(c), Do: lint.Define, Name: name, In: in, Process: s.process, Maybe: s.maybe})
	r.stmt(s, c.Body)
	s.in, r.join = in, join
}

func (r *reader) binary(s *scope, c *syntax.BinaryCmd) {
	switch c.Op {
	case syntax.Pipe, syntax.PipeAll:
		r.pipeline(s, c)
	case syntax.OrStmt:
		r.stmt(s, c.X)
		r.join = "||"
		was := s.maybe
		s.maybe = true
		r.stmt(s, c.Y)
		s.maybe = was
	default:
		r.stmt(s, c.X)
		r.join = "&&"
		was := s.maybe
		s.maybe = was || isTest(c.X)
		r.stmt(s, c.Y)
		s.maybe = was
	}
}

// pipeline reads the parts of a pipeline, each of which is a process.
func (r *reader) pipeline(s *scope, c *syntax.BinaryCmd) {
	parts := []*syntax.Stmt{c.Y}
	first := c.X
	for {
		x, ok := first.Cmd.(*syntax.BinaryCmd)
		if !ok || x.Op != syntax.Pipe && x.Op != syntax.PipeAll || len(first.Redirs) > 0 {
			break
		}
		parts = append(parts, x.Y)
		first = x.X
	}
	parts = append(parts, first)
	for i, part := range slices.Backward(parts) {
		if i == 0 && r.lastInPlace {
			r.stmt(s, part)
			return
		}
		before := len(r.steps)
		r.apart(s, "pipeline", func(in *scope) { r.stmt(in, part) })
		r.handThrough(before)
		r.join = "|"
	}
}

// handThrough adds the script that echo writes through tee into a start file; step before is the first of tee's part.
func (r *reader) handThrough(before int) {
	if before == 0 || len(r.steps) != before+1 || r.steps[before].Do != lint.Command || r.steps[before-1].Do != lint.Command {
		return
	}
	words := r.steps[before].Words
	if slices.ContainsFunc(words, func(w lint.Word) bool { return w.Text == "tee" }) && isStartFile(words[len(words)-1].Text) {
		if script, ok := written(r.steps[before-1]); ok {
			r.steps = append(r.steps, spread(script))
		}
	}
}

// farLeft bounds how far a chain of && is looked back.
const farLeft = 50

// isTest reports whether a statement only asks, or ends a chain with such a statement in it: what follows "&&" is then
// a branch.
func isTest(stmt *syntax.Stmt) bool {
	for range farLeft {
		c, ok := stmt.Cmd.(*syntax.BinaryCmd)
		if !ok || c.Op == syntax.Pipe || c.Op == syntax.PipeAll {
			return asks(stmt)
		}
		if asks(c.Y) {
			return true
		}
		stmt = c.X
	}
	return false
}

func asks(stmt *syntax.Stmt) bool {
	switch c := stmt.Cmd.(type) {
	case *syntax.TestClause, *syntax.ArithmCmd:
		return true
	case *syntax.CallExpr:
		if len(c.Args) > 0 {
			program := c.Args[0].Lit()
			return program == "[" || program == "test" || program == "grep" || program == "command"
		}
	}
	return false
}
