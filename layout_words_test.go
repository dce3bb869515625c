package layout

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/option"
)

// foreignFlags are the flags of other programs that a package of core names and that have the name of one of gpuard's;
// * stands for all. Behind the name of a command of gpuard they are gpuard's all the same.
func foreignFlags() map[string][]string {
	return map[string][]string{
		"check":     {"device", "gpus", "runtime", "force", "now", "python"},               // docker; dracut, systemctl, uv
		"container": {"*"},                                                                 // it reads and writes command lines of docker and podman
		"grid":      {"seed"},                                                              // of a program in an example
		"handoff":   {"array", "hold", "nice", "for"},                                      // sbatch; kubectl wait
		"launchers": {"cpu", "device", "env", "format", "help", "user", "version", "wait"}, // of the programs that it reads
		"lint":      {"device", "env", "gpus", "help", "login", "runtime", "version"},      // of the programs in scripts
		"proof":     {"device"},                                                            // of a program in an example
		"visible":   {"device", "gpus"},                                                    // docker; sbatch
	}
}

// expandsLater are packages of core with tables of texts that are expanded when they are shown.
func expandsLater() []string { return []string{"handoff", "option", "ranks"} }

// fixedWords are texts that begin as a command does and have to stay what they are when it gets another name.
func fixedWords() []string {
	return []string{">>> gpuard setup ", "<<< gpuard setup "} // marks in files of users
}

var (
	inBraces = regexp.MustCompile(`\{(gpuard [a-z -]*|[a-z][a-z-]*(?:=[^{}]*)?)\}`)
	// Of a template.
	actions     = regexp.MustCompile(`\{\{[^}]*\}\}`)
	flagWord    = regexp.MustCompile(`(?:^|[^\w-])--([a-z][\w-]*)`)
	commandWord = regexp.MustCompile(`\bgpuard ([a-z][a-z-]*)`)
	// From the name of a command to where its line ends.
	commandLine = regexp.MustCompile("\\{gpuard [a-z -]+\\}(?:[^-;,:()`\"]|-[^- ]|--[^ ])*")
)

// flagsByTable lets texts of core name gpuard's flags and commands only in braces, as package option reads them. What
// stands there is a name in its tables, and the text goes through it.
func flagsByTable(repo tree) (bad []string) {
	for _, s := range repo.code(false) {
		if !strings.HasPrefix(s.path, "internal/core/") {
			continue
		}
		pkg, expanded := path.Base(s.dir()), expandedTexts(s)
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ImportSpec:
				return false
			case *ast.Field:
				if n.Tag != nil {
					return false
				}
			case *ast.BasicLit:
				if n.Kind != token.STRING {
					return true
				}
				for _, wrong := range wrongWords(pkg, n.Value) {
					bad = append(bad, s.at(n.Pos())+": "+wrong)
				}
				if m := inBraces.FindString(actions.ReplaceAllString(n.Value, "")); m != "" && !expanded[n] && !slices.Contains(expandsLater(), pkg) {
					bad = append(bad, fmt.Sprintf("%s: %s is shown with its braces: give the text to option.Expand or option.Sprintf", s.at(n.Pos()), m))
				}
			}
			return true
		})
	}
	return bad
}

// expandedTexts are the literals that are given to a function of package option.
func expandedTexts(s *source) map[*ast.BasicLit]bool {
	texts := map[*ast.BasicLit]bool{}
	ast.Inspect(s.file, func(n ast.Node) bool {
		call, isCall := n.(*ast.CallExpr)
		if !isCall || len(call.Args) == 0 {
			return true
		}
		f, _ := call.Fun.(*ast.SelectorExpr)
		if f == nil {
			return true
		}
		if of, _ := f.X.(*ast.Ident); of == nil || of.Name != "option" {
			return true
		}
		ast.Inspect(call.Args[0], func(n ast.Node) bool {
			if text, isText := n.(*ast.BasicLit); isText {
				texts[text] = true
			}
			return true
		})
		return true
	})
	return texts
}

// wrongWords says what a literal names otherwise than by the tables.
func wrongWords(pkg, literal string) (bad []string) {
	text, err := strconv.Unquote(literal)
	if err != nil || slices.Contains(fixedWords(), text) {
		return nil
	}
	text = actions.ReplaceAllString(text, "")

	for _, m := range inBraces.FindAllStringSubmatch(text, -1) {
		if !option.IsKnownName(m[1]) {
			bad = append(bad, fmt.Sprintf("there is no option or command %s", m[0]))
		}
	}
	for _, line := range commandLine.FindAllString(text, -1) {
		for _, m := range flagWord.FindAllStringSubmatch(line, -1) {
			bad = append(bad, fmt.Sprintf("--%s of a command of gpuard: write {%[1]s}", m[1]))
		}
	}

	outside := inBraces.ReplaceAllString(text, "{}")
	for _, m := range commandWord.FindAllStringSubmatch(outside, -1) {
		if option.IsKnownName("gpuard " + m[1]) {
			bad = append(bad, fmt.Sprintf("gpuard %s: write {gpuard %[1]s}", m[1]))
		}
	}
	foreign := foreignFlags()[pkg]
	if slices.Contains(foreign, "*") {
		return bad
	}
	for _, m := range flagWord.FindAllStringSubmatch(outside, -1) {
		if option.IsFlagName(m[1]) && !slices.Contains(foreign, m[1]) {
			bad = append(bad, fmt.Sprintf("--%s: write {%[1]s}, or add it to foreignFlags if it is another program's", m[1]))
		}
	}
	return bad
}
