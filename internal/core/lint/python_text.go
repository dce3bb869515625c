package lint

import (
	"strings"

	"gpuard/internal/core/check"
)

var notText = pattern(`^(-?[0-9]+(\s*,\s*[0-9]+)*|[\[(][-0-9,\s]*[\])]|None|True|False)$`)

func environText() Rule {
	const code = "environ-not-text"
	return Rule{
		Page: check.Page{
			Code:  code,
			Title: "A variable of the environment is set to something that is no text",
			Text: "The environment has texts only: `os.environ['CUDA_VISIBLE_DEVICES'] = 0` ends the program with `TypeError: str expected, not int`, also through `setdefault`, `update` and `os.putenv`.\n\n" +
				"Put the value in quotes. To remove a variable, use `os.environ.pop('NAME', None)`.",
			From: []string{"https://docs.python.org/3/library/os.html#os.environ"},
		},
		Severity: check.Error,
		Bad: []Example{
			{"train.py", "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = 0\nimport torch\n"},
			{"list.py", "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = [0, 1]\n"},
			{"update.py", "import os\nos.environ.update({'HIP_VISIBLE_DEVICES': 1})\nos.environ.setdefault('NCCL_DEBUG', None)\n"},
			{"putenv.py", "import os\nos.putenv('CUDA_VISIBLE_DEVICES', -1)\n"},
		},
		Good: []Example{
			{"train.py", "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\nos.environ['CUDA_DEVICE_ORDER'] = order\nos.environ['HIP_VISIBLE_DEVICES'] = str(0)\n"},
			{"other.py", "import os\nsettings['CUDA_VISIBLE_DEVICES'] = 0\n"},
		},
		Look: func(f File) []Finding {
			var all []Finding
			for _, s := range f.Steps {
				python := strings.HasPrefix(s.How, "os.environ") || s.How == "os.putenv"
				if s.Do != Set || s.Shell != 0 || !python || !forGPUs(s.Name) || !notText().MatchString(s.Value.Raw) {
					continue
				}
				finding := Finding{Finding: check.Finding{Code: code, Severity: check.Error, Seen: s.Name + " is set to " + s.Value.Raw + ", which is no text",
					Why: "the program ends here with a TypeError: str expected", Do: "remove it with os.environ.pop(\"" + s.Name + "\", None), or set a text"}, At: s.Value.At}
				if list := strings.Join(strings.FieldsFunc(s.Value.Raw, func(r rune) bool { return strings.ContainsRune(" ,[]()", r) }), ","); number(strings.TrimPrefix(list, "-")) >= 0 || strings.Contains(list, ",") {
					finding.Do = `write: "` + list + `"`
					finding.Edits = []Edit{{At: s.Value.At, Text: `"` + list + `"`}}
				}
				all = append(all, finding)
			}
			return all
		},
	}
}
