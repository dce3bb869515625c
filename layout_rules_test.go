package layout

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
)

// layer says what the packages of one folder may import of ours. A pattern that ends in /* stands for
// everything below. Standard library and other modules have rules of their own.
type layer struct {
	folder string
	may    []string
}

// layerTable is read from the top: the first folder that matches counts. A folder that matches
// nothing is a violation, so that a new one gets its line here on purpose.
func layerTable() []layer {
	const core, app, ui = "internal/core/", "internal/app/", "internal/ui/"
	below := []string{core + "*", "internal/text/*", "internal/host/*"}
	shared := slices.Concat(below, []string{app + "exit", app + "machine", app + "measure", app + "registry", app + "claim", app + "engine", app + "judge"})
	commandLine := []string{core + "*", app + "*", ui + "translate", ui + "console", ui + "failure", ui + "cmdtable", ui + "flagset", ui + "planview"}
	return []layer{
		{core + "prose", nil},
		{core + "suggest", nil},
		{core + "shellquote", nil},
		{core + "source", nil},
		{core + "option", nil},
		{core + "space", nil},
		{core + "launchers", []string{core + "option"}},
		{core + "edit", nil},
		{core + "prompt", []string{core + "prose", core + "gpu"}},
		{core + "gpu", []string{core + "prose", core + "option", core + "suggest"}},
		{core + "job", []string{core + "prose", core + "gpu"}},
		{core + "diagnostic", []string{core + "prose", core + "gpu"}},
		{core + "visible", []string{core + "prose", core + "option", core + "gpu", core + "job"}},
		{core + "health", []string{core + "prose", core + "gpu"}},
		{core + "display", []string{core + "prose", core + "gpu"}},
		{core + "devfile", []string{core + "prose", core + "gpu"}},
		{core + "quota", []string{core + "prose", core + "option", core + "gpu", core + "job", core + "visible"}},
		{core + "ranks", []string{core + "prose", core + "option", core + "gpu", core + "visible", core + "compat", core + "launchers"}},
		{core + "proof", []string{core + "prose", core + "option", core + "gpu"}},
		{core + "leftover", []string{core + "prose", core + "option", core + "gpu", core + "display"}},
		{core + "envstack", []string{core + "prose", core + "gpu", core + "job", core + "visible"}},
		{core + "policy", []string{core + "prose", core + "gpu", core + "display", core + "job"}},
		{core + "isolate", []string{core + "prose", core + "option", core + "gpu", core + "job", core + "policy"}},
		{core + "pick", []string{core + "prose", core + "option", core + "gpu", core + "display", core + "job", core + "visible", core + "health", core + "policy", core + "compat"}},
		{core + "status", []string{core + "prose", core + "option", core + "gpu", core + "display", core + "job", core + "health", core + "policy", core + "pick"}},
		{core + "queue", []string{core + "prose", core + "gpu", core + "job", core + "visible", core + "health", core + "policy", core + "pick"}},
		{core + "glance", []string{core + "prose", core + "option", core + "gpu", core + "job", core + "health", core + "queue", core + "status"}},
		{core + "trend", []string{core + "prose", core + "option", core + "gpu", core + "job", core + "health", core + "policy", core + "status"}},
		{core + "timeline", []string{core + "prose", core + "gpu", core + "status", core + "trend"}},
		{core + "supervise", []string{core + "prose", core + "option", core + "gpu", core + "visible", core + "job"}},
		{core + "batchlog", []string{core + "prose", core + "gpu", core + "queue", core + "supervise"}},
		{core + "sim", []string{core + "prose", core + "gpu", core + "job", core + "pick", core + "queue", core + "batchlog"}},
		{core + "experiment", []string{core + "prose", core + "option", core + "gpu"}},
		{core + "cluster", []string{core + "prose", core + "option", core + "gpu", core + "job", core + "policy", core + "check"}},
		{core + "grid", []string{core + "prose", core + "option", core + "gpu", core + "suggest", core + "shellquote", core + "batchlog"}},
		{core + "container", []string{core + "prose", core + "option", core + "gpu"}},
		{core + "handoff", []string{core + "prose", core + "option", core + "gpu", core + "job", core + "visible", core + "policy", core + "shellquote", core + "ranks"}},
		{core + "redact", nil},
		{core + "kubernetes", []string{core + "option"}},
		{core + "hostinfo", []string{core + "prose", core + "gpu", core + "visible", core + "leftover"}},
		{core + "compat", []string{core + "prose", core + "gpu"}},
		{core + "check", []string{core + "prose", core + "option", core + "gpu", core + "display", core + "job", core + "visible", core + "health", core + "policy", core + "leftover", core + "quota", core + "hostinfo", core + "compat", core + "shellquote", core + "kubernetes"}},
		{core + "lint", []string{core + "prose", core + "option", core + "gpu", core + "visible", core + "check", core + "compat", core + "source", core + "suggest", core + "container", core + "launchers"}},
		{core + "service", []string{core + "prose", core + "option", core + "gpu", core + "suggest", core + "job", core + "visible", core + "pick", core + "policy", core + "diagnostic", core + "shellquote"}},
		{"internal/text/yamltree", []string{core + "*"}}, // YAML with places, for the formats that are written in it
		{"internal/text/*", []string{core + "*", "internal/text/yamltree"}},
		{"internal/host/timens", nil},
		{"internal/host/sys", []string{"internal/host/timens"}},  // what several of host repeat about the system
		{"internal/host/program", []string{"internal/host/sys"}}, // how other programs are run
		{"internal/host/ownproc", nil},
		{"internal/host/filelimit", nil}, // so that it begins before the package syscall
		{"internal/host/crash", []string{"internal/host/filelimit"}},
		{"internal/host/isolation", []string{core + "*", "internal/host/sys", "internal/host/ownproc", "internal/host/filelimit", "internal/host/cgroupfs", "internal/host/program"}},
		{"internal/host/proctree", []string{core + "*", "internal/host/sys", "internal/host/timens", "internal/host/cgroupfs"}},
		{"internal/host/launch", []string{core + "*", "internal/host/sys", "internal/host/ownproc", "internal/host/timens", "internal/host/interrupt", "internal/host/program"}}, // both die of a signal
		{"internal/host/*", []string{core + "*", "internal/host/sys", "internal/host/ownproc", "internal/host/timens", "internal/host/program"}},
		// app, from the lowest: what every use case shares, then the use cases, which do not know each other but for
		// those named
		{app + "exit", []string{core + "*", "internal/host/*"}},
		{app + "machine", slices.Concat(below, []string{app + "exit"})},
		{app + "measure", slices.Concat(below, []string{app + "exit", app + "machine", app + "explain"})},
		{app + "registry", slices.Concat(below, []string{app + "exit", app + "machine"})},
		{app + "kubejobs", slices.Concat(below, []string{app + "exit", app + "machine"})},
		{app + "engine", slices.Concat(below, []string{app + "exit", app + "machine"})},
		{app + "holder", slices.Concat(below, []string{app + "exit", app + "machine", app + "measure", app + "registry", app + "engine"})},
		{app + "claim", slices.Concat(below, []string{app + "exit", app + "machine", app + "measure", app + "registry"})},
		{app + "judge", slices.Concat(below, []string{app + "exit", app + "machine"})},
		{app + "verify", slices.Concat(shared, []string{app + "explain"})},
		{app + "leases", slices.Concat(shared, []string{app + "holder"})}, // who starts a holder gives it orders
		{app + "run", slices.Concat(shared, []string{app + "verify", app + "holder"})},
		{app + "shellenv", slices.Concat(shared, []string{app + "leases"})},
		{app + "runner", slices.Concat(shared, []string{app + "run"})},
		{app + "sweep", slices.Concat(shared, []string{app + "runner", app + "run"})},
		{app + "userqueue", slices.Concat(shared, []string{app + "runner", app + "run", app + "remote"})},
		{app + "observe", slices.Concat(shared, []string{app + "leases"})},
		{app + "tell", slices.Concat(shared, []string{app + "leases"})},
		{app + "services", slices.Concat(shared, []string{app + "run"})},
		{app + "*", shared},
		{"internal/entry", []string{"internal/ui/cli", "internal/ui/commands", "internal/ui/projectfile", core + "*", app + "*", "internal/text/*", "internal/host/*"}},
		// the command line, from the lowest; its groups of commands do not know each other
		{ui + "translate", []string{core + "visible"}},
		{ui + "console", []string{core + "*", ui + "translate"}},
		{ui + "failure", []string{app + "exit"}},
		{ui + "cmdtable", nil},
		{ui + "flagset", []string{core + "*", ui + "cmdtable"}},
		{ui + "planview", []string{core + "*", ui + "console", ui + "translate"}},
		{ui + "manual", []string{app + "exit", app + "setup", ui + "cmdtable", ui + "flagset", ui + "console"}},
		{ui + "cli", slices.Concat(commandLine, []string{ui + "manual"})},
		{ui + "jobflags", slices.Concat(commandLine, []string{ui + "cli"})},
		{ui + "projectfile", slices.Concat(commandLine, []string{ui + "cli", ui + "jobflags"})},
		{ui + "cli/setupcmd", slices.Concat(commandLine, []string{ui + "cli", ui + "jobflags", ui + "projectfile", ui + "manual"})},
		{ui + "cli/*", slices.Concat(commandLine, []string{ui + "cli", ui + "jobflags", ui + "projectfile"})},
		{ui + "commands", slices.Concat(commandLine, []string{ui + "cli*", ui + "jobflags", ui + "projectfile", ui + "manual"})},
		{"internal/ui/band", []string{core + "*", "internal/ui/translate"}},
		{"internal/ui/web", []string{core + "*", app + "*", "internal/ui/band", "internal/ui/translate"}},
		{"internal/ui/top", []string{core + "*", app + "*", "internal/ui/translate"}},
		{"internal/ui/*", []string{core + "*", app + "*"}},
		{"cmd/gpuard", []string{"internal/entry", "internal/ui/cli", "internal/ui/commands", core + "*", app + "*", "internal/text/*", "internal/host/*", "internal/gate"}}, // not what would slow each start: decision 0030
		{"cmd/*", []string{"internal/*"}},
		{"internal/gate", []string{"internal/*"}},
		{"test/*", []string{"internal/*", "test/*"}},
		{"bench", []string{"internal/*", "test/*"}},
	}
}

