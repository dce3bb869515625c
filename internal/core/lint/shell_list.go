package lint

import (
	"slices"
	"strings"

	"gpuard/internal/core/check"
)

func listCutAtBlank() Rule {
	return Rule{
		Page: check.Page{
			Code:  "list-cut-at-blank",
			Title: "A shell cuts a list of devices at its blank",
			Text: "A blank ends an assignment. Of `export CUDA_VISIBLE_DEVICES=0 1` the shell keeps `0`, and takes `1` as the name of another variable, which it is not; of `CUDA_VISIBLE_DEVICES=0 1 python train.py` it takes `1` as the program.\n\n" +
				"Write the list with commas and without blanks.",
			From: []string{posixShell, "https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html"},
		},
		Severity: check.Error,
		Bad: []Example{
			{"train.sh", "#!/bin/bash\nexport CUDA_VISIBLE_DEVICES=0 1\npython train.py\n"},
			{"comma.sh", "#!/bin/sh\nexport HIP_VISIBLE_DEVICES=0, 1, 2\npython train.py\n"},
			{"prefix.sh", "#!/bin/sh\nCUDA_VISIBLE_DEVICES=0 1 python train.py\n"},
			{"env.sh", "#!/bin/sh\nenv CUDA_VISIBLE_DEVICES=0, 1 python train.py\n"},
		},
		Good: []Example{
			{"train.sh", "#!/bin/bash\nexport CUDA_VISIBLE_DEVICES=0,1 OMP_NUM_THREADS=1\nCUDA_VISIBLE_DEVICES=1 python train.py\n"},
			{"other.sh", "#!/bin/sh\nenv CUDA_VISIBLE_DEVICES=0 ./1\nCUDA_VISIBLE_DEVICES=0 seq 1\n"},
		},
		Look: func(f File) []Finding {
			var all []Finding
			for _, script := range Scripts(f) {
				for _, s := range script.Steps {
					if finding, ok := cutList(s); ok {
						all = append(all, finding)
					}
				}
			}
			return once(all)
		},
	}
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
			if left, right, ok := strings.Cut(w.Text, "="); ok && slices.Contains(masks(), left) {
				name, value, pieces = left, w, s.Words[i+1:]
				value.Text = right
			}
		}
	}
	if !slices.Contains(masks(), name) || !value.Known {
		return Finding{}, false
	}
	last := slices.IndexFunc(pieces, func(w Word) bool { return !w.Known || !listPiece().MatchString(w.Text) })
	if last < 0 {
		last = len(pieces)
	}
	if pieces = pieces[:last]; len(pieces) == 0 || !listPiece().MatchString(value.Text) {
		return Finding{}, false
	}
	list := value.Text
	for _, w := range pieces {
		list += "," + w.Text
	}
	list = strings.Join(strings.FieldsFunc(list, func(r rune) bool { return r == ',' }), ",")
	finding := Finding{Finding: check.Finding{Code: "list-cut-at-blank", Severity: check.Error, Seen: name + " gets only " + quote(value.Text) + ": the shell takes " + quote(pieces[0].Text) + " as a word of its own",
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
