package commands

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// fieldTable has the structs that become JSON, read from the source of their packages.
type fieldTable struct {
	t       *testing.T
	structs map[string]*ast.StructType // by "package.Type"
	plain   map[string]string          // JSON type of other named types
	values  map[string][]string        // of named text types, in order of the source
	section []string                   // structs to describe, in order of mention
	done    map[string]bool
}

func readFields(t *testing.T) *fieldTable {
	f := &fieldTable{t: t, structs: map[string]*ast.StructType{}, values: map[string][]string{}, done: map[string]bool{}, plain: map[string]string{
		"time.Time": "time (RFC 3339)", "time.Duration": "nanoseconds", "gpu.Bytes": "bytes", "string": "text", "bool": "true or false",
		"int": "number", "uint32": "number", "uint64": "number", "int64": "number", "float64": "number",
	}}
	for name, dir := range map[string]string{"cli": ". ../cli ../cli/*", "leases": "../../app/leases", "explain": "../../app/explain", "run": "../../app/run", "job": "../../core/job", "visible": "../../core/visible", "gpu": "../../core/gpu", "health": "../../core/health", "status": "../../core/status", "libcuda": "../../host/libcuda", "verify": "../../app/verify", "proof": "../../core/proof", "leftover": "../../core/leftover", "lint": "../../core/lint", "check": "../../core/check", "linter": "../../app/linter", "service": "../../core/service", "ranks": "../../core/ranks", "userqueue": "../../app/userqueue", "batchlog": "../../core/batchlog", "grid": "../../core/grid", "setup": "../../app/setup", "edit": "../../core/edit", "web": "../web", "trend": "../../core/trend", "handoff": "../../core/handoff", "tell": "../../app/tell", "sim": "../../core/sim", "experiment": "../../core/experiment"} {
		paths := sourcesIn(t, dir)
		for _, path := range paths {
			if !strings.HasSuffix(path, "_test.go") {
				f.read(name, path)
			}
		}
	}
	return f
}

// sourcesIn lists the Go files of folders.
func sourcesIn(t *testing.T, folders string) (paths []string) {
	for folder := range strings.FieldsSeq(folders) {
		found, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil || len(found) == 0 {
			t.Fatalf("cannot find the source in %s", folder)
		}
		paths = append(paths, found...)
	}
	return paths
}

func (f *fieldTable) read(pkg, path string) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, d := range file.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST {
			f.choices(pkg, g)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.TypeSpec); ok {
			switch x := s.Type.(type) {
			case *ast.StructType:
				f.structs[pkg+"."+s.Name.Name] = x
			case *ast.Ident:
				if key := pkg + "." + s.Name.Name; f.plain[key] == "" && f.plain[x.Name] != "" {
					f.plain[key] = f.plain[x.Name]
				}
			}
		}
		return true
	})
}

// choices collects the values of a named text type.
func (f *fieldTable) choices(pkg string, g *ast.GenDecl) {
	for _, s := range g.Specs {
		v, ok := s.(*ast.ValueSpec)
		if !ok || v.Type == nil || len(v.Values) != 1 {
			continue
		}
		value, isText := v.Values[0].(*ast.BasicLit)
		if key := fmt.Sprintf("%s.%s", pkg, v.Type); isText && value.Kind == token.STRING {
			f.values[key] = append(f.values[key], value.Value)
		}
	}
}

// word is the JSON type of a Go type. It adds structs to the sections.
func (f *fieldTable) word(pkg string, e ast.Expr) string {
	switch x := e.(type) {
	case *ast.StarExpr:
		return f.word(pkg, x.X) + ", or null"
	case *ast.ArrayType:
		return "list of " + f.word(pkg, x.Elt)
	case *ast.MapType:
		return "object of " + f.word(pkg, x.Value)
	case *ast.SelectorExpr:
		return f.named(qualified(x))
	case *ast.Ident:
		if f.plain[x.Name] != "" {
			return f.plain[x.Name]
		}
		return f.named(pkg + "." + x.Name)
	}
	f.t.Fatalf("cannot describe a field of type %T", e)
	return ""
}

func (f *fieldTable) named(key string) string {
	if v := f.values[key]; len(v) > 0 {
		return strings.Join(v, ", ")
	}
	if w := f.plain[key]; w != "" {
		return w
	}
	if f.structs[key] == nil {
		f.t.Fatalf("cannot find type %s", key)
	}
	f.section = append(f.section, key)
	title := title(key)
	return fmt.Sprintf("[%s](#%s)", title, title)
}

// describeField is the comment of a field, as a phrase: the one at the end of its line, or the sentence above it.
func describeField(field *ast.Field) string {
	phrase := strings.TrimSpace(field.Comment.Text())
	if phrase != "" {
		return phrase
	}

	phrase = strings.TrimSuffix(strings.Join(strings.Fields(field.Doc.Text()), " "), ".")
	first, rest, _ := strings.Cut(phrase, " ")
	name := slices.Contains([]string{"Slurm", "Kubernetes", "Linux", "Docker", "Python", "Celsius"}, first)
	if name || first == "" || strings.ToLower(first[1:]) != first[1:] {
		return phrase
	}

	return strings.TrimSpace(strings.ToLower(first) + " " + rest)
}

// title is the name of a struct on the page: "status.Device" is "device".
func title(key string) string {
	_, name, _ := strings.Cut(key, ".")
	return strings.ToLower(strings.TrimPrefix(name, "Status"))
}

