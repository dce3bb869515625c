package layout

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path"
	"slices"
)

// noMutableVariables lets a package variable be a table or an error, never a place where state
// lives: nothing may assign to it, take its address, or lock it.
func noMutableVariables(repo tree) (bad []string) {
	for _, files := range repo.packages() {
		uses := resolve(files)
		for _, s := range files {
			for _, d := range s.file.Decls {
				if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR {
					bad = append(bad, locksIn(s, g)...)
				}
			}
			ast.Inspect(s.file, func(n ast.Node) bool {
				for _, target := range written(n) {
					if name := packageVariable(target, uses); name != "" {
						bad = append(bad, fmt.Sprintf("%s: package variable %s is changed: pass the value instead", s.at(n.Pos()), name))
					}
				}
				return true
			})
		}
	}
	slices.Sort(bad)
	return bad
}

// resolve finds out which declaration a name in the package means. Imports are left empty and errors
// are ignored: only the package's own variables matter.
func resolve(files tree) map[*ast.Ident]types.Object {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	var parsed []*ast.File
	for _, s := range files {
		parsed = append(parsed, s.file)
	}
	config := types.Config{Importer: nothing{}, Error: func(error) {}, FakeImportC: true}
	_, _ = config.Check(files[0].dir(), files[0].fset, parsed, info)
	return info.Uses
}

// nothing is an importer of empty packages.
type nothing struct{}

func (nothing) Import(name string) (*types.Package, error) {
	p := types.NewPackage(name, path.Base(name))
	p.MarkComplete()
	return p, nil
}

// written returns the expressions that n changes or hands out for change.
func written(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			return n.Lhs
		}
	case *ast.IncDecStmt:
		return []ast.Expr{n.X}
	case *ast.RangeStmt:
		if n.Tok == token.ASSIGN {
			return []ast.Expr{n.Key, n.Value}
		}
	case *ast.UnaryExpr:
		if n.Op == token.AND {
			return []ast.Expr{n.X}
		}
	case *ast.SendStmt:
		return []ast.Expr{n.Chan}
	case *ast.CallExpr:
		if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "delete" || f.Name == "clear") && len(n.Args) > 0 {
			return n.Args[:1]
		}
	}
	return nil
}

// packageVariable returns the name of the package variable at the root of e, or "".
func packageVariable(e ast.Expr, uses map[*ast.Ident]types.Object) string {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			v, ok := uses[x].(*types.Var)
			if ok && v.Pkg() != nil && v.Parent() == v.Pkg().Scope() {
				return x.Name
			}
			return ""
		case *ast.SelectorExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		default:
			return ""
		}
	}
}

// locksIn reports variables whose type or value comes from sync: they change without an assignment.
func locksIn(s *source, g *ast.GenDecl) (bad []string) {
	ast.Inspect(g, func(n ast.Node) bool {
		if _, inside := n.(*ast.FuncLit); inside {
			return false
		}
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && (x.Name == "sync" || x.Name == "atomic") {
				bad = append(bad, fmt.Sprintf("%s: package variable of %s.%s is hidden state", s.at(sel.Pos()), x.Name, sel.Sel.Name))
			}
		}
		return true
	})
	return bad
}