// onlyForTests are folders that nothing but tests and each other may import.
func onlyForTests() []string { return []string{"internal/gate", "test/*", "bench"} }

func matches(patterns []string, dir string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if below, ok := strings.CutSuffix(p, "*"); ok {
			return strings.HasPrefix(dir, below)
		}
		return dir == p
	})
}

// eachImport calls f with every import of the files, as the path inside the module when it is ours.
func eachImport(files tree, f func(s *source, spec *ast.ImportSpec, imported string, ours bool)) {
	for _, s := range files {
		for _, spec := range s.file.Imports {
			imported := strings.Trim(spec.Path.Value, "`\"")
			inside, ours := strings.CutPrefix(imported, module+"/")
			f(s, spec, inside, ours)
		}
	}
}

func layers(repo tree) (bad []string) {
	table := layerTable()
	for dir := range repo.packages() {
		if !slices.ContainsFunc(table, func(l layer) bool { return matches([]string{l.folder}, dir) }) {
			bad = append(bad, dir+": no line in layerTable: give the folder its place among the layers")
		}
	}
	eachImport(repo.code(false), func(s *source, spec *ast.ImportSpec, imported string, ours bool) {
		i := slices.IndexFunc(table, func(l layer) bool { return matches([]string{l.folder}, s.dir()) })
		if !ours || i < 0 {
			return
		}
		if !matches(table[i].may, imported) {
			bad = append(bad, fmt.Sprintf("%s: %s may not import %s", s.at(spec.Pos()), s.dir(), imported))
		} else if matches(onlyForTests(), imported) && !matches(onlyForTests(), s.dir()) {
			bad = append(bad, fmt.Sprintf("%s: %s is for tests only", s.at(spec.Pos()), imported))
		}
	})
	slices.Sort(bad)
	return bad
}