// rows describes each field of a struct, those of embedded structs in their place.
func (f *fieldTable) rows(key string) (rows []string) {
	pkg, _, _ := strings.Cut(key, ".")
	s := f.structs[key]
	if s == nil {
		f.t.Fatalf("cannot find struct %s", key)
	}
	for _, field := range s.Fields.List {
		tag := reflect.StructTag("")
		if field.Tag != nil {
			tag = reflect.StructTag(strings.Trim(field.Tag.Value, "`"))
		}
		name, options, _ := strings.Cut(tag.Get("json"), ",")
		switch {
		case name == "-":
		case len(field.Names) == 0:
			embedded := strings.TrimPrefix(fmt.Sprint(embeddedName(field.Type)), "*")
			if !strings.Contains(embedded, ".") {
				embedded = pkg + "." + embedded
			}
			rows = append(rows, f.rows(embedded)...)
		case name == "":
			f.t.Errorf("%s.%s has no JSON name", key, field.Names[0])
		default:
			word := f.word(pkg, field.Type)
			if strings.Contains(options, "omitempty") {
				word = strings.TrimSuffix(word, ", or null") + "; may be absent"
			}
			rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |", name, word, strings.ReplaceAll(describeField(field), "; never nil", "")))
		}
	}
	return rows
}

// qualified is a name of another package. Those of the command line are one here: "cli".
func qualified(x *ast.SelectorExpr) string {
	pkg := fmt.Sprint(x.X)
	if strings.HasSuffix(pkg, "cmd") {
		pkg = "cli"
	}
	return fmt.Sprintf("%s.%s", pkg, x.Sel)
}

func embeddedName(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.StarExpr:
		return embeddedName(x.X)
	case *ast.SelectorExpr:
		return qualified(x)
	}
	return fmt.Sprint(e)
}

// answers lists what each command prints with --json.
func answers() [][2]string {
	return [][2]string{
		{"gpuard status --json", "status.Report"},
		{"gpuard status --pci --json", "cli.busView"},
		{"gpuard run --json", "cli.runAnswer"},
		{"the end of a gpuard run --json with --timeout, --retry, --log or --drift", "cli.runEndAnswer"},
		{"a rank that fails in a gpuard run --ranks --json", "run.rankEnd"},
		{"a rank that does not join the others in a gpuard run --ranks --json", "run.missingRank"},
		{"gpuard reserve --json", "leases.HeldLease"},
		{"gpuard explain --json", "cli.explainAnswer"},
		{"gpuard explain --probe --json", "cli.probeAnswer"},
		{"gpuard verify --json", "verify.Verification"},
		{"gpuard doctor --json", "cli.DoctorAnswer"},
		{"gpuard doctor --engine kubernetes --json", "cli.clusterAnswer"},
		{"gpuard env --json", "cli.variablesAnswer"},
		{"gpuard release --json", "cli.releasedAnswer"},
		{"gpuard evict --json", "cli.evictAnswer"},
		{"gpuard ps --json, gpuard up -d --json and gpuard restart --json", "cli.PsAnswer"},
		{"gpuard logs --json, for each line", "cli.loggedLine"},
		{"gpuard down --json", "cli.downAnswer"},
		{"gpuard drain --json", "cli.drainedAnswer"},
		{"gpuard undrain --json", "cli.undrainedAnswer"},
		{"gpuard lint --json", "cli.lintAnswer"},
		{"gpuard sweep --json", "cli.sweepAnswer"},
		{"gpuard submit --json", "cli.submitAnswer"},
		{"gpuard export TARGET --json", "cli.exportAnswer"},
		{"gpuard queue --json", "cli.QueueAnswer"},
		{"gpuard history --json", "cli.historyAnswer"},
		{"gpuard simulate --json", "cli.simulateAnswer"},
		{"gpuard compare --json", "cli.compareAnswer"},
		{"gpuard sweep --dry-run --json", "cli.sweepPreview"},
		{"gpuard setup --json", "cli.setupList"},
		{"gpuard setup TARGET --json", "setup.Report"},
		{"/api/ of gpuard serve", "web.Index"},
		{"/api/day of gpuard serve", "web.Day"},
		{"/api/services of gpuard serve", "cli.servicesAnswer"},
		{"/api/history of gpuard serve", "trend.UseReport"},
		{"what gpuard serve posts to a webhook", "tell.Notice"},
		{"a failure of any of them", "cli.errorAnswer"},
		{"a refusal", "cli.refusalAnswer"},
	}
}

func jsonPage(t *testing.T) string {
	f := readFields(t)
	var b strings.Builder
	b.WriteString("# JSON answers\n\n" + made)
	b.WriteString("With `--json` every command answers with one object on standard output, `run` on standard error before it becomes\n" +
		"the command (and on standard output with `--dry-run`). `schema` names its form: keys are added under the same number, and removed or changed\n" +
		"under a new one. Lists are never null. A reading that is absent is null, which is not zero.\n")
	table := func(heading, key string) {
		f.done[key] = true
		fmt.Fprintf(&b, "\n## %s\n\n| key | value | |\n| --- | --- | --- |\n%s\n", heading, strings.Join(f.rows(key), "\n"))
	}
	for _, a := range answers() {
		table(a[0], a[1])
	}
	for i := 0; i < len(f.section); i++ {
		if key := f.section[i]; !f.done[key] {
			table(title(key), key)
		}
	}
	return b.String()
}
