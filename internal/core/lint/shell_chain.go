package lint

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/check"
)

func lineNumber(s Step) string { return strconv.Itoa(s.At.Line) }

func lookPrefix(a indexedFile, i int, second Step) (all []Finding) {
	if i == 0 || a.Steps[i-1].Do != Command || a.Steps[i-1].Shell != second.Shell || !isFromShell(a.File, second) {
		return nil
	}

	first := a.Steps[i-1]
	idle := isIdle(first)
	chained := second.Join == "&&" || second.Join == "|" && idle || second.Join == "" && idle && second.At.Line == first.At.EndLine
	p := programOf(second)
	if !chained || !p.usesGPUs() {
		return nil
	}

	for _, w := range first.With {
		if w.Do != Set || !slices.Contains(maskVariables(), w.Name) || hidesEveryDevice(w.Value) {
			continue
		}
		if _, own := p.ownVariable(w.Name); own {
			continue
		}
		if set, sure := a.outerSetting(i, w.Name); !sure || set.Name != "" || !idle && (!programOf(first).usesGPUs() || p.worksOnResults()) {
			continue
		}

		assignment := w.Name + "=" + w.Value.Raw
		all = append(all, Finding{Finding: check.Finding{
			Seen: assignment + " counts for " + first.Words[0].Text + " alone, not for " + p.name,
			Why:  "an assignment before a command belongs to that command only, so " + p.name + " sees every GPU",
			Do:   "write " + assignment + " before " + p.name},
			At: w.At, Line: renderChain(first, second, w, idle), Write: chainEdits(first, second, w, idle)})
	}

	return all
}

// worksOnResults reports whether a program has the name of one that works on results, for which no GPU is needed.
func (p program) worksOnResults() bool {
	i := slices.IndexFunc(p.args, func(w Word) bool { return !strings.HasPrefix(w.Text, "-") })
	return i >= 0 && isPython(p.name) && containsAny(strings.ToLower(path.Base(p.args[i].Text)), "plot", "scor", "convert", "merge", "collect", "aggreg", "summar", "report", "notify", "visual", "upload",
		"download", "parse", "print", "stat", "compar", "filter", "check", "clean", "metric", "average", "split", "export", "draw", "table")
}

// renderChain writes two commands of a line with the assignment before the one that needs it, or before both.
func renderChain(first, second, assignment Step, idle bool) string {
	if idle {
		first.With = slices.DeleteFunc(slices.Clone(first.With), func(s Step) bool { return s.At == assignment.At })
	}

	second.With = slices.Concat([]Step{assignment}, second.With)
	join := " " + second.Join + " "
	if second.Join == "" {
		join = "; "
	}

	return renderCommand(first, nil) + join + renderCommand(second, nil)
}

// chainEdits are the edits that do the same.
func chainEdits(first, second, assignment Step, idle bool) []Edit {
	edits := prefixEdits(second, assignment.Name+"="+assignment.Value.Raw)
	if idle {
		edits = append(edits, removeAssignment(first, assignment))
	}
	return edits
}

// saysShell reports whether a file says which shell reads it: by its first line, by its name, or by its format.
func (f File) saysShell() bool {
	says := func(s Step) bool {
		return s.Do == Setting && (s.Name == "shebang" || strings.HasPrefix(s.Name, "sbatch."))
	}
	return f.Kind != Shell || path.Ext(f.Path) != ".sh" || slices.ContainsFunc(f.Steps, says)
}

// isIdle reports whether a command has no use for a GPU variable.
func isIdle(s Step) bool {
	if len(s.Words) > 1 && slices.Contains([]string{"conda", "mamba", "micromamba", "pyenv"}, s.Words[0].Text) {
		return s.Words[1].Text != "run" && s.Words[1].Text != "exec"
	}
	return len(s.Words) > 0 && slices.Contains([]string{"source", "module", "cd", "pushd", "popd", "echo", "printf", "cat", "mkdir", "sleep", "true", ":", "ulimit", "date", "pwd", "ls", "rm", "cp", "mv", "head", "tail", "yes", "set", "umask", "git", "test", "["}, s.Words[0].Text)
}

// hidesEveryDevice reports whether a list hides every device, which people write to compute without GPUs.
func hidesEveryDevice(v Value) bool {
	text := strings.TrimSpace(v.Text)
	return v.Known && (text == "" || strings.HasPrefix(text, "-1"))
}

func lookForeign(a indexedFile, i int, s Step) []Finding {
	if !isFromShell(a.File, s) {
		return nil
	}
	if s.Do != Command || len(s.Words) == 0 {
		return nil
	}

	name, value, way := foreignAssignment(s)
	if way == "" || a.Kind == Markdown {
		// A page has the lines of other systems, too.
		return nil
	}

	right := "export " + name + "=" + value
	var rests string
	if hasWord("set setenv", s.Words[0].Text) && !a.saysShell() {
		rests = onShell
	}

	rest := wordsAfter(s)
	if len(rest) > 0 {
		right = renderCommand(Step{With: []Step{{Name: name, Value: Value{Raw: value}}}, Words: rest}, nil)
	}

	finding := Finding{Finding: check.Finding{
		Seen: "this does not set " + name + " here: " + way, Why: "programs that the script starts do not get the variable",
		Do: "write: " + right}, rests: rests, At: s.At, Line: right, Write: []Edit{{At: s.At, Text: right}}}

	if len(rest) > 0 {
		finding.Write[0].At.EndLine, finding.Write[0].At.EndColumn = rest[0].At.Line, rest[0].At.Column
		finding.Write[0].Text = name + "=" + value + " "
	}

	if a.Kind == Shell && value != "" && len(rest) == 0 && !strings.ContainsAny(value, " \t\n") {
		finding.Edits = []Edit{{At: s.At, Text: finding.Line}}
	}

	if a.Kind == Python && a.isWholeScript(i) {
		// Nothing reads it there, whatever its spelling.
		finding.Do, finding.Line, finding.Write = `set os.environ["`+name+`"], before the library is imported`, "", nil
	}

	return []Finding{finding}
}

