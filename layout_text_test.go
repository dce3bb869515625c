package layout

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// forbiddenWords keeps paths of somebody's machine, settings of somebody's network and keys out of a public repository.
// The words are put together here so that this file does not contain them.
func forbiddenWords(repo tree) (bad []string) {
	words := []string{
		"/wo" + "rk/", ".libr" + "ary/", "/roo" + "t/go", "GOPROXY" + "=http", "index" + "-url", "PRIVATE" + " KEY-----",
		"DESIGN" + ".md", "LEASES" + ".md", "NEEDS" + ".md",
	}
	for _, s := range repo {
		for i, line := range strings.Split(string(s.text), "\n") {
			for _, word := range words {
				if strings.Contains(line, word) {
					bad = append(bad, fmt.Sprintf("%s:%d: %q does not belong into the repository", s.path, i+1, word))
				}
			}
		}
	}
	return bad
}

// ownNumbers: a decision and a note of a change each have a number to themselves, and every decision is in the list.
func ownNumbers(repo tree) (bad []string) {
	taken := map[string]string{}
	list := repo.text("docs/decisions/README.md")
	for _, s := range repo {
		folder, name := path.Split(s.path)
		number, _, numbered := strings.Cut(name, "-")
		if folder != "docs/decisions/" && folder != "changes/unreleased/" || !numbered {
			continue
		}
		if first := taken[folder+number]; first != "" {
			bad = append(bad, fmt.Sprintf("%s: %s is the number of %s; take the next free one", s.path, number, first))
		}
		taken[folder+number] = name
		if folder == "docs/decisions/" && !strings.Contains(list, "| ["+number+"]("+name+") |") {
			bad = append(bad, fmt.Sprintf("%s: docs/decisions/README.md has no row for it", s.path))
		}
	}
	return bad
}

// explainedRequirements compares go.mod with docs/dependencies.md: each direct requirement has a row
// "| module | version | …" there, and no row is left of what is gone.
func explainedRequirements(repo tree) (bad []string) {
	mod, doc := repo.text("go.mod"), repo.text("docs/dependencies.md")
	if mod == "" || doc == "" {
		return []string{"cannot find go.mod or docs/dependencies.md"}
	}
	required := map[string]string{}
	direct := map[string]bool{}
	for line := range strings.Lines(mod) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) >= 2 && strings.Contains(fields[0], ".") && strings.HasPrefix(fields[1], "v") {
			required[fields[0]] = fields[1]
			direct[fields[0]] = !strings.Contains(line, "// indirect")
		}
	}
	explained := map[string]bool{}
	for line := range strings.Lines(doc) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.Contains(cells[1], "/") {
			continue
		}
		name, version := strings.Trim(cells[1], " `"), strings.TrimSpace(cells[2])
		explained[name] = true
		if required[name] != version {
			bad = append(bad, fmt.Sprintf("docs/dependencies.md: %s is %q there and %q in go.mod", name, version, required[name]))
		}
	}
	for name := range required {
		if direct[name] && !explained[name] {
			bad = append(bad, fmt.Sprintf("docs/dependencies.md: no row for %s: what for, why this one, what else was considered", name))
		}
	}
	slices.Sort(bad)
	return bad
}

// guardsExist: every test that .ci/run lists among its guards is there. A name that is gone guards nothing.
func guardsExist(repo tree) (bad []string) {
	_, list, _ := strings.Cut(repo.text(".ci/run"), "\nguards='\n")
	list, _, _ = strings.Cut(list, "\n'\n")
	for guard := range strings.Lines(list) {
		pkg, test, _ := strings.Cut(strings.TrimSpace(guard), " ")
		if !slices.ContainsFunc(repo, func(s *source) bool {
			return s.isTest() && "gpuard/"+s.dir() == pkg && strings.Contains(string(s.text), "\nfunc "+test+"(t *testing.T)")
		}) {
			bad = append(bad, fmt.Sprintf(".ci/run: there is no test %s in %s", test, pkg))
		}
	}
	if list == "" {
		bad = append(bad, ".ci/run: cannot find the list of guards")
	}
	return bad
}

func (t tree) text(name string) string {
	for _, s := range t {
		if s.path == name {
			return string(s.text)
		}
	}
	return ""
}
