package layout

// The rules of the repository that a compiler does not know: who may import whom, what the deciding
// layer must not touch, how large things may become. They are data and small functions here, and
// each has a case that breaks it (layout_broken_test.go). The files are opened and parsed directly: a test that
// asked `go list` would be answered from the test cache after a violation, because the cache
// watches the files a test opens and not what its children open.

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "gpuard"

// Limits of size, in lines and names.
const (
	maxFile     = 500
	maxTestFile = 800
	maxFunction = 60 // lines of code
	maxWhole    = 80 // lines of a function with its blank lines and comments
	maxExported = 25
	maxMethods  = 25   // of a type of the command line
	maxFiles    = 25   // of a package of the command line
	maxPackage  = 3000 // lines of code of such a package
)

// source is one file of the repository; file is nil for everything that is not Go.
type source struct {
	path string // relative to the module, with slashes
	text []byte
	file *ast.File
	fset *token.FileSet
}

func (s *source) dir() string  { return path.Dir(s.path) }
func (s *source) isGo() bool   { return s.file != nil }
func (s *source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }
func (s *source) at(pos token.Pos) string {
	return fmt.Sprintf("%s:%d", s.path, s.fset.Position(pos).Line)
}

// codeLines counts lines that hold code, from the first to the last: blank lines and comments make a text longer and not
// harder to read.
func (s *source) codeLines(first, last int) (count int) {
	for i, line := range bytes.Split(s.text, []byte("\n")) {
		text := bytes.TrimSpace(line)
		if i+1 >= first && i+1 <= last && len(text) > 0 && !bytes.HasPrefix(text, []byte("//")) {
			count++
		}
	}
	return count
}

// tree is the repository, in path order.
type tree []*source

// code returns the Go files; tests are included only when asked for.
func (t tree) code(tests bool) tree {
	return slices.DeleteFunc(slices.Clone(t), func(s *source) bool { return !s.isGo() || s.isTest() && !tests })
}

// packages groups the Go files that are not tests by folder.
func (t tree) packages() map[string]tree {
	byDir := map[string]tree{}
	for _, s := range t.code(false) {
		byDir[s.dir()] = append(byDir[s.dir()], s)
	}
	return byDir
}

// rule is one thing that must hold everywhere; check returns one line per violation.
type rule struct {
	name  string
	check func(tree) []string
}

func rules() []rule {
	return []rule{
		{"layers", layers},
		{"one reader of the hardware", oneReader},
		{"libraries at home", libraries},
		{"a light start", lightStart},
		{"leases without lint", leasesWithoutLint},
		{"core is pure", pureCore},
		{"flags by their table", flagsByTable},
		{"by descriptor", byDescriptor},
		{"no cgo, no dot imports", plainImports},
		{"one package comment", packageComments},
		{"file sizes", fileSizes},
		{"function sizes", functionSizes},
		{"views only show", views},
		{"few exported names", exportedNames},
		{"small rooms", smallRooms},
		{"no init", noInit},
		{"no mutable package variables", noMutableVariables},
		{"names that say something", names},
		{"names of packages stand once", uniquePackages},
		{"members that say what they are", memberComments},
		{"words that do not belong here", forbiddenWords},
		{"every requirement is explained", explainedRequirements},
		{"numbers of their own", ownNumbers},
		{"guards that exist", guardsExist},
		{"gates on their test", gatesOnTheirTest},
		{"links that lead somewhere", linksResolve},
		{"pages that are found", pagesFound},
		{"the architecture is whole", architectureNames},
		{"translations in step", translated},
	}
}

func TestLayout(t *testing.T) {
	repo := readTree(t, ".")
	packages := slices.Collect(maps.Keys(repo.packages()))
	for _, must := range []string{"internal/core/gpu", "internal/gate"} {
		if !slices.Contains(packages, must) {
			t.Fatalf("cannot find package %s among the %d read: the rules would pass on nothing", must, len(packages))
		}
	}
	for _, r := range rules() {
		t.Run(r.name, func(t *testing.T) {
			for _, violation := range r.check(repo) {
				t.Error(violation)
			}
		})
	}
}

// readTree reads every text file below root that belongs to the repository.
func readTree(t *testing.T, root string) tree {
	t.Helper()
	var repo tree
	fset := token.NewFileSet()
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := filepath.ToSlash(name)
		if entry.IsDir() && notOurs(rel) {
			return filepath.SkipDir
		}
		if !entry.Type().IsRegular() || notOurs(rel) { // in a worktree .git is a file
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if bytes.IndexByte(text, 0) >= 0 {
			text = nil // a binary, such as a picture or a fuzz corpus entry: only that it is there
		}
		s, err := newSource(fset, rel, text)
		repo = append(repo, s)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return repo
}

// notOurs names the folders that git ignores or owns.
func notOurs(dir string) bool {
	return slices.Contains([]string{".git", ".cache", "bin", "dist", "bench/out", "shared"}, dir)
}

func newSource(fset *token.FileSet, name string, text []byte) (*source, error) {
	s := &source{path: name, text: text, fset: fset}
	if !strings.HasSuffix(name, ".go") {
		return s, nil
	}
	var err error
	s.file, err = parser.ParseFile(s.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	return s, err
}
