package layout

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"gpuard/test/pages"
)

const (
	docsMap = "docs/README.md"
	chinese = ".zh-CN.md" // how the name of a page in Chinese ends
)

// need is what people who share GPUs come with, and where they find how it is done.
type need struct{ what, page string }

// needs are written out. Each has its page, and a link to it in the map of the documents.
func needs() []need {
	const how = "docs/how-to/"
	return []need{
		{"run on chosen devices", how + "choose-devices.md"},
		{"run on no GPU, and hear of it when a program fell back", how + "without-a-gpu.md"},
		{"let the machine pick", how + "let-gpuard-choose.md"},
		{"see which GPU is which", how + "mapping.md"},
		{"numbers that do not move", how + "stable-numbers.md"},
		{"AMD, Intel, Ascend and tinygrad", how + "other-vendors.md"},
		{"share a GPU by memory", how + "sharing.md"},
		{"another GPU, the CPU, or wait", how + "fallback.md"},
		{"wait for a GPU", how + "waiting.md"},
		{"modules of a product on GPUs of their own", how + "services.md"},
		{"several instances of a program", how + "services.md#one-on-every-gpu"},
		{"many experiments over few GPUs", how + "sweep.md"},
		{"train and infer side by side", "examples/train-and-infer/README.md"},
		{"distributed training", how + "distributed.md"},
		{"a long job whose GPU gets hot or fails", how + "drift.md"},
		{"limits, restarts and logs", how + "supervise.md"},
		{"memory that belongs to nobody", how + "leftovers.md"},
		{"Jupyter kernels", how + "jupyter.md"},
		{"services of systemd", how + "systemd.md"},
		{"desktop entries", how + "desktop.md"},
		{"conda environments", how + "conda.md"},
		{"direnv", how + "direnv.md"},
		{"shells and logins", how + "shell.md"},
		{"GitHub Actions and other CI", how + "github.md"},
		{"team rules in a file", how + "team-rules.md"},
		{"VS Code", how + "vscode.md"},
		{"SSH", how + "ssh.md"},
		{"cron", how + "cron.md"},
		{"proof that it is on the GPU", how + "verify.md"},
		{"will GPU programs run here", how + "doctor.md"},
		{"mistakes in scripts", how + "lint.md"},
		{"logs that say which GPU it was", how + "which-gpu-it-was.md"},
		{"who is on which GPU, at any time", how + "watching.md"},
		{"the same job on Slurm", how + "slurm.md"},
		{"the same job on Kubernetes", how + "kubernetes.md"},
	}
}

// pagesOf are the pages of the repository, by path.
func (t tree) pagesOf() map[string][]pages.Block {
	all := map[string][]pages.Block{}
	for _, s := range t {
		if strings.HasSuffix(s.path, ".md") && !strings.Contains(s.path, "testdata/") {
			all[s.path] = pages.Read(string(s.text))
		}
	}
	return all
}

// led is the file that a link of a page leads to, and the place in it.
func led(page, to string) (file, place string) {
	to, place, _ = strings.Cut(to, "#")
	if to == "" {
		return page, place
	}
	return path.Join(path.Dir(page), to), place
}

// linksResolve: every relative link of a page leads to a file or a folder that is there, and to a heading that it has.
func linksResolve(repo tree) (bad []string) {
	all := repo.pagesOf()
	there := map[string]bool{".": true}
	for _, s := range repo {
		for name := s.path; name != "."; name = path.Dir(name) {
			there[name] = true
		}
	}
	for page, blocks := range all {
		for _, l := range pages.Links(blocks) {
			if !l.IsRelative() {
				continue
			}
			file, place := led(page, l.To)
			if !there[file] {
				bad = append(bad, fmt.Sprintf("%s:%d: the link %s leads nowhere: there is no %s", page, l.Line, l.To, file))
			} else if to, isPage := all[file]; isPage && place != "" && !pages.Anchors(to)[place] {
				bad = append(bad, fmt.Sprintf("%s:%d: the link %s leads nowhere: %s has no heading of that name", page, l.Line, l.To, file))
			}
		}
	}
	slices.Sort(bad)
	return bad
}

// architectureNames: the page of the architecture names every package of the layers below app.
func architectureNames(repo tree) (bad []string) {
	const page = "docs/explanation/architecture.md"
	said := map[string]bool{}
	for _, s := range repo {
		for _, word := range strings.Fields(string(s.text)) {
			said[word] = said[word] || s.path == page
		}
	}
	for dir := range repo.packages() {
		if layer := path.Dir(dir); (layer == "internal/core" || layer == "internal/host" || layer == "internal/text") && !said[path.Base(dir)] {
			bad = append(bad, fmt.Sprintf("%s: it does not name %s", page, dir))
		}
	}
	return bad
}