// isWholeScript reports whether a command is all of its script.
func (a indexedFile) isWholeScript(i int) bool {
	shell := a.Steps[i].Shell
	return shell != 0 && (i == 0 || a.Steps[i-1].Shell != shell) && (i+1 == len(a.Steps) || a.Steps[i+1].Shell != shell)
}

// wordsAfter is the program after such an assignment on its line: NAME = 1 python train.py.
func wordsAfter(s Step) []Word {
	switch {
	case slices.Contains([]string{"set", "setenv", "export"}, s.Words[0].Text):
		return nil
	case len(s.With) == 1:
		// The first word belongs to the value.
		return s.Words[1:]
	case len(s.Words) > 3 && s.Words[1].Text != "" && strings.Trim(s.Words[1].Text, "=") == "":
		return s.Words[3:]
	}
	return nil
}

const dollarBeforeName = "a name that is set has no $ before it"

// foreignAssignment recognizes an assignment in the way of another shell, or with a slip of the fingers.
func foreignAssignment(s Step) (name, value, way string) {
	words := s.Words
	text := func(i int) string {
		if i < len(words) {
			return words[i].Text
		}
		return ""
	}

	raw := func(i int) string {
		if i < len(words) {
			return words[i].Raw
		}
		return ""
	}

	first := text(0)
	switch {
	case first == "set" && len(words) == 2:
		name, value, _ = strings.Cut(raw(1), "=")
		way = "set NAME=value is the way of the Windows prompt"
		if !strings.Contains(raw(1), "=") {
			way = ""
		}
	case first == "set" && len(words) == 4 && strings.HasPrefix(text(1), "-") && strings.ContainsAny(text(1), "gxU"):
		name, value, way = text(2), raw(3), "set with "+text(1)+" is the way of fish"
	case first == "setenv" && len(words) == 3:
		name, value, way = text(1), raw(2), "setenv is the way of csh"
	case first == "export" && (text(2) == "=" && len(words) == 4 || text(2) == "" && len(words) == 3):
		name, value, way = text(1), raw(len(words)-1), "with blanks around = the value is not part of it"
	case (text(1) == "=" || text(1) == "==") && len(words) >= 3:
		name, value, way = first, raw(2), "with blanks around = it is a command called "+first
	case first == "export" && len(words) == 3 && strings.HasSuffix(text(1), "="):
		name, value, way = strings.TrimSuffix(text(1), "="), raw(2), "the blank behind = ends the value, which is empty"
	case len(s.With) == 1 && s.With[0].Value.Known && s.With[0].Value.Text == "" && deviceNumbers(words[0]) != nil:
		name, value, way = s.With[0].Name, raw(0), "the blank behind = ends the value, and "+first+" is taken for a program"
	case !words[0].Known && len(words) == 1 && strings.HasPrefix(first, "$"):
		name, value, _ = strings.Cut(strings.TrimPrefix(first, "$"), "=")
		way = dollarBeforeName
	case first == "export" && len(words) == 2 && strings.HasPrefix(raw(1), "$"):
		name, value, _ = strings.Cut(strings.TrimPrefix(raw(1), "$"), "=")
		way = dollarBeforeName
	}

	if !slices.Contains(maskVariables(), name) && !isGPUVariable(name) {
		return "", "", ""
	}

	return name, value, way
}

func lookFish(f File) (all []Finding) {
	add := func(at Place, what string) {
		all = append(all, Finding{Finding: check.Finding{Seen: what,
			Why: "fish reads only files that end in .fish, so the variable is never set", Do: "write a .fish file with: set -gx NAME value"}, At: at})
	}

	if f.Kind == Shell && isFishFolder(path.Dir(f.Path)) && path.Ext(f.Path) != ".fish" {
		for _, s := range f.Steps {
			if s.Do == Set && isGPUVariable(s.Name) {
				add(s.At, "this file is in a folder of fish and does not end in .fish")
				break
			}
		}
	}

	for _, s := range f.Steps {
		if s.Do != Command || len(s.Words) < 3 || !slices.Contains([]string{"cp", "ln", "mv", "install"}, path.Base(s.Words[0].Text)) {
			continue
		}
		from, to := s.Words[len(s.Words)-2].Text, s.Words[len(s.Words)-1].Text
		about := strings.ToLower(path.Base(from))
		if strings.HasSuffix(from, ".sh") && (isFishFolder(path.Dir(to)) && strings.HasSuffix(to, ".sh") || isFishFolder(path.Clean(to))) && containsAny(about, "cuda", "gpu", "hip", "rocm", "nvidia", "visible") {
			add(s.At, path.Base(from)+" is put into a folder of fish")
		}
	}

	return all
}

// isFishFolder reports whether fish reads the files of a folder at its start.
func isFishFolder(dir string) bool {
	return strings.HasSuffix(dir, "fish/conf.d") || strings.HasSuffix(dir, "fish/functions") || strings.HasSuffix(dir, "fish/vendor_conf.d")
}
