package lint

import (
	"strings"

	"gpuard/internal/core/check"
)

var notText = pattern(`^(-?[0-9]+(\s*,\s*[0-9]+)*|[\[(][-0-9,\s]*[\])]|None|True|False)$`)

func lookEnvironText(f File) []Finding {
	var all []Finding
	for _, s := range f.Steps {
		python := strings.HasPrefix(s.How, "os.environ") || s.How == "os.putenv"
		if s.Do != Set || s.Shell != 0 || !python || !forGPUs(s.Name) || !notText().MatchString(s.Value.Raw) {
			continue
		}
		finding := Finding{Finding: check.Finding{Seen: s.Name + " is set to " + s.Value.Raw + ", which is no text",
			Why: "the program ends here with a TypeError: str expected", Do: "remove it with os.environ.pop(\"" + s.Name + "\", None), or set a text"}, At: s.Value.At}
		if list := strings.Join(strings.FieldsFunc(s.Value.Raw, func(r rune) bool { return strings.ContainsRune(" ,[]()", r) }), ","); number(strings.TrimPrefix(list, "-")) >= 0 || strings.Contains(list, ",") {
			finding.Do = `write: "` + list + `"`
			finding.Edits = []Edit{{At: s.Value.At, Text: `"` + list + `"`}}
		}
		all = append(all, finding)
	}
	return all
}
