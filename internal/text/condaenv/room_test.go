package condaenv

import (
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	for _, c := range []struct {
		name, src string
		want      Room
		bad       string
	}{
		{"none", "name: a\ndependencies:\n- python\n", Room{Alone: true, Indent: "  "}, ""},
		{"some", "name: a\nvariables: # x\n    # y\n    A: 1\nprefix: /x\n", Room{Line: 3, Indent: "    "}, ""},
		{"empty map", "variables:\nname: a\n", Room{Line: 2, Indent: "  "}, ""},
		{"at the end", "name: a\nvariables:", Room{Line: 3, Indent: "  "}, ""},
		{"windows", "name: a\r\nvariables:\r\n  A: 1\r\n", Room{Line: 3, Indent: "  "}, ""},
		{"in braces", "variables: {A: 1}\n", Room{}, "one a line"},
		{"in braces below", "variables:\n  {A: 1}\n", Room{}, "one a line"},
		{"empty braces", "variables: {}\n", Room{}, "one a line"},
		{"a list", "variables:\n- A\n", Room{}, "one a line"},
		{"there", "variables:\n  GPUARD_CONDA: x\n", Room{}, "already"},
		{"nothing", "# nothing\n", Room{}, "not one map"},
		{"two", "a: 1\n---\nb: 1\n", Room{}, "not one map"},
		{"all in braces", "{name: a}\n", Room{}, "not one map"},
		{"ended", "name: a\n...\n", Room{}, "ends the document"},
		{"indented", "  name: a\n", Room{}, "first column"},
		{"no YAML", "a: [\n", Room{}, "cannot read"},
	} {
		got, err := FindRoom([]byte(c.src), "GPUARD_CONDA")
		if got != c.want || (err == nil) != (c.bad == "") || err != nil && !strings.Contains(err.Error(), c.bad) {
			t.Errorf("%s: %+v, %v; want %+v, %q", c.name, got, err, c.want, c.bad)
		}
	}
}
