package lint

import (
	"slices"
	"strings"

	"gpuard/internal/core/check"
	"gpuard/internal/core/compat"
)

// isKnownGPUVariable reports whether a variable is one of GPU programs or of the container runtime, by today's name or an old one.
func isKnownGPUVariable(name string) bool {
	if isGPUVariable(name) || strings.HasPrefix(name, "NCCL_") || name == "NVIDIA_VISIBLE_DEVICES" || name == "NVIDIA_DRIVER_CAPABILITIES" {
		return true
	}
	_, old := compat.DeprecatedName(name, "1")
	return old
}

func lookAssignment(f File) (all []Finding) {
	if !slices.Contains([]Kind{Desktop, Unit, Dockerfile, Compose, Kubernetes, Supervisor}, f.Kind) {
		return nil
	}

	programs := 0
	for _, s := range f.Steps {
		if s.Do == Command && s.Shell == 0 {
			programs++
		}
	}

	for _, s := range f.Steps {
		if s.Shell == 0 && f.Kind == Unit && len(s.Words) == 2 && s.Words[0].Text == "export" {
			if a, ok := parseAssignment(s.Words[1], "env"); ok && isKnownGPUVariable(a.Name) {
				all = append(all, Finding{Finding: check.Finding{Seen: "export is taken as the name of the program to start",
					Why: "it is a word of shells, and no shell reads this line", Do: "write: Environment=" + s.Words[1].Raw}, At: s.Words[0].At})
			}
			continue
		}

		var sets []Step

		for _, w := range s.Words {
			a, ok := parseAssignment(w, "env")
			if s.Shell != 0 || !ok {
				break
			}
			sets = append(sets, a)
		}

		i := slices.IndexFunc(sets, func(a Step) bool { return isKnownGPUVariable(a.Name) })
		if s.Do != Command || i < 0 || len(sets) == len(s.Words) {
			continue
		}

		finding := Finding{Finding: check.Finding{Seen: s.Words[0].Text + " is taken as the name of the program to start",
			Why: "this line is not read by a shell, so nothing is started and " + sets[i].Name + " is not set"}, At: s.Words[0].At}

		finding.setCorrection(f.Kind, s, sets, programs)
		all = append(all, finding)
	}

	return all
}

// setCorrection says how the line should be, each format in its own way.
func (finding *Finding) setCorrection(kind Kind, s Step, sets []Step, programs int) {
	first := s.Words[0].At
	before := Place{Cell: first.Cell, Line: first.Line, Column: first.Column, EndLine: first.Line, EndColumn: first.Column}
	switch rest := renderCommand(Step{Words: s.Words[len(sets):]}, nil); kind {
	case Desktop:
		finding.Line = s.Name + "=env " + renderCommand(s, nil)
		finding.Edits = []Edit{{At: before, Text: "env "}}
	case Unit:
		var words []string
		for _, a := range sets {
			words = append(words, s.rawWordAt(a.At))
		}

		if programs > 1 {
			finding.Line = s.Name + "=/usr/bin/env " + renderCommand(s, nil)
			finding.Edits = []Edit{{At: before, Text: "/usr/bin/env "}}
			break
		}

		finding.Line = "Environment=" + strings.Join(words, " ") + "\n" + s.Name + "=" + rest
		next := s.Words[len(sets)].At
		if next.Line == first.Line && first.Line == s.At.Line {
			start := Place{Line: s.At.Line, Column: s.At.Column, EndLine: s.At.Line, EndColumn: s.At.Column}
			finding.Edits = []Edit{{At: start, Text: "Environment=" + strings.Join(words, " ") + "\n"},
				{At: Place{Line: first.Line, Column: first.Column, EndLine: next.Line, EndColumn: next.Column}}}
		}
	case Dockerfile:
		finding.Line = `"env", ` + s.Words[0].Raw
		finding.Edits = []Edit{{At: before, Text: `"env", `}}
	case Kubernetes:
		finding.Do = "move it to env: name: " + sets[0].Name + `, value: "` + sets[0].Value.Text + `"`
		return
	case Supervisor:
		finding.Do = "write: environment=" + sets[0].Name + `="` + sets[0].Value.Text + `"`
		return
	default:
		finding.Do = "move it to environment: " + sets[0].Name + `: "` + sets[0].Value.Text + `"`
		return
	}

	finding.Do = "write: " + strings.ReplaceAll(finding.Line, "\n", ", and ")
	if finding.Edits != nil {
		// The edits show it, with the rest of the line.
		finding.Line = ""
	}
}