// oneReader keeps the choice between the ways to read a machine in one file: everybody else gets the value.
func oneReader(repo tree) (bad []string) {
	readers := []string{"internal/host/nvml", "internal/host/nvsmi", "internal/host/amdgpu", "internal/host/pci"}
	users := map[string]bool{}
	eachImport(repo.code(false), func(s *source, _ *ast.ImportSpec, imported string, _ bool) {
		if matches(readers, imported) && !matches(onlyForTests(), s.dir()) {
			users[s.path] = true
		}
	})
	if len(users) > 1 {
		bad = append(bad, fmt.Sprintf("%s: more than one file reads the hardware", strings.Join(slices.Sorted(maps.Keys(users)), ", ")))
	}
	return bad
}

// home is where a third-party module may be imported.
type home struct {
	module  string
	folders []string // nil: in tests only
}

func homes() []home {
	return []home{
		{"github.com/ebitengine/purego", []string{"internal/host/nvml", "internal/host/libcuda"}},
		{"github.com/spf13/cobra", []string{"internal/ui/*"}},
		{"github.com/spf13/pflag", []string{"internal/ui/*"}},
		{"golang.org/x/sys", []string{"internal/host/*", "internal/ui/console", "internal/ui/cli*", "internal/gate", "test/*", "bench"}},
		{"mvdan.cc/sh/v3", []string{"internal/text/shell"}},
		{"github.com/goccy/go-yaml", []string{"internal/text/*"}},
		{"github.com/pelletier/go-toml/v2", []string{"internal/text/*"}},
		{"github.com/rogpeppe/go-internal", nil},
		{"github.com/NVIDIA/go-nvml", nil},
		{"charm.land/bubbletea/v2", []string{"internal/ui/top"}},
		{"charm.land/lipgloss/v2", []string{"internal/ui/top"}},
		{"github.com/charmbracelet/x/ansi", []string{"internal/ui/top"}},
		{"github.com/chromedp/chromedp", nil},
		{"github.com/chromedp/cdproto", nil},
		{"github.com/go-analyze/charts", []string{"internal/ui/chart"}},
		{"github.com/prometheus/client_golang", []string{"internal/ui/web"}},
		{"github.com/rhysd/actionlint", nil},
		{"tags.cncf.io/container-device-interface", nil},
		{"github.com/docker/cli", nil},
		{"k8s.io", nil}, // required by modules below test alone
		{"sigs.k8s.io", nil},
	}
}

