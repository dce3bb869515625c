package layout

import (
	"fmt"
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
