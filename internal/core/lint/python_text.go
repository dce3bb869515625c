package lint

import (
	"strings"

	"gpuard/internal/core/check"
)

var literalNumbers = lazyRegexp(`^[\[(]?\s*-?[0-9]+(\s*,\s*[0-9]+)*\s*,?\s*[\])]?$`)

func lookEnvironText(s Step) []Finding {
	if s.Type == "" || s.Shell != 0 || !isKnownGPUVariable(s.Name) {
		return nil
	}

	what := s.Value.Raw + ", which is no text"
	if s.Type != "None" && !s.Value.Known {
		what = s.Value.Raw + ", which is of the type " + s.Type + " and no text"
	}

	finding := Finding{Finding: check.Finding{Seen: s.Name + " is set to " + what,
		Why: "the program ends here with a TypeError: str expected", Do: "write: str(" + s.Value.Raw + ")"}, At: s.Value.At}

	switch {
	case literalNumbers().MatchString(s.Value.Raw):
		list := strings.Join(strings.FieldsFunc(s.Value.Raw, func(r rune) bool { return strings.ContainsRune(" ,[]()", r) }), ",")
		finding.Do = `write: "` + list + `"`
		finding.Edits = []Edit{{At: s.Value.At, Text: `"` + list + `"`}}
		if _, isList := findListVariable(s.Name); isList && s.Value.Raw == "0" && s.Maybe {
			// In the branch for no GPU 0 may have been meant for none.
			finding.Do, finding.Edits = `write: "0" for the first GPU, or "-1" for none`, nil
		}
	case s.Type == "None":
		finding.Do = `remove it with os.environ.pop("` + s.Name + `", None), or set a text`
	case s.Type == "list" || s.Type == "tuple" || s.Type == "range":
		finding.Do = `write: ",".join(map(str, ` + s.Value.Raw + "))"
	}

	if !s.Value.Known && !strings.HasPrefix(s.Value.Raw, "[") && !strings.HasPrefix(s.Value.Raw, "(") {
		finding.Severity = check.Warning
	}

	return []Finding{finding}
}
