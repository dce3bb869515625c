package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// pkg is one package of the module, without its tests.
type pkg struct {
	path, module string
	fset         *token.FileSet
	files        []*ast.File
	types        *types.Package
	info         *types.Info
}

// pathInModule is its path inside the module.
func (p *pkg) pathInModule() string { return strings.TrimPrefix(p.path, p.module+"/") }

func (p *pkg) isForTests() bool { return p.layerName() == "test" || p.layerName() == "gate" }

// layerName is the layer that it belongs to: "app" of internal/app/sweep.
func (p *pkg) layerName() string {
	group, _, _ := strings.Cut(strings.TrimPrefix(p.pathInModule(), "internal/"), "/")
	return group
}

func (p *pkg) countLines() (n int) {
	for _, f := range p.files {
		n += p.fset.File(f.FileStart).LineCount()
	}
	return n
}

// fileOf is the number of the file that a position lies in.
func (p *pkg) fileOf(pos token.Pos) int {
	for i, f := range p.files {
		if f.FileStart <= pos && pos <= f.FileEnd {
			return i
		}
	}
	return -1
}

// listedPackage is what `go list -json` says of a package.
type listedPackage struct {
	Dir, ImportPath, Export string
	GoFiles                 []string
	Module                  *struct {
		Path string
		Main bool
	}
}

// loadPackages reads and checks the packages of the module in dir, a package after those it imports. What they import of other
// modules comes from the export data of the compiler. Packages that only tests use are left out.
func loadPackages(dir string) ([]*pkg, error) {
	cmd := exec.Command("go", "list", "-deps", "-export", "-json=Dir,ImportPath,Export,GoFiles,Module", "./...")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("cannot list the packages: %w", err)
	}
	fset := token.NewFileSet()
	checked, exports := map[string]*types.Package{}, map[string]string{}
	compiled := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	imports := importFunc(func(path string) (*types.Package, error) {
		if ours := checked[path]; ours != nil {
			return ours, nil
		}
		return compiled.Import(path)
	})
	var packages []*pkg
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listedPackage
		if err := decoder.Decode(&l); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, err
		}
		if exports[l.ImportPath] = l.Export; l.Module == nil || !l.Module.Main || len(l.GoFiles) == 0 {
			continue
		}
		p := &pkg{path: l.ImportPath, module: l.Module.Path, fset: fset, info: &types.Info{
			Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}}
		for _, name := range l.GoFiles {
			const mode = parser.ParseComments | parser.SkipObjectResolution
			file, err := parser.ParseFile(fset, filepath.Join(l.Dir, name), nil, mode)
			if err != nil {
				return nil, err
			}
			p.files = append(p.files, file)
		}
		if p.types, err = (&types.Config{Importer: imports}).Check(p.path, fset, p.files, p.info); err != nil {
			return nil, err
		}
		if checked[p.path] = p.types; !p.isForTests() {
			packages = append(packages, p)
		}
	}
}

type importFunc func(path string) (*types.Package, error)

func (f importFunc) Import(path string) (*types.Package, error) { return f(path) }