// pagesFound: every page in docs is reached from the map of the documents by links, and the map names the page of every
// need.
func pagesFound(repo tree) (bad []string) {
	all := repo.pagesOf()
	reached := map[string]bool{docsMap: true}
	named := map[string]bool{}
	for todo := []string{docsMap}; len(todo) > 0; todo = todo[1:] {
		for _, l := range pages.Links(all[todo[0]]) {
			file, place := led(todo[0], l.To)
			if todo[0] == docsMap {
				named[strings.TrimSuffix(file+"#"+place, "#")] = true
			}
			if _, isPage := all[file]; l.IsRelative() && isPage && !reached[file] {
				reached[file] = true
				todo = append(todo, file)
			}
		}
	}
	for page := range all {
		if strings.HasPrefix(page, "docs/") && !reached[page] {
			bad = append(bad, fmt.Sprintf("%s: no link leads here from %s: give it a row there", page, docsMap))
		}
	}
	for _, n := range needs() {
		if !named[n.page] {
			bad = append(bad, fmt.Sprintf("%s: no link to %s (%s)", docsMap, n.page, n.what))
		}
	}
	slices.Sort(bad)
	return bad
}

// translated: a page in Chinese has what the page in English has, in the same order: headings, paragraphs, rows, items
// and code. Commands are the same, only a comment behind them may differ; links lead to the same places. Each begins
// with a link to the other.
func translated(repo tree) (bad []string) {
	all := repo.pagesOf()
	for _, english := range []string{"README.md", "docs/tutorial/first-lease.md"} {
		if name := strings.TrimSuffix(english, ".md") + chinese; all[english] != nil && all[name] == nil {
			bad = append(bad, fmt.Sprintf("%s: there is no %s", english, name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		base, isChinese := strings.CutSuffix(name, chinese)
		if !isChinese {
			continue
		}
		english := base + ".md"
		if all[english] == nil {
			bad = append(bad, fmt.Sprintf("%s: there is no %s that it translates", name, english))
			continue
		}
		bad = append(bad, apart(english, name, outline(all[english]), outline(all[name]))...)
		bad = append(bad, apart(english, name, goals(english, all[english]), goals(name, all[name]))...)
		for from, to := range map[string]string{name: english, english: name} {
			links := pages.Links(all[from])
			if len(links) == 0 || links[0].To != path.Base(to) || len(all[from]) < 2 || links[0].Line > all[from][1].Line {
				bad = append(bad, fmt.Sprintf("%s: the first line below the title has no link to %s", from, path.Base(to)))
			}
		}
	}
	return bad
}

// piece is a part of a page that its translation has too; line is where it stands.
type piece struct {
	line int
	what string
}

func outline(blocks []pages.Block) (all []piece) {
	comment := regexp.MustCompile(`(^|\s+)# .*$`)
	for _, b := range blocks {
		switch b.Kind {
		case pages.Heading:
			all = append(all, piece{b.Line, fmt.Sprintf("a heading of level %d", b.Level)})
		case pages.Code:
			all = append(all, piece{b.Line, "code: " + b.Info})
			for n, line := range b.Lines() {
				all = append(all, piece{b.Line + n, "the line " + comment.ReplaceAllString(line, " #")})
			}
		default:
			all = append(all, piece{b.Line, "one more " + string(b.Kind)})
		}
	}
	return all
}

// goals are the files that a page leads to, in the order of their names, because words have another order in each
// language. A page that is translated counts as one with its translation.
func goals(page string, blocks []pages.Block) (all []piece) {
	for _, l := range pages.Links(blocks) {
		what := l.To
		if l.IsRelative() {
			file, place := led(page, l.To)
			if plain, ok := strings.CutSuffix(file, chinese); ok {
				file, place = plain+".md", ""
			} else if file == page {
				place = ""
			}
			what = strings.TrimSuffix(file+"#"+place, "#")
		}
		all = append(all, piece{l.Line, "a link to " + what})
	}
	slices.SortStableFunc(all, func(a, b piece) int { return strings.Compare(a.what, b.what) })
	return all
}

// apart says where two pages part.
func apart(english, other string, a, b []piece) []string {
	say := func(page string, all []piece, i int) string {
		if i < len(all) {
			return fmt.Sprintf("%s:%d: %s", page, all[i].line, all[i].what)
		}
		return page + ": nothing more"
	}
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i].what != b[i].what {
			return []string{say(english, a, i) + "\n  and " + say(other, b, i)}
		}
	}
	return nil
}
