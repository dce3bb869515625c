package shell

import (
	"slices"

	"mvdan.cc/sh/v3/syntax"

	"gpuard/internal/core/lint"
)

// reader turns the tree of a script into steps.
type reader struct {
	src []byte
	// What is added to an offset of the tree for one in src.
	shift  int
	unread int // lines
	// The line of the first of them.
	firstUnread int
	steps       []lint.Step
	// What joins the next command.
	join      string
	loops     int // seen so far
	processes int // seen so far
	// The last command of a pipeline runs in the shell itself: zsh, ksh, bash after shopt -s lastpipe.
	lastInPlace bool
}

// readList reads statements in their order.
func (r *reader) readList(s *scope, stmts []*syntax.Stmt) {
	for i, stmt := range stmts {
		if i > 0 {
			r.join = ""
			if stmts[i-1].Background {
				r.join = "&"
			}
		}
		r.readStmt(s, stmt)
	}
}

func (r *reader) readStmt(s *scope, stmt *syntax.Stmt) {
	if stmt == nil {
		return
	}
	if stmt.Background || stmt.Coprocess || stmt.Disown {
		r.readInProcess(s, "background", func(in *scope) {
			in.beside = true
			r.readCommand(in, stmt)
		})
		return
	}
	r.readCommand(s, stmt)
}

func (r *reader) readCommand(s *scope, stmt *syntax.Stmt) {
	for _, redirect := range stmt.Redirs {
		r.readInner(s, redirect.Word)
	}
	switch c := stmt.Cmd.(type) {
	case *syntax.CallExpr:
		r.readCall(s, c, stmt.Redirs)
	case *syntax.DeclClause:
		r.readDeclaration(s, c)
	case *syntax.BinaryCmd:
		r.readBinary(s, c)
	case *syntax.Block:
		r.readList(s, c.Stmts)
	case *syntax.Subshell:
		r.readInProcess(s, "subshell", func(in *scope) { r.readList(in, c.Stmts) })
	case *syntax.FuncDecl:
		r.readFunction(s, c)
	case *syntax.TimeClause:
		r.readStmt(s, c.Stmt)
	case *syntax.CoprocClause:
		r.readInProcess(s, "background", func(in *scope) {
			in.beside = true
			r.readStmt(in, c.Stmt)
		})
	case *syntax.TestDecl:
		r.readStmt(s, c.Body)
	case nil:
	default:
		r.readBranches(s, c)
	}
}

// readBranches reads what may happen, and tests.
func (r *reader) readBranches(s *scope, c syntax.Command) {
	switch c := c.(type) {
	case *syntax.IfClause:
		r.readIf(s, c)
	case *syntax.WhileClause:
		r.loops++
		r.readBranch(s, c.Cond, c.Do)
	case *syntax.ForClause:
		r.loops++
		if each, ok := c.Loop.(*syntax.WordIter); ok {
			for _, w := range each.Items {
				r.readInner(s, w)
			}
			if each.Name != nil {
				r.addSet(s, lint.Step{At: r.placeOf(each), Name: each.Name.Value, How: "for", Value: r.unknownValue(each)})
			}
		} else {
			r.readInner(s, c.Loop)
		}
		r.readBranch(s, c.Do)
	case *syntax.CaseClause:
		r.readInner(s, c.Word)
		was := s.asked
		s.asked = withAsked(was, c.Word)
		for _, item := range c.Items {
			r.readBranch(s, item.Stmts)
		}
		s.asked = was
	default:
		// [[ ]], (( )), let.
		r.readInner(s, c)
	}
}

// readIf reads the arms of a condition: each is reached by what the ones before it ask, too.
func (r *reader) readIf(s *scope, c *syntax.IfClause) {
	was := s.asked
	r.readList(s, c.Cond)

	for ; c != nil; c = c.Else {
		for _, stmt := range c.Cond {
			s.asked = withAsked(s.asked, stmt)
		}
		r.readDefault(s, c.Cond, func() { r.readBranch(s, c.Then) })
		if c.Else != nil {
			r.readBranch(s, c.Else.Cond)
		}
	}
	s.asked = was
}

func (r *reader) readFunction(s *scope, c *syntax.FuncDecl) {
	name := ""
	if c.Name != nil {
		name = c.Name.Value
	} else if len(c.Names) > 0 {
		name = c.Names[0].Value
	}

	in, join := s.in, r.join
	s.in, r.join = name, ""
	r.steps = append(r.steps, lint.Step{At: r.placeOf(c), Do: lint.Define, Name: name, In: in, Process: s.process, Maybe: s.maybe})
	r.readStmt(s, c.Body)
	s.in, r.join = in, join
}

func (r *reader) readBinary(s *scope, c *syntax.BinaryCmd) {
	switch c.Op {
	case syntax.Pipe, syntax.PipeAll:
		r.readPipeline(s, c)
	default:
		r.readStmt(s, c.X)
		r.join = c.Op.String()
		was, asked := s.maybe, s.asked
		test := isTest(c.X)
		s.maybe = was || test || c.Op == syntax.OrStmt
		if last, isChain := c.X.Cmd.(*syntax.BinaryCmd); test && isChain {
			s.asked = withAsked(asked, last.Y)
		} else if test {
			s.asked = withAsked(asked, c.X)
		}

		if c.Op == syntax.OrStmt {
			r.readStmt(s, c.Y)
		} else {
			r.readDefault(s, []*syntax.Stmt{c.X}, func() { r.readStmt(s, c.Y) })
		}
		s.maybe, s.asked = was, asked
	}
}

// readPipeline reads the parts of a pipeline, each of which is a process.
func (r *reader) readPipeline(s *scope, c *syntax.BinaryCmd) {
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
			r.readStmt(s, part)
			return
		}

		before := len(r.steps)
		r.readInProcess(s, "pipeline", func(in *scope) { r.readStmt(in, part) })
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
		if script, ok := echoScript(r.steps[before-1]); ok {
			r.steps = append(r.steps, placeLines(script))
		}
	}
}

// maxChainLength bounds how far a chain of && is looked back.
const maxChainLength = 50

// isTest reports whether a statement only asks, or ends a chain with such a statement in it: what follows "&&" is then
// a branch.
func isTest(stmt *syntax.Stmt) bool {
	for range maxChainLength {
		c, ok := stmt.Cmd.(*syntax.BinaryCmd)
		if !ok || c.Op == syntax.Pipe || c.Op == syntax.PipeAll {
			return isTestCommand(stmt)
		}
		if isTestCommand(c.Y) {
			return true
		}
		stmt = c.X
	}
	return false
}

func isTestCommand(stmt *syntax.Stmt) bool {
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
