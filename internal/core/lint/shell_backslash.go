package lint

import (
	"slices"
	"strings"

	"gpuard/internal/core/check"
)

// lookBackslash finds a line that was meant to go on: a backslash with a blank behind it is a blank, and the command
// ends with the line.
func lookBackslash(f File) []Finding {
	var all []Finding
	for _, s := range f.Steps {
		if s.Do != Command || !isFromShell(f, s) || len(s.Words) == 0 {
			continue
		}

		last := s.Words[len(s.Words)-1]
		if last.Text == "" || strings.TrimSpace(last.Text) != "" || !strings.HasPrefix(last.Raw, `\`) || !meansGPUs(s) {
			continue
		}

		found := Finding{Finding: check.Finding{Seen: "a blank stands behind the backslash, so the command ends with this line",
			Why: "the shell takes the next line as another command, which gets neither the variables nor the options of this one",
			Do:  "remove what stands behind the backslash"}, At: last.At}

		if !f.goesOnBelow(last.At) {
			found.Severity, found.Why = check.Info, "the command gets a blank as its last word; nothing below belongs to it"
		}

		if strings.Contains(last.Raw, "#") {
			found.Do += "; a comment cannot stand there"
			if f.Kind == Markdown {
				// a list of options with remarks, which may be meant to be read and not to be typed
				found.Severity = check.Info
			}
		}

		all = append(all, found)
	}
	return all
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
