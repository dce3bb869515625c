package lint

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/check"
	"gpuard/internal/core/launchers"
	"gpuard/internal/core/prose"
)

// lookBackslash finds a command that was meant to go on: a backslash with a blank behind it is a blank, and the command ends
// with the line. All lines at fault of what was meant as one command are one finding.
func lookBackslash(f File) (all []Finding) {
	commands := slices.DeleteFunc(slices.Clone(f.Steps), func(s Step) bool { return s.Do != Command || len(s.Words) == 0 || !isFromShell(f, s) })
	next := 0

	for i, s := range commands {
		if i < next || !endsInBlank(s) || !meansGPUs(s) {
			continue
		}

		var parts []Step
		parts, next = cutParts(commands, i)
		last, _ := cutWord(s)
		found := Finding{Finding: check.Finding{Seen: "a blank stands behind the backslash, so the command ends with this line" + furtherLines(parts),
			Why: blankArgument(s) + ", and the shell takes the next line as another command, which gets neither the variables nor the options of this one",
			Do:  "remove what stands behind the backslash"}, At: last.At}

		if next <= i+2 && len(s.Words) > 1 && startsAnew(f, s, last.At) {
			found.Why = blankArgument(s)
			found.Do = "remove what stands behind the backslash, and the backslash, too, where the next line is a command of its own"
		}

		isRemark := strings.TrimSpace(last.Text) != ""
		if !f.goesOnBelow(last.At) || isRemark && (len(parts) < 2 || !isContinued(parts[1])) {
			found.Severity, found.Why = check.Info, blankArgument(s)+"; nothing below belongs to the command"
		}

		switch {
		case !f.goesOnBelow(last.At):
			// Without the blank alone it would join whatever comes, such as "done".
			found.Do = "remove the backslash, and what stands behind it"
		case strings.Contains(last.Raw, "#"):
			found.Do += "; a comment cannot stand there"
		}

		if f.Kind == Markdown && (isOptionList(parts) || f.isOutline(last.At) || !speaksOfLearning(parts)) {
			found.Severity = check.Info
		}

		all = append(all, found)
	}
	return all
}

// startsAnew reports whether the line below a command that was cut off begins another command, and not the rest of the first.
func startsAnew(f File, ended Step, at Place) bool {
	hasScript := slices.ContainsFunc(ended.Words, func(w Word) bool { return strings.HasSuffix(w.Text, ".py") })
	return slices.ContainsFunc(f.Steps, func(s Step) bool {
		below := s.At.Cell == at.Cell && s.At.Line == max(at.Line, at.EndLine)+1
		if !below || s.Do != Command || len(s.Words) == 0 {
			// In small letters it is an option of a program that reads such.
			return below && (s.Do == Set && strings.ToUpper(s.Name) == s.Name || s.Do == Unset) && s.At.Column <= ended.At.Column
		}
		first := s.Words[0].Text
		return hasWord("echo printf cd exit return source . sleep wait mkdir rm cp mv ls cat date export unset", first) ||
			hasScript && s.At.Column <= ended.At.Column && (launchers.IsLauncher(first) || launchers.IsShell(first) || hasWord("srun sbatch mpirun nohup env nvidia-smi conda", first) || strings.HasPrefix(first, "./"))
	})
}

// speaksOfLearning reports whether a command names a launcher, or anything that programs which use GPUs are told: Python alone starts
// much else.
func speaksOfLearning(parts []Step) bool {
	return !strings.HasPrefix(programOf(parts[0]).name, "python") || slices.ContainsFunc(parts, func(s Step) bool {
		return len(s.With) > 0 || slices.ContainsFunc(s.Words, func(w Word) bool { return learningWord().MatchString(w.Text) })
	})
}

var learningWord = lazyRegexp(`(?i)gpu|cuda|torch|device|experiment|train|tun(e|ing)|model|batch|epoch|learn|infer|eval|generat|sampl|ckpt|checkpoint|weight|lora|loss|seed|rank|llm|config|dataset|data_|bert|diffusion|net\b`)

func lastWord(s Step) Word { return s.Words[len(s.Words)-1] }