func libraries(repo tree) (bad []string) {
	eachImport(repo.code(true), func(s *source, spec *ast.ImportSpec, imported string, ours bool) {
		if ours || imported == module || !strings.Contains(strings.Split(imported, "/")[0], ".") || neverBuilt(s) {
			return
		}
		i := slices.IndexFunc(homes(), func(h home) bool { return imported == h.module || strings.HasPrefix(imported, h.module+"/") })
		switch {
		case i < 0:
			bad = append(bad, fmt.Sprintf("%s: %s has no home: add it to homes and to docs/dependencies.md", s.at(spec.Pos()), imported))
		case !s.isTest() && !matches(homes()[i].folders, s.dir()):
			bad = append(bad, fmt.Sprintf("%s: %s lives in %v, not in %s", s.at(spec.Pos()), imported, homes()[i].folders, s.dir()))
		}
	})
	return bad
}

// lightStart: gpuard is linked with no HTTP, which would make each of its starts slower (decision 0030).
func lightStart(repo tree) (bad []string) {
	reached := reachedFrom(repo, "cmd/gpuard")
	eachImport(repo.code(false), func(s *source, spec *ast.ImportSpec, imported string, _ bool) {
		if imported == "net/http" && reached[s.dir()] {
			bad = append(bad, s.at(spec.Pos())+": cmd/gpuard would be linked with net/http: only gpuard-view may be")
		}
	})
	return bad
}

// leasesWithoutLint: what judges programs and files of people is no part of choosing, recording and keeping a lease.
func leasesWithoutLint(repo tree) (bad []string) {
	for _, dir := range []string{"internal/app/claim", "internal/app/holder", "internal/app/registry", "internal/app/machine", "internal/app/measure", "internal/app/leases"} {
		if reachedFrom(repo, dir)["internal/core/lint"] {
			bad = append(bad, dir+" imports core/lint, itself or through others: it is on the way of a lease")
		}
	}
	return bad
}

// reachedFrom are the folders of the packages that one imports, itself or through others.
func reachedFrom(repo tree, dir string) map[string]bool {
	reached := map[string]bool{dir: true}
	for grown := true; grown; {
		grown = false
		eachImport(repo.code(false), func(s *source, spec *ast.ImportSpec, imported string, ours bool) {
			if ours && reached[s.dir()] && !reached[imported] {
				reached[imported], grown = true, true
			}
		})
	}
	return reached
}

// neverBuilt reports a file that only pins a module's version for go.mod.
func neverBuilt(s *source) bool { return strings.HasPrefix(string(s.text), "//go:build never\n") }

// corePackages is what deciding needs of the standard library. Nothing here opens a file, starts a
// process, takes a lock or knows the time ("time" is for its types; its clock is refused below, and so is what of "sync" is more
// than a value that is made once).
func corePackages() []string {
	return []string{
		"bufio", "bytes", "cmp", "container/*", "crypto/sha256", "embed", "encoding/*", "errors", "fmt", "hash/*", "html",
		"io", "iter", "maps", "math", "math/big", "math/bits", "path", "reflect", "regexp", "slices", "sort", "strconv", "strings", "sync", "text/*", "time",
		"unicode", "unicode/*",
	}
}