// rawWordAt is how the word of a command at a place is written.
func (s Step) rawWordAt(p Place) string {
	for _, w := range s.Words {
		if w.At == p {
			return w.Raw
		}
	}
	return ""
}

func lookCutAtBlank(a indexedFile, i int, s Step) []Finding {
	key, seen := "Environment=", "systemd ignores "
	if a.Kind == Dockerfile {
		key, seen = "ENV ", "the build stops at "
	}
	if a.Kind != Unit && a.Kind != Dockerfile || s.Do != Setting || s.Name != strings.TrimRight(key, "= ") {
		return nil
	}

	whole, at, ok := rejoinAssignment(a.Steps, i)
	if !ok {
		return nil
	}

	name, _, _ := strings.Cut(whole, "=")
	finding := Finding{Finding: check.Finding{Seen: seen + quoteValue(s.Value.Raw) + ", which assigns nothing",
		Why: "the line is split at blanks, so " + name + " does not get the text after one", Do: "write: " + key + whole}, At: s.Value.At}

	switch edits := []Edit{{At: at, Text: whole}}; {
	case at.Line != at.EndLine:
	case a.Kind == Dockerfile:
		// The list would be fixed in the image.
		finding.Write = edits
	default:
		finding.Edits = edits
	}

	return []Finding{finding}
}

var listPiece = lazyRegexp(`^,?(-?[0-9]+|(GPU|MIG)-[-0-9a-fA-F/]+|[0-9]+(,[0-9]+)+),?$`)

// rejoinAssignment joins the assignment of which step i, a word without one, is a piece; at is the place of its pieces.
func rejoinAssignment(steps []Step, i int) (whole string, at Place, ok bool) {
	word := func(n int) (Value, bool) {
		if n >= len(steps) || steps[n].Do != Setting || steps[n].Name != steps[i].Name || steps[n].At != steps[i].At {
			return Value{}, false
		}
		return steps[n].Value, true
	}

	piece, at := steps[i].Value, steps[i].Value.At
	next := i + 1
	var name, list string

	switch before := i - 1; {
	case before >= 0 && steps[before].Do == Set && steps[before].At.Line == at.Line && isKnownGPUVariable(steps[before].Name) && listPiece().MatchString(piece.Text) &&
		(strings.HasSuffix(steps[before].Value.Text, ",") || steps[before].Value.Text == "" || piece.Text[0] == ',' || deviceNumbers(steps[before].Value) != nil && slices.Contains(maskVariables(), steps[before].Name)):
		name, list, at = steps[before].Name, joinList(steps[before].Value.Text, piece.Text), steps[before].At
		at.EndLine, at.EndColumn = piece.At.EndLine, piece.At.EndColumn
	case isKnownGPUVariable(piece.Text):
		equals, there := word(next)
		if !there || !strings.HasPrefix(equals.Text, "=") {
			return "", at, false
		}
		name, list, next = piece.Text, equals.Text[1:], next+1
		at.EndLine, at.EndColumn = equals.At.EndLine, equals.At.EndColumn
	default:
		return "", at, false
	}

	for more, there := word(next); there && listPiece().MatchString(more.Text); more, there = word(next) {
		list = joinList(list, more.Text)
		at.EndLine, at.EndColumn = more.At.EndLine, more.At.EndColumn
		next++
	}

	return name + "=" + list, at, true
}

// joinList joins two pieces of a list.
func joinList(a, b string) string {
	if a == "" || strings.HasSuffix(a, ",") || strings.HasPrefix(b, ",") {
		return a + b
	}
	return a + "," + b
}
