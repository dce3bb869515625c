package layout

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strconv"
	"strings"
)

// uniquePackages lets a name of a package stand once below internal/, so that no import has to be renamed: a reader who
// meets the name in any file knows which package it is. An import is renamed only where the names of Go's own packages,
// of other projects or of variables leave no choice.
func uniquePackages(repo tree) (bad []string) {
	folders := map[string][]string{}
	for dir := range repo.packages() {
		if strings.HasPrefix(dir, "internal/") {
			folders[path.Base(dir)] = append(folders[path.Base(dir)], dir)
		}
	}

	for name, of := range folders {
		if len(of) > 1 {
			slices.Sort(of)
			bad = append(bad, fmt.Sprintf("%s: the name %s stands for another package, too", strings.Join(of, ", "), name))
		}
	}

	for _, s := range repo.code(true) {
		for _, i := range s.file.Imports {
			target, err := strconv.Unquote(i.Path.Value)
			if err != nil || i.Name == nil || i.Name.Name == "_" || !strings.HasPrefix(target, module+"/internal/") {
				continue
			}
			if !slices.Contains(renamedImports(), path.Base(target)) {
				bad = append(bad, fmt.Sprintf("%s: %s is imported as %s: let it have its own name", s.at(i.Pos()), path.Base(target), i.Name.Name))
			}
		}
	}

	slices.Sort(bad)
	return bad
}

// renamedImports are packages whose names many variables and functions have.
func renamedImports() []string {
	return []string{"run", "container", "unit", "health", "service", "sweep"}
}

// memberComments lets the comment of a member say what the member is. One that begins with a preposition, such as "Of the
// lease", hangs on the name of the member, which then has to be read twice.
func memberComments(repo tree) (bad []string) {
	prepositions := []string{
		"Of", "By", "From", "In", "With", "Without", "For", "On", "At", "To", "As", "Between", "Since", "After", "Before",
		"Until", "Under", "Behind", "Inside", "Per", "Than", "About", "Besides",
	}

	for _, s := range repo.code(false) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			structure, ok := n.(*ast.StructType)
			if !ok {
				return true
			}

			for _, member := range structure.Fields.List {
				first, _, _ := strings.Cut(strings.TrimSpace(member.Doc.Text()), " ")
				if slices.Contains(prepositions, first) {
					bad = append(bad, fmt.Sprintf("%s: the comment begins with %q: say what the member is", s.at(member.Doc.Pos()), first))
				}
			}

			return true
		})
	}

	return bad
}
