package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// outsideView is how the product Go of a tree reads to a person who opens it for the first time, in numbers. It needs no
// build, so a checkout of any project can be measured in the same way.
type outsideView struct {
	lines, comments, trailing, blank   int
	functions, oneWord, participles    int
	conditions, withEffects, happyFlow int
	packagesOf                         map[string]map[string]bool // folders by the name of a function
}

// measureOutside reads all Go files below a folder that are no tests and no tools of tests.
func measureOutside(root string) (*outsideView, error) {
	view := &outsideView{packagesOf: map[string]map[string]bool{}}
	fset := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		inside, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			left := slices.Contains([]string{"testdata", "vendor", ".git", ".cache"}, entry.Name())
			if left || slices.Contains([]string{"test", "bench", "e2e"}, inside) {
				return filepath.SkipDir
			}

			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}

		return view.addFile(fset, path)
	})

	return view, err
}

func (v *outsideView) addFile(fset *token.FileSet, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}

	file, err := parser.ParseFile(fset, path, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}

	v.countLines(string(text))
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok {
			v.addFunction(f.Name.Name, filepath.Dir(path))
		}
	}

	ast.Inspect(file, func(node ast.Node) bool {
		if condition, ok := node.(*ast.IfStmt); ok {
			v.addCondition(condition)
		}

		return true
	})

	return nil
}

func (v *outsideView) countLines(text string) {
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		v.lines++
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "":
			v.blank++
		case strings.HasPrefix(trimmed, "//"):
			v.comments++
		case strings.Contains(line, " // "):
			v.trailing++
		}
	}
}

// addFunction counts a function or method, unless its name is one that Go prescribes.
func (v *outsideView) addFunction(name, folder string) {
	if slices.Contains([]string{"Error", "String", "Unwrap", "main", "init"}, name) {
		return
	}

	v.functions++
	if !strings.ContainsFunc(name[1:], unicode.IsUpper) {
		v.oneWord++
		if strings.HasSuffix(name, "ed") || strings.HasSuffix(name, "en") {
			v.participles++
		}
	}

	if v.packagesOf[name] == nil {
		v.packagesOf[name] = map[string]bool{}
	}
	v.packagesOf[name][folder] = true
}

func (v *outsideView) addCondition(condition *ast.IfStmt) {
	v.conditions++
	switch header := condition.Init.(type) {
	case *ast.AssignStmt:
		if header.Tok != token.DEFINE {
			v.withEffects++
		}
	case *ast.IncDecStmt, *ast.ExprStmt:
		v.withEffects++
	}

	compared, ok := condition.Cond.(*ast.BinaryExpr)
	if ok && compared.Op == token.EQL && isNamed(compared.X, "err") && isNamed(compared.Y, "nil") {
		v.happyFlow++
	}
}

func isNamed(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

// sharedFunctions is how many names of functions stand in four packages or more.
func (v *outsideView) sharedFunctions() (count int) {
	for _, folders := range v.packagesOf {
		if len(folders) >= 4 {
			count++
		}
	}

	return count
}

// outsideRow is one measure: percentages, but for names in packages and lines.
type outsideRow struct {
	name  string
	value float64
}

func (v *outsideView) rows() []outsideRow {
	percent := func(part, all int) float64 { return 100 * float64(part) / float64(max(all, 1)) }

	return []outsideRow{
		{"function names of one word, %", percent(v.oneWord, v.functions)},
		{"one-word participles, %", percent(v.participles, v.functions)},
		{"names in four or more packages", float64(v.sharedFunctions())},
		{"whole-line comments, %", percent(v.comments, v.lines)},
		{"trailing comments, %", percent(v.trailing, v.lines)},
		{"blank lines, %", percent(v.blank, v.lines)},
		{"if with an effect in its header, %", percent(v.withEffects, v.conditions)},
		{"if err == nil, %", percent(v.happyFlow, v.conditions)},
		{"product lines", float64(v.lines)},
	}
}

// printOutside prints the measures of several trees side by side.
func printOutside(out io.Writer, roots []string) error {
	var columns [][]outsideRow
	fmt.Fprintf(out, "\n%-36s", "from outside")
	for _, root := range roots {
		view, err := measureOutside(root)
		if err != nil {
			return err
		}

		columns = append(columns, view.rows())
		fmt.Fprintf(out, " %12s", filepath.Base(root))
	}

	fmt.Fprintln(out)
	for i, row := range columns[0] {
		fmt.Fprintf(out, "%-36s", row.name)
		for _, column := range columns {
			fmt.Fprintf(out, " %12.1f", column[i].value)
		}

		fmt.Fprintln(out)
	}

	return nil
}