// cutWord is the word of a command that is a blank behind a backslash in its last line, or begins with one and goes on as a remark:
// behind one blank alone # is a letter like others.
func cutWord(s Step) (Word, bool) {
	last := lastWord(s)
	if last.Text != "" && strings.TrimSpace(last.Text) == "" && strings.HasPrefix(last.Raw, `\`) {
		return last, true
	}
	i := slices.IndexFunc(s.Words, func(w Word) bool {
		return (strings.HasPrefix(w.Raw, `\ #`) || strings.HasPrefix(w.Raw, "\\\t#")) && w.At.Line == last.At.EndLine
	})
	if i < 1 {
		return Word{}, false
	}
	return s.Words[i], true
}

// endsInBlank reports whether a backslash in the last line of a command does not join the next line to it.
func endsInBlank(s Step) bool {
	_, is := cutWord(s)
	return is
}

// cutParts are the pieces of what was meant as one command from i on, and the number of the command after them: what stands in the
// line below a blank behind a backslash, and an option in the line below such a piece.
func cutParts(commands []Step, i int) (parts []Step, next int) {
	parts = []Step{commands[i]}
	for next = i + 1; next < len(commands); next++ {
		s, before := commands[next], parts[len(parts)-1]
		below := s.At.Cell == before.At.Cell && s.At.Line == max(before.At.EndLine, lastWord(before).At.EndLine)+1
		if !below || !endsInBlank(before) && !strings.HasPrefix(s.Words[0].Text, "--") {
			break
		}
		parts = append(parts, s)
	}
	return parts, next
}

// isContinued reports whether a command looks like the rest of one: it begins with an option, or with a program's argument.
func isContinued(s Step) bool {
	first := s.Words[0].Text
	return strings.HasPrefix(first, "-") || strings.HasSuffix(first, ".py") || strings.ContainsAny(first, "=$/:")
}

// furtherLines names the lines after the first in which the same command is cut.
func furtherLines(parts []Step) string {
	var blank, bare []int
	for i, s := range parts[1:] {
		line := lastWord(s).At.EndLine
		cut, isCut := cutWord(s)
		isLast := i+2 == len(parts)
		switch {
		case isCut && (!isLast || strings.TrimSpace(cut.Text) != ""):
			blank = append(blank, line)
		case !isLast:
			bare = append(bare, line)
		}
	}

	text := ""
	if len(blank) > 0 {
		text = "; the same in " + lineNumbers(blank)
	}
	if len(bare) > 0 {
		text += "; no backslash stands at the end of " + lineNumbers(bare)
	}

	return text
}

// lineNumbers names lines: "line 5", "lines 5, 7-9".
func lineNumbers(lines []int) string {
	if len(lines) == 1 {
		return fmt.Sprintf("line %d", lines[0])
	}
	return "lines " + prose.Ranges(lines, ", ")
}

// blankArgument says what becomes of the blank.
func blankArgument(s Step) string {
	if len(s.Words) == 1 {
		return "the shell looks for a program whose name is one blank"
	}
	if cut, _ := cutWord(s); strings.TrimSpace(cut.Text) != "" {
		return "the program gets the remark as arguments"
	}
	return "the program gets an argument that is one blank"
}

// isOptionList reports whether most lines of a command have a remark: such a list is meant to be read, and not to be typed.
func isOptionList(parts []Step) bool {
	remarks := 0
	for _, s := range parts {
		if cut, _ := cutWord(s); strings.Contains(cut.Raw, "#") {
			remarks++
		}
	}
	return remarks > 2
}

// isOutline reports whether a place of a page is in a block in which something is to be filled in.
func (f File) isOutline(at Place) bool {
	return slices.ContainsFunc(f.outlines, func(block Place) bool { return block.Line <= at.Line && at.Line <= block.EndLine })
}

// goesOnBelow reports whether something stands in the line below a place, as far as the file was read.
func (f File) goesOnBelow(at Place) bool {
	return f.Unread > 0 || slices.ContainsFunc(f.Steps, func(s Step) bool {
		return s.At.Cell == at.Cell && s.At.Line == max(at.Line, at.EndLine)+1
	})
}

// meansGPUs reports whether a command has to do with GPUs.
func meansGPUs(s Step) bool {
	if slices.ContainsFunc(s.With, func(w Step) bool { return isGPUVariable(w.Name) }) || programOf(s).usesGPUs() {
		return true
	}
	_, contained := readContainerRun(s)
	return contained
}
