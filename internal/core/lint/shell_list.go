package lint

import (
	"slices"
	"strings"

	"gpuard/internal/core/check"
)

func lookListCutAtBlank(a indexedFile, _ int, s Step) (all []Finding) {
	if !isFromShell(a.File, s) {
		return nil
	}
	if finding, ok := cutList(s); ok {
		all = append(all, finding)
	}

	return all
}

// cutList finds an assignment of a list in a command, and the pieces of the list in the words after it.
func cutList(s Step) (Finding, bool) {
	if s.Do != Command || len(s.Words) == 0 {
		return Finding{}, false
	}

	name, value, pieces := "", Value{}, s.Words
	if n := len(s.With); n > 0 {
		name, value = s.With[n-1].Name, s.With[n-1].Value
	} else if slices.Contains([]string{"export", "declare", "typeset", "readonly", "local", "env"}, s.Words[0].Text) {
		for i, w := range s.Words {
			if left, right, ok := strings.Cut(w.Text, "="); ok && slices.Contains(maskVariables(), left) {
				name, value, pieces = left, w, s.Words[i+1:]
				value.Text = right
			}
		}
	}

	if !slices.Contains(maskVariables(), name) || !value.Known {
		return Finding{}, false
	}

	last := slices.IndexFunc(pieces, func(w Word) bool { return !w.Known || !listPiece().MatchString(w.Text) })
	if last < 0 {
		last = len(pieces)
	}

	pieces = pieces[:last]
	if len(pieces) == 0 || !listPiece().MatchString(value.Text) {
		return Finding{}, false
	}

	list := value.Text
	for _, w := range pieces {
		list += "," + w.Text
	}

	list = strings.Join(strings.FieldsFunc(list, func(r rune) bool { return r == ',' }), ",")
	finding := Finding{Finding: check.Finding{Seen: name + " gets only " + quoteValue(value.Text) + ": the shell takes " + quoteValue(pieces[0].Text) + " as a word of its own",
		Why: "a blank ends an assignment", Do: "write: " + name + "=" + list}, At: value.At}

	at := value.At
	at.EndLine, at.EndColumn = pieces[last-1].At.EndLine, pieces[last-1].At.EndColumn
	if text := list; at.Line == at.EndLine {
		if strings.Contains(value.Raw, "=") {
			text = name + "=" + list
		}
		finding.Edits = []Edit{{At: at, Text: text}}
	}

	return finding, true
}