// refused are functions of allowed packages that reach outside of the values given to core.
func refused() map[string][]string {
	return map[string][]string{
		"time":          {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker", "LoadLocation", "Local"},
		"sync":          {"Mutex", "RWMutex", "WaitGroup", "Cond", "Pool", "Map", "Locker", "Once"},
		"fmt":           {"Print", "Printf", "Println", "Scan", "Scanf", "Scanln"},
		"text/template": {"ParseFiles", "ParseGlob", "ParseFS"},
	}
}

// startsGoroutine reports whether a node is a go statement, or a call such as that of sync.WaitGroup.Go.
func startsGoroutine(n ast.Node) bool {
	if call, ok := n.(*ast.CallExpr); ok {
		called, isMethod := call.Fun.(*ast.SelectorExpr)
		return isMethod && called.Sel.Name == "Go"
	}
	_, isStatement := n.(*ast.GoStmt)
	return isStatement
}

func pureCore(repo tree) (bad []string) {
	for _, s := range repo.code(true) {
		layer := strings.Split(s.path, "/")[min(1, strings.Count(s.path, "/"))]
		if !strings.HasPrefix(s.path, "internal/") || layer != "core" && layer != "text" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool { // nor do their tests, which therefore run without the race detector
			if startsGoroutine(n) {
				bad = append(bad, fmt.Sprintf("%s: %s may not start goroutines", s.at(n.Pos()), layer))
			}
			return true
		})
		if layer == "text" || strings.HasSuffix(s.path, "_test.go") {
			continue
		}
		called := map[string]string{} // local name to import path
		eachImport(tree{s}, func(s *source, spec *ast.ImportSpec, imported string, ours bool) {
			if !ours && !matches(corePackages(), imported) {
				bad = append(bad, fmt.Sprintf("%s: core may not import %s", s.at(spec.Pos()), imported))
			}
			name := path.Base(imported)
			if spec.Name != nil {
				name = spec.Name.Name
			}
			called[name] = imported
		})
		ast.Inspect(s.file, func(n ast.Node) bool {
			if n, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := n.X.(*ast.Ident); ok && slices.Contains(refused()[called[x.Name]], n.Sel.Name) {
					bad = append(bad, fmt.Sprintf("%s: core may not use %s.%s", s.at(n.Pos()), x.Name, n.Sel.Name))
				}
			}
			return true
		})
	}
	return bad
}

// views get a value and write it: they do not know the program, and read no file, clock or process.
func views(repo tree) (bad []string) {
	for _, s := range repo.code(false) {
		if !strings.HasPrefix(s.dir(), "internal/ui/") || !strings.HasPrefix(path.Base(s.path), "view_") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && id.Name == "Program" {
				bad = append(bad, s.at(n.Pos())+": a view may not use Program: give it the value that it shows")
			}
			return true
		})
		eachImport(tree{s}, func(s *source, spec *ast.ImportSpec, imported string, _ bool) {
			if slices.Contains([]string{"os", "os/exec", "net", "syscall"}, imported) {
				bad = append(bad, fmt.Sprintf("%s: a view may not import %s", s.at(spec.Pos()), imported))
			}
		})
	}
	return bad
}

func plainImports(repo tree) (bad []string) {
	eachImport(repo.code(true), func(s *source, spec *ast.ImportSpec, imported string, _ bool) {
		if imported == "C" {
			bad = append(bad, s.at(spec.Pos())+": no cgo: open the library with purego in its host package")
		}
		if spec.Name != nil && spec.Name.Name == "." {
			bad = append(bad, s.at(spec.Pos())+": no dot imports: the rules and readers need the package's name")
		}
	})
	return bad
}

func packageComments(repo tree) (bad []string) {
	for dir, files := range repo.packages() {
		var documented []string
		for _, s := range files {
			if s.file.Doc == nil || neverBuilt(s) {
				continue
			}
			documented = append(documented, s.path)
			first := strings.Fields(s.file.Doc.Text() + " . .")
			if name := s.file.Name.Name; first[1] != name && (name != "main" || first[0] != "Command") {
				bad = append(bad, fmt.Sprintf("%s: the package comment begins with \"Package %s\", or \"Command\" for a program", s.path, name))
			}
		}
		if len(documented) != 1 {
			bad = append(bad, fmt.Sprintf("%s: %d package comments %v, want exactly one", dir, len(documented), documented))
		}
	}
	slices.Sort(bad)
	return bad
}

