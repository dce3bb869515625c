package shell

import (
	"strings"

	"gpuard/internal/core/lint"
)

// batchSystem is one that reads options in comments of a job script.
type batchSystem struct{ mark, name string }

// batchSystems lists them:
//
//	#SBATCH  https://slurm.schedmd.com/sbatch.html ("Description")
//	#PBS     openpbs/openpbs: doc/man1/qsub.1B
//	#BSUB    https://www.ibm.com/docs/en/spectrum-lsf/10.1.0?topic=bsub-description
//	#$       https://manpages.debian.org/unstable/gridengine-client/qsub.1.en.html
//	#COBALT  of Cobalt, the scheduler of Argonne's machines until 2023
func batchSystems() []batchSystem {
	return []batchSystem{{"#SBATCH", "sbatch"}, {"#PBS", "pbs"}, {"#BSUB", "bsub"}, {"#$", "sge"}, {"#COBALT", "cobalt"}}
}

// readDirectives reads the options in comments for a batch system. They end at the first line that is neither empty nor a
// comment.
func readDirectives(src []byte) []lint.Step {
	var steps []lint.Step
	number := 0
	for line := range strings.Lines(string(src)) {
		number++
		line = strings.TrimRight(line, "\r\n")
		if trimmed := strings.TrimSpace(line); trimmed != "" && trimmed[0] != '#' {
			break
		}

		for _, b := range batchSystems() {
			rest, ok := strings.CutPrefix(line, b.mark)
			if ok && rest != "" && (rest[0] == ' ' || rest[0] == '\t') {
				steps = append(steps, b.readOptions(rest, number)...)
			}
		}
	}

	return steps
}

// readOptions reads one line of options, rest, after the mark.
func (b batchSystem) readOptions(rest string, line int) []lint.Step {
	var steps []lint.Step
	offset := len(b.mark)

	// The last option may take the next word as its value.
	open := false
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
		name, value, given := b.splitOption(word)
		switch {
		case name != "":
			open = !given
			steps = append(steps, lint.Step{At: at, Do: lint.Setting, Name: b.name + "." + name, How: b.mark,
				Value: lint.Value{Text: value, Known: true, At: at, Raw: word}})
		case open:
			last := &steps[len(steps)-1]
			last.Value, open = lint.Value{Text: strings.Trim(word, `"'`), Known: true, At: at, Raw: word}, false
			last.At.EndColumn = at.EndColumn
		case b.name == "sge" && len(steps) > 0 && steps[len(steps)-1].Name == "sge.pe":
			// -pe NAME SLOTS.
			last := &steps[len(steps)-1]
			last.Value.Text += " " + word
			last.Value.Raw += rest[last.Value.At.EndColumn-offset-1:i] + word
			last.At.EndColumn, last.Value.At.EndColumn = at.EndColumn, at.EndColumn
		}

		i = end
	}

	return steps
}

// splitOption splits a word into the long name of an option and its value; the name is "" when it is no option.
func (b batchSystem) splitOption(word string) (name, value string, given bool) {
	if b.name != "sbatch" && len(word) > 1 && word[0] == '-' {
		if b.name == "pbs" && len(word) > 2 {
			return word[1:2], strings.Trim(word[2:], `"'`), true
		}
		return word[1:], "", false
	}

	if b.name == "sbatch" && (word == "hetjob" || word == "packjob") {
		return word, "", true
	}

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
