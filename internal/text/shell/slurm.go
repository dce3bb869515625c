package shell

import (
	"strings"

	"gpuard/internal/core/lint"
)

// directives reads the options in #SBATCH comments. Slurm reads them up to the first line that is neither empty nor a
// comment (https://slurm.schedmd.com/sbatch.html, "Description").
func directives(src []byte) []lint.Step {
	var steps []lint.Step
	number := 0
	for line := range strings.Lines(string(src)) {
		number++
		line = strings.TrimRight(line, "\r\n")
		if trimmed := strings.TrimSpace(line); trimmed != "" && trimmed[0] != '#' {
			break
		}
		rest, ok := strings.CutPrefix(line, "#SBATCH")
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '\t' {
			continue
		}
		steps = append(steps, options(rest, number, len("#SBATCH"))...)
	}
	return steps
}

// options reads one line of options; offset is the number of bytes before it.
func options(rest string, line, offset int) []lint.Step {
	var steps []lint.Step
	open := false // the last option may take the next word as its value
	for i := 0; i < len(rest); {
		if rest[i] == ' ' || rest[i] == '\t' {
			i++
			continue
		}
		if rest[i] == '#' {
			break
		}
		end := i
		for quote := byte(0); end < len(rest) && (quote != 0 || rest[end] != ' ' && rest[end] != '\t'); end++ {
			switch c := rest[end]; {
			case quote == 0 && (c == '"' || c == '\''):
				quote = c
			case c == quote:
				quote = 0
			}
		}
		word := rest[i:end]
		at := lint.Place{Line: line, Column: offset + i + 1, EndLine: line, EndColumn: offset + end + 1}
		switch name, value, given := option(word); {
		case name != "":
			open = !given
			steps = append(steps, lint.Step{At: at, Do: lint.Setting, Name: "sbatch." + name, How: "#SBATCH",
				Value: lint.Value{Text: value, Known: true, At: at, Raw: word}})
		case open:
			last := &steps[len(steps)-1]
			last.Value, open = lint.Value{Text: strings.Trim(word, `"'`), Known: true, At: at, Raw: word}, false
			last.At.EndColumn = at.EndColumn
		}
		i = end
	}
	return steps
}

// option splits a word into the long name of an option and its value; the name is "" when it is no option.
func option(word string) (name, value string, given bool) {
	if long, ok := strings.CutPrefix(word, "--"); ok {
		name, value, given = strings.Cut(long, "=")
		return name, strings.Trim(value, `"'`), given
	}
	if len(word) < 2 || word[0] != '-' {
		return "", "", false
	}
	long, ok := map[byte]string{'G': "gpus", 'n': "ntasks", 'N': "nodes", 'c': "cpus-per-task", 'p': "partition", 'a': "array",
		'w': "nodelist", 'J': "job-name", 't': "time", 'A': "account", 'o': "output", 'e': "error", 'C': "constraint", 'q': "qos",
		'm': "distribution", 'd': "dependency", 'D': "chdir", 'M': "clusters", 'x': "exclude", 'L': "licenses", 'b': "begin"}[word[1]]
	if !ok {
		return word[1:], "", true
	}
	return long, strings.TrimPrefix(word[2:], "="), len(word) > 2
}
