package lint

import (
	"slices"
	"strings"

	"gpuard/internal/core/check"
	"gpuard/internal/core/suggest"
)

// Silence takes out the findings that a comment in the file silences:
//
//	x = 1  # gpuard:ignore CODE, CODE      on the line, or on any line of what the finding is about
//	# gpuard:ignore CODE                   alone on the line before
//	# gpuard:ignore-file CODE              anywhere: in the whole file
//
// A comment that is meant so and silences nothing, because it is not written so or no finding has its code, is a finding
// itself. text is that of each cell of a notebook by its number, or of the file as cell 0.
func Silence(f File, text map[int]string, found []Finding) (kept []Finding, silenced int) {
	s := silencer{file: f, comments: map[int][]comment{}, lines: map[int][]string{}, named: map[int]map[string]bool{}}
	for cell, source := range text {
		s.lines[cell], s.named[cell] = SplitLines(source), map[string]bool{}
		for i, line := range s.lines[cell] {
			c := readComment(line)
			s.comments[cell] = append(s.comments[cell], c)
			s.everywhere = append(s.everywhere, c.everywhere...)

			for _, code := range c.codes {
				s.named[cell][code] = true
			}

			if f.Kind != Markdown {
				found = append(found, findMistaken(line, Place{Cell: cell, Line: i + 1, EndLine: i + 1})...)
			}
		}
	}
	for _, one := range found {
		if s.silences(one) {
			silenced++
		} else {
			kept = append(kept, one)
		}
	}

	return kept, silenced
}

// comment is what a line says to gpuard.
type comment struct {
	codes      []string
	everywhere []string
	// The line has nothing else.
	alone bool
}

func readComment(line string) (c comment) {
	if !strings.Contains(line, "gpuard:ignore") {
		return c
	}
	for _, m := range ignoreRegexp().FindAllStringSubmatchIndex(line, -1) {
		codes := splitCodes(line[m[4]:m[5]])
		if m[2] >= 0 {
			c.everywhere = append(c.everywhere, codes...)
			continue
		}
		c.codes = append(c.codes, codes...)
		c.alone = c.alone || strings.Trim(line[:m[0]], " \t") == ""
	}
	return c
}

// ignoreRegexp matches a comment in any of the formats; units may begin theirs with a semicolon.
var ignoreRegexp = lazyRegexp(`[#;][ \t]*gpuard:ignore(-file)?[ \t]+([a-z0-9-]+(?:[ \t]*,[ \t]*[a-z0-9-]+)*)`)

// findMistaken finds comments of a line that are meant to silence something and do not.
func findMistaken(line string, at Place) []Finding {
	if !strings.Contains(line, "gpuard") && !strings.Contains(line, "GPUARD") {
		return nil
	}
	meant := meantRegexp().FindStringSubmatch(line)
	if meant == nil {
		return nil
	}

	at.Column = strings.Index(line, meant[0]) + 1
	at.EndColumn = at.Column + len(meant[0])
	found := Finding{Finding: check.Finding{Code: codeSilence, Severity: describeCode(codeSilence).Severity, Seen: "this comment silences nothing",
		Why: "it is not written as gpuard reads it, or names no code", Do: "write: # gpuard:ignore" + strings.ToLower(meant[1]) + " CODE, with the code behind the finding"}, At: at}

	written := ignoreRegexp().FindStringSubmatch(line)
	if written == nil {
		return []Finding{found}
	}

	codes := splitCodes(written[2])
	isUnknown := func(code string) bool { return !slices.Contains(allCodes(), code) }
	unknown := slices.IndexFunc(codes, isUnknown)
	if unknown < 0 || strings.Contains(written[2], ",") && !strings.Contains(codes[unknown], "-") {
		// Behind a comma may stand why.
		return nil
	}

	found.Why = "no finding of lint has the code " + codes[unknown]
	if right := suggest.ClosestWord(codes[unknown], allCodes()); right != "" {
		found.Do = "write: " + right
	}

	return []Finding{found}
}

// meantRegexp matches a comment that is meant to silence findings, however it is written.
var meantRegexp = lazyRegexp(`(?i)[#;][ \t]*gpuard[ \t:._-]+(?:ignore|noqa|disable)(-file)?\b[^\r\n]*`)

func splitCodes(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' })
}

const codeSilence = "comment-silences-nothing"

type silencer struct {
	file     File
	comments map[int][]comment
	lines    map[int][]string
	// The codes in the comments of a cell.
	named      map[int]map[string]bool
	everywhere []string
}

func (s *silencer) silences(f Finding) bool {
	if slices.Contains(s.everywhere, f.Code) {
		return true
	}

	comments := s.comments[f.At.Cell]
	if !s.named[f.At.Cell][f.Code] {
		return false
	}

	says := func(line int) bool {
		return line >= 1 && line <= len(comments) && slices.Contains(comments[line-1].codes, f.Code)
	}

	alone := func(line int) bool { return line >= 1 && line <= len(comments) && comments[line-1].alone }
	for line := f.At.Line; line <= max(f.At.Line, f.At.EndLine); line++ {
		if says(line) && !alone(line) {
			return true
		}
	}

	for _, first := range s.firstLines(f.At) {
		for line := first - 1; alone(line); line-- {
			if says(line) {
				return true
			}
		}
	}

	return false
}

// firstLines are the lines above which a comment counts: that of the place, the first of the command or statement
// around it, and the first of a line that continues with a backslash.
func (s *silencer) firstLines(at Place) []int {
	lines := s.lines[at.Cell]
	firsts := []int{at.Line}
	for _, step := range s.file.Steps {
		around := step.At.Cell == at.Cell && step.At.Line < at.Line && at.Line <= step.At.EndLine
		if around && slices.Contains([]StepKind{Command, Call, Set}, step.Do) {
			firsts = append(firsts, step.At.Line)
		}
	}

	goesOn := func(line int) bool {
		return line >= 1 && line <= len(lines) && strings.HasSuffix(strings.TrimRight(lines[line-1], "\r\n"), `\`)
	}

	for _, line := range slices.Clone(firsts) {
		for goesOn(line - 1) {
			line--
			firsts = append(firsts, line)
		}
	}

	return firsts
}