func fileSizes(repo tree) (bad []string) {
	for _, s := range repo {
		if !s.isGo() && !slices.Contains([]string{".c", ".h", ".sh", ".py"}, path.Ext(s.path)) {
			continue
		}
		limit := maxFile
		if s.isTest() {
			limit = maxTestFile
		}
		if lines := strings.Count(string(s.text), "\n"); lines > limit {
			bad = append(bad, fmt.Sprintf("%s: %d lines, at most %d", s.path, lines, limit))
		}
	}
	return bad
}

func functionSizes(repo tree) (bad []string) {
	for _, s := range repo.code(false) {
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			first, last := s.fset.Position(f.Pos()).Line, s.fset.Position(f.End()).Line
			code, whole := s.codeLines(first, last), last-first+1
			if code > maxFunction || whole > maxWhole {
				bad = append(bad, fmt.Sprintf("%s: func %s has %d lines of code in %d, at most %d in %d", s.at(f.Pos()), f.Name.Name, code, whole, maxFunction, maxWhole))
			}
		}
	}
	return bad
}

// exportedNames counts functions, types, variables and const blocks. A block of values of a named type
// counts with its type, because a reader learns the two together.
func exportedNames(repo tree) (bad []string) {
	for dir, files := range repo.packages() {
		count := 0
		for _, s := range files {
			for _, d := range s.file.Decls {
				count += exportedIn(d)
			}
		}
		if count > maxExported {
			bad = append(bad, fmt.Sprintf("%s: %d exported names, at most %d: split the package or hide some", dir, count, maxExported))
		}
	}
	slices.Sort(bad)
	return bad
}

// smallRooms keeps the packages of the command line small, of which there was once one: decision 0058.
func smallRooms(repo tree) (bad []string) {
	for dir, files := range repo.packages() {
		if !strings.HasPrefix(dir, "internal/ui/") {
			continue
		}
		count, lines, methods := 0, 0, map[string]int{}
		for _, s := range files {
			if strings.HasSuffix(s.path, "_test.go") {
				continue
			}
			count, lines = count+1, lines+s.codeLines(1, bytes.Count(s.text, []byte("\n"))+1)
			for _, d := range s.file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
					methods[receiver(f)]++
				}
			}
		}
		if count > maxFiles || lines > maxPackage {
			bad = append(bad, fmt.Sprintf("%s: %d files and %d lines of code, at most %d and %d", dir, count, lines, maxFiles, maxPackage))
		}
		for name, n := range methods {
			if n > maxMethods {
				bad = append(bad, fmt.Sprintf("%s: %d methods of %s, at most %d", dir, n, name, maxMethods))
			}
		}
	}
	slices.Sort(bad)
	return bad
}

// receiver is the type of a method.
func receiver(f *ast.FuncDecl) string {
	of := f.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	return fmt.Sprint(of)
}

func exportedIn(d ast.Decl) (count int) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil && d.Name.IsExported() {
			count++
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if spec.Name.IsExported() {
					count++
				}
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					if name.IsExported() {
						count++
					}
				}
			}
		}
		if d.Tok == token.CONST {
			count = min(count, 1)
			if first, ok := d.Specs[0].(*ast.ValueSpec); ok && first.Type != nil {
				count = 0
			}
		}
	}
	return count
}

func noInit(repo tree) (bad []string) {
	for _, s := range repo.code(true) {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				bad = append(bad, s.at(f.Pos())+": no init(): write the list out where it is used")
			}
		}
	}
	return bad
}

// names refuses packages named after nothing, and Get in front of what a function returns.
func names(repo tree) (bad []string) {
	empty := []string{"util", "utils", "common", "helper", "helpers", "types", "manager", "base"}
	for _, s := range repo.code(false) {
		if slices.Contains(empty, s.file.Name.Name) || slices.Contains(empty, path.Base(s.dir())) {
			bad = append(bad, s.path+": a package is named after what it does, not "+s.file.Name.Name)
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if rest, ok := strings.CutPrefix(f.Name.Name, "Get"); ok && rest != "" && ast.IsExported(rest) {
				bad = append(bad, fmt.Sprintf("%s: %s without Get reads better", s.at(f.Pos()), f.Name.Name))
			}
		}
	}
	return bad
}
