package layout

import (
	"go/ast"
	"strings"
)

// call is a call of a function of ours with a first argument, in a function that may have a test.
type call struct {
	at     string
	inTest bool     // in a test file
	called string   // folder and name of the function
	first  ast.Expr // its first argument
	by     string   // folder and name of the function around it that is declared with a test; "" in a closure with a test of its own
	test   string   // the innermost test: the name of the parameter
}

// ownTest reports whether the call is made with the test that runs here.
func (c call) ownTest() bool {
	name, ok := c.first.(*ast.Ident)
	return ok && c.test != "" && name.Name == c.test
}

// gatesOnTheirTest: a gate skips the test that it is called with. With the test around that one, or with a value that
// has a test in it, it ends the wrong test, and only on a machine where it is shut. So a test calls gate.Need, and
// every function that gates the test that it is given, with the t of the innermost function that has one.
func gatesOnTheirTest(repo tree) (bad []string) {
	var calls []call
	for _, s := range repo.code(true) {
		calls = append(calls, callsIn(s)...)
	}
	gating := map[string]bool{"internal/gate.Need": true, "internal/gate.NeedStart": true}
	for before := 0; before < len(gating); {
		before = len(gating)
		for _, c := range calls {
			if gating[c.called] && c.by != "" && c.ownTest() {
				gating[c.by] = true
			}
		}
	}
	for _, c := range calls {
		if gating[c.called] && c.inTest && !c.ownTest() {
			bad = append(bad, c.at+": this may skip another test than the one that runs here: give it the t of the innermost function")
		}
	}
	return bad
}

func callsIn(s *source) (calls []call) {
	imports := map[string]string{}
	eachImport(tree{s}, func(_ *source, _ *ast.ImportSpec, imported string, ours bool) {
		if ours {
			imports[imported[strings.LastIndex(imported, "/")+1:]] = imported
		}
	})
	var walk func(n ast.Node, by, test string)
	walk = func(n ast.Node, by, test string) {
		ast.Inspect(n, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit:
				if own := testOf(n.Type); own != "" {
					walk(n.Body, "", own)
					return false
				}
			case *ast.CallExpr:
				if called := calledBy(s, n, imports); called != "" && len(n.Args) > 0 {
					calls = append(calls, call{s.at(n.Pos()), s.isTest(), called, n.Args[0], by, test})
				}
			}
			return true
		})
	}
	for _, d := range s.file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		by := ""
		if f.Recv == nil && testOf(f.Type) != "" {
			by = s.dir() + "." + f.Name.Name
		}
		walk(f.Body, by, testOf(f.Type))
	}
	return calls
}

// testOf is the name of the first parameter that is a test.
func testOf(f *ast.FuncType) string {
	for _, p := range f.Params.List {
		kind := p.Type
		if star, ok := kind.(*ast.StarExpr); ok {
			kind = star.X
		}
		sel, ok := kind.(*ast.SelectorExpr)
		if !ok || len(p.Names) == 0 {
			continue
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == "testing" && strings.Contains(" T B F TB ", " "+sel.Sel.Name+" ") {
			return p.Names[0].Name
		}
	}
	return ""
}

// calledBy is the folder and the name of a function of ours that is called; methods are none.
func calledBy(s *source, c *ast.CallExpr, imports map[string]string) string {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return s.dir() + "." + f.Name
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok && imports[x.Name] != "" {
			return imports[x.Name] + "." + f.Sel.Name
		}
	}
	return ""
}
