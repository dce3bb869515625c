package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// structShape is how large a struct is and from where its fields and methods are used.
type structShape struct {
	name                             string
	fields, methods, files, packages int
}

// structShapes are all of the module. First comes the one that has most members and users, both taken together.
func structShapes(packages []*pkg) []structShape {
	files, users := map[types.Object]map[*ast.File]bool{}, map[types.Object]map[*pkg]bool{}
	owner := map[types.Object]*types.TypeName{} // of fields and methods
	var all []structShape
	var declarations []*types.TypeName
	for _, p := range packages {
		for _, name := range p.types.Scope().Names() {
			t, ok := p.types.Scope().Lookup(name).(*types.TypeName)
			if !ok || t.IsAlias() {
				continue
			}
			named, _ := t.Type().(*types.Named)
			s, ok := t.Type().Underlying().(*types.Struct)
			if named == nil || !ok {
				continue
			}
			for f := range s.Fields() {
				owner[f] = t
			}
			for m := range named.Methods() {
				owner[m] = t
			}
			files[t], users[t] = map[*ast.File]bool{}, map[*pkg]bool{}
			declarations = append(declarations, t)
			all = append(all, structShape{name: p.pathInModule() + "." + name, fields: s.NumFields(), methods: named.NumMethods()})
		}
	}
	for _, p := range packages {
		for id, o := range p.info.Uses {
			if t := owner[originOf(o)]; t != nil {
				files[t][p.files[p.fileOf(id.Pos())]] = true
				users[t][p] = true
			}
		}
	}
	for i, t := range declarations {
		all[i].files, all[i].packages = len(files[t]), len(users[t])
	}
	weight := func(s structShape) int { return (s.fields + s.methods) * s.files }
	slices.SortStableFunc(all, func(a, b structShape) int { return cmp.Compare(weight(b), weight(a)) })
	return all
}

// sharedName is a name that several functions, methods or types have which are not exported.
type sharedName struct {
	name  string
	times int
	where []string // "app 9"
}

func sharedNames(packages []*pkg) []sharedName {
	count := map[string]map[string]int{}
	for _, p := range packages {
		for _, f := range p.files {
			for _, decl := range f.Decls {
				for _, id := range declaredNames(decl) {
					if !id.IsExported() && id.Name != "_" && id.Name != "main" {
						if count[id.Name] == nil {
							count[id.Name] = map[string]int{}
						}
						count[id.Name][p.layerName()]++
					}
				}
			}
		}
	}
	var all []sharedName
	for name, groups := range count {
		a := sharedName{name: name}
		for _, group := range slices.Sorted(maps.Keys(groups)) {
			a.times += groups[group]
			a.where = append(a.where, fmt.Sprintf("%s %d", group, groups[group]))
		}
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b sharedName) int { return cmp.Or(b.times-a.times, strings.Compare(a.name, b.name)) })
	return all
}

// declaredNames are the functions, methods and types of a declaration.
func declaredNames(decl ast.Decl) (ids []*ast.Ident) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		return []*ast.Ident{d.Name}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if t, ok := spec.(*ast.TypeSpec); ok {
				ids = append(ids, t.Name)
			}
		}
	}
	return ids
}

// wordText is the words of some text, in lower case, with one space between them.
type wordText string

func newCorpus(text string) wordText {
	return wordText(strings.Join(wordPattern.FindAllString(strings.ToLower(text), -1), " "))
}

var wordPattern = regexp.MustCompile(`[a-z]+(?:'[a-z]+)*`)

func (c wordText) countWords() int {
	if c == "" {
		return 0
	}
	return strings.Count(string(c), " ") + 1
}

// collectText is what the comments say, and the literals that users may see: all but import paths and tags of fields.
func collectText(packages []*pkg) (comments, literals wordText) {
	var said, shown strings.Builder
	for _, p := range packages {
		for _, f := range p.files {
			for _, c := range f.Comments {
				said.WriteString(c.Text() + "\n")
			}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.ImportSpec:
					return false
				case *ast.Field:
					n.Tag = nil
				case *ast.BasicLit:
					if n.Kind == token.STRING {
						shown.WriteString(n.Value + "\n")
					}
				}
				return true
			})
		}
	}
	return newCorpus(said.String()), newCorpus(shown.String())
}

// watchedWord is one or more words that are counted together.
type watchedWord struct {
	name    string
	pattern *regexp.Regexp
}

func (w watchedWord) ratePer100000(c wordText) float64 {
	return 100000 * float64(len(w.pattern.FindAllString(string(c), -1))) / float64(max(1, c.countWords()))
}

func watchedWords() []watchedWord {
	of := func(name, pattern string) watchedWord {
		return watchedWord{name, regexp.MustCompile(`\b(?:` + pattern + `)\b`)}
	}
	return []watchedWord{
		of("somebody/nobody/everybody/anybody", "(?:some|no|every|any)body"),
		of("who/whoever/whose/whom", "who|whoever|whose|whom"),
		of("stand(s)", "stands?"),
		of("look(s)", "looks?"),
		of("at once", "at once"),
		of("goes on", "goes on"),
		of("retired: desk, seat, crew, stray …", "(?i:desk|seat|crew|stray|belongings|lookout|harbour|dockyard|traveller|conductor)s?"),
	}
}
