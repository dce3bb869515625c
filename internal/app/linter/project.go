package linter

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gpuard/internal/core/check"
	"gpuard/internal/core/compat"
	"gpuard/internal/core/lint"
	"gpuard/internal/core/prose"
	"gpuard/internal/host/files"
)

// project is the repository that a file belongs to: the nearest folder above it that git keeps, or what was asked for.
type project struct {
	root string
	// Whether a folder belongs to a copy of another project, by the folder.
	aside map[string]aside
	// The release of PyTorch that a folder asks for, by the folder.
	torch map[string]string
	// The folders that were looked at, and those in which a file was linted.
	folders map[string]bool
	// The files that read a variable whose name looks misspelt, at most two.
	readers map[string][]string
	// The scripts that start programs of Python with a list of devices.
	starters []starter
	// The newest release that any of its folders asks for; nil: not looked for yet.
	newest *string
}

// projectOf finds the project of a folder, below a path that was asked for.
func (c *collector) projectOf(dir, asked string) *project {
	root := c.rootOf(dir)
	if root == "" {
		root = asked
	}

	p, known := c.projects[root]
	if !known {
		p = &project{root: root, aside: map[string]aside{}, torch: map[string]string{}, folders: map[string]bool{}, readers: map[string][]string{}}
		c.projects[root] = p
	}

	return p
}

// noteReads remembers which variables a file reads whose names look misspelt: they are the repository's own. What is only printed, or
// said in a remark, is not read, nor is what makes the same mistake.
func (p *project) noteReads(path string, text []byte, form *regexp.Regexp) {
	if !bytes.Contains(text, []byte("_DEVICE")) && !bytes.Contains(text, []byte("_VIS")) {
		return
	}
	for _, m := range form.FindAllSubmatchIndex(text, -1) {
		name := string(text[m[2]:m[3]])
		if _, looks := compat.SuggestName(name); !looks || len(p.readers[name]) > 1 || slices.Contains(p.readers[name], path) {
			continue
		}
		before := string(text[bytes.LastIndexByte(text[:m[0]], '\n')+1 : m[0]])
		if !strings.HasPrefix(strings.TrimSpace(before), "#") && !strings.Contains(before, name+"=") && !strings.Contains(before, "echo") && !strings.Contains(before, "print") {
			p.readers[name] = append(p.readers[name], path)
		}
	}
}

// noteStarts remembers which Python programs a script starts with a list of devices. The list stands before the program in its line, or an
// earlier line exports it.
func (p *project) noteStarts(script string, kind lint.Kind, text []byte, list, program *regexp.Regexp) {
	if kind != lint.Shell && kind != lint.Makefile || !bytes.Contains(text, []byte("_VISIBLE_DEVICES=")) {
		return
	}
	exported := map[string]bool{}
	for line := range bytes.Lines(bytes.ReplaceAll(text, []byte("\\\n"), []byte(" "))) {
		here := maps.Clone(exported)
		behind := line
		if m := list.FindSubmatchIndex(line); m != nil {
			name := string(line[m[4]:m[5]])
			here[name], behind = true, line[m[1]:]
			if kind == lint.Shell && m[2] >= 0 {
				// Each line of a recipe has a shell of its own.
				exported[name] = true
			}
		}
		if m := program.FindSubmatch(behind); m != nil {
			for name := range here {
				p.starters = append(p.starters, starter{name, string(m[1]), script})
			}
		}
	}
}

// starter is a script that starts a program of Python, named by a path from wherever it runs, with a list of devices.
type starter struct{ list, program, script string }

// listForm is a list of devices at the begin of a line, which a command behind it gets.
func listForm() *regexp.Regexp {
	return regexp.MustCompile(`^\s*(export\s+)?(?:\w+=\S*\s+)*([A-Z]+_VISIBLE_DEVICES)=[^\s#;&|]+`)
}

// programForm is the start of a program of Python.
func programForm() *regexp.Regexp {
	return regexp.MustCompile(`\bpython[0-9.]*\s(?:-\w+\s+)*["']?(?:\./)?([\w./-]+\.py)\b`)
}

// readForm is the reading of a variable of GPUs: by a shell, a Makefile, Python, C, a workflow, an option of click.
func readForm() *regexp.Regexp {
	return regexp.MustCompile(`(?:\$[{(]?|environ(?:\.get\(|\[)\s*["']|getenv\(\s*["']|\benv\.|envvar=["'])((?:CUDA|NVIDIA|HIP|ROCR)_[A-Z0-9_]+)`)
}

// rootOf is the nearest folder from dir upwards that git keeps; "" when there is none.
func (c *collector) rootOf(dir string) string {
	root, known := c.roots[dir]
	if known {
		return root
	}

	parent := filepath.Dir(dir)
	if has(dir, ".git") {
		root = dir
	} else if parent != dir {
		root = c.rootOf(parent)
	}

	c.roots[dir] = root

	return root
}

func has(dir string, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return err == nil
	})
}

// aside says what a project does not work on.
type aside struct {
	// A copy of another project's program, which has the name of one that is copied often, and is installed by itself.
	copied bool
	// Kept, and run no more.
	putAway bool
}

// asideOf says what a folder belongs to.
func (p *project) asideOf(dir string) aside {
	if dir == p.root || dir == filepath.Dir(dir) {
		return aside{}
	}
	found, known := p.aside[dir]
	if !known {
		found = p.asideOf(filepath.Dir(dir))
		name := copySuffix().ReplaceAllString(strings.ToLower(filepath.Base(dir)), "")
		isOthers := slices.Contains(strings.Fields(copiedOften), name)
		found.copied = found.copied || isOthers && has(dir, "setup.py", "pyproject.toml")
		found.putAway = found.putAway || putAway().MatchString(name)
		p.aside[dir] = found
	}

	return found
}

// putAway is the name of a folder of what is kept, and run no more: "archive", "src_backup", "legacy_code".
func putAway() *regexp.Regexp {
	return regexp.MustCompile(`^((code|scripts?|src)[-_])?(archived?|backup|deprecated|legacy|obsolete|old|retired)([-_](code|files|scripts|src))?s?$`)
}

// copySuffix is what an unpacked archive has behind the name of its project: a branch, a release.
func copySuffix() *regexp.Regexp { return regexp.MustCompile(`-(main|master|v?[0-9]+(\.[0-9]+)+)$`) }

// runsWorkflows reports whether GitHub runs the workflows of a folder: those at the root of a repository.
func (p *project) runsWorkflows(dir string) bool {
	return filepath.Dir(filepath.Dir(dir)) == p.root || !has(p.root, ".git")
}

// copiedOften are programs whose whole source stands in repositories of other people.
const copiedOften = "accelerate alpaca_eval apex colossalai deepspeed detectron2 diffusers fairseq fastchat flash-attention flash_attn " +
	"gpt-neox llama-factory llama_factory llava lm-evaluation-harness lm_eval megatron-deepspeed megatron-lm mmcv mmdet3d mmdetection mmdetection3d mmsegmentation " +
	"nemo open_clip openrlhf peft pytorch-lightning pytorch-image-models ray segment-anything sglang transformers trl verl vllm xformers"

// before reports whether the project of a folder asks for a PyTorch that is older than a release: the folder, the nearest one
// above that says something, or else the newest of all its folders.
func (p *project) before(dir, release string) bool {
	asked := p.torchOf(dir)
	if asked == "" {
		asked = p.newestTorch()
	}
	return asked != "" && compat.Compare(asked, release) < 0
}

// newestTorch is the newest release that a folder asks for in which a file was linted; "" for none.
func (p *project) newestTorch() string {
	if p.newest == nil {
		newest := ""
		for dir := range p.folders {
			newest = newerRelease(newest, p.torchOf(dir))
		}
		p.newest = &newest
	}
	return *p.newest
}

// torchOf is the release of PyTorch that is asked for in a folder, or in the nearest one above it that asks for one; "" when the project
// does not say. Where files ask for several it is the oldest of them: with that one, too, the program is to run.
func (p *project) torchOf(dir string) string {
	asked, known := p.torch[dir]
	if known {
		return asked
	}

	// Where it cannot be read, nothing is known.
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if !e.Type().IsRegular() || !asksForPackages().MatchString(e.Name()) {
			continue
		}

		text, err := files.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			continue
		}

		one := torchIn(string(text.Content))
		if strings.HasPrefix(strings.ToLower(e.Name()), "readme") {
			one = newerRelease(one, torchInProse(string(text.Content)))
		}
		if one != "" && (asked == "" || compat.Compare(one, asked) < 0) {
			asked = one
		}
	}

	if asked == "" && dir != p.root && dir != filepath.Dir(dir) {
		asked = p.torchOf(filepath.Dir(dir))
	}

	p.torch[dir] = asked

	return asked
}

// asksForPackages matches the names of files that say what a project needs.
func asksForPackages() *regexp.Regexp {
	return regexp.MustCompile(`(?i)^(.*requirements?.*\.(txt|in)|environment.*\.ya?ml|conda.*\.ya?ml|setup\.(py|cfg)|pyproject\.toml|pipfile(\.lock)?|poetry\.lock|.*dockerfile.*|containerfile|readme.*|install.*\.(md|rst|txt|sh)|setup.*\.sh)$`)
}

// newerRelease is the newer of two releases, either of which may be "" for none.
func newerRelease(a, b string) string {
	if a == "" || b != "" && compat.Compare(b, a) > 0 {
		return b
	}
	return a
}

// torchInProse is the newest release of PyTorch that a page names: "PyTorch 1.7.1", "PyTorch (>= 1.8)", "pytorch 1.10+", "torch 1.9.1".
func torchInProse(text string) (newest string) {
	for _, m := range regexp.MustCompile(`(?i)\b(?:py)?torch[*_`+"`"+`]*(?:\s+version)?\s*[(:]?\s*(?:[>=≥]+\s*)?v?([0-9]+\.[0-9]+(?:\.[0-9]+)?)`).FindAllStringSubmatch(text, -1) {
		release := m[1]
		if year, _, _ := strings.Cut(release, "."); len(year) == 2 {
			// NVIDIA's images have the months of their releases: 24.05.
			release = torchOfMonth(release)
		}
		newest = newerRelease(newest, release)
	}
	return newest
}

// torchIn is the newest release of PyTorch that a text asks for, where it asks for none newer: "==1.13.1", "<2.1",
// "pytorch=1.7", the image pytorch/pytorch:1.9.0 or NVIDIA's of a month. Of ">=1.8" it is 1.8: who promises to run with that
// needs the names that it knows.
func torchIn(text string) (newest string) {
	take := func(release string) { newest = newerRelease(newest, release) }

	for _, m := range regexp.MustCompile(`(?i)(?:^|[^\w./-])(?:py)?torch["']?\s*(?:>=?\s*[0-9.]+\s*,\s*)?(===?|=|<=|<|~=|>=)\s*["']?v?([0-9]+\.[0-9]+(?:\.[0-9]+)?)`).FindAllStringSubmatch(text, -1) {
		release := m[2]
		if m[1] == "<" {
			release = lastBefore(release)
		}
		take(release)
	}

	for _, m := range regexp.MustCompile(`(?m)^\s*["']?torch["']?\s*[=:]\s*(?:\{[^}]*version["']?\s*[=:]\s*)?["'](===?|<=?|>=|~=?|\^)\s*([0-9]+\.[0-9]+(?:\.[0-9]+)?)`).FindAllStringSubmatch(text, -1) {
		// Of Pipfile, Poetry and their locks.
		release := m[2]
		switch m[1] {
		case "<":
			release = lastBefore(release)
		case "^":
			release = fmt.Sprintf("%d.999", compat.LeadingNumbers(release)[0])
		}
		take(release)
	}

	for _, m := range regexp.MustCompile(`(?m)^name = "torch"\nversion = "([0-9]+\.[0-9]+(?:\.[0-9]+)?)`).FindAllStringSubmatch(text, -1) {
		take(m[1])
	}

	for _, m := range regexp.MustCompile(`pytorch/pytorch:([0-9]+\.[0-9]+(?:\.[0-9]+)?)`).FindAllStringSubmatch(text, -1) {
		take(m[1])
	}

	for _, m := range regexp.MustCompile(`nvcr\.io/nvidia/[a-z]+:([0-9]{2}\.[0-9]{2})`).FindAllStringSubmatch(text, -1) {
		take(torchOfMonth(m[1]))
	}

	// 1.12.1 is the last of the channel pytorch that needs cudatoolkit, and 1.13.1 the last for Python 3.7
	// (pytorch.org, "Previous PyTorch Versions").
	if regexp.MustCompile(`(?m)\binstall\b.*\bpytorch\b.*\bcudatoolkit\b|\binstall\b.*\bcudatoolkit\b.*\bpytorch\b`).MatchString(text) && !strings.Contains(text, "conda-forge") {
		take("1.12.1")
	}
	if regexp.MustCompile(`\bpython\s*={1,2}\s*(?:2|3\.[0-7](?:\D|$))`).MatchString(text) {
		take("1.13.1")
	}

	return newest
}

// lastBefore is a release below one that is excluded: 2.3.999 of 2.4, 1.999 of 2.0.
func lastBefore(release string) string {
	n := append(compat.LeadingNumbers(release), 0)[:2]
	if n[1] > 0 {
		return fmt.Sprintf("%d.%d.999", n[0], n[1]-1)
	}
	return fmt.Sprintf("%d.999", n[0]-1)
}

// torchOfMonth is the PyTorch of NVIDIA's images of a month, as far as it matters: 23.03 is the first with the NCCL of 2.1, 23.11
// has 2.2, 24.05 has 2.4 (https://docs.nvidia.com/deeplearning/frameworks/pytorch-release-notes/). Those for other libraries have
// the same NCCL.
func torchOfMonth(month string) string {
	release := "1.14"
	for _, step := range [][2]string{{"23.03", "2.1"}, {"23.11", "2.3"}, {"24.05", "2.4"}} {
		if compat.Compare(month, step[0]) >= 0 {
			release = step[1]
		}
	}
	return release
}

// settleReader makes a remark of a name that another file of the repository reads.
func (m *LocatedFinding) settleReader() {
	name, _, _ := strings.Cut(m.Seen, " ")
	for _, reader := range m.of.readers[name] {
		if reader != m.Path {
			m.Severity, m.Seen = check.Info, name+" is a variable of this repository alone: "+filepath.Base(reader)+" reads it"
			m.Why, m.Do = "other programs do not: "+m.Why, "leave it, if that is what is meant"
			m.Instead, m.Fixable = "", false
			return
		}
	}
}

// settleStart makes a remark of a list that is written too late into a program that a script of the repository starts with one: that holds.
func (m *LocatedFinding) settleStart() {
	name, _, _ := strings.Cut(m.Seen, " ")
	i := slices.IndexFunc(m.of.starters, func(s starter) bool {
		return s.list == name && (m.Path == s.program || strings.HasSuffix(m.Path, "/"+s.program))
	})
	if i < 0 || strings.Contains(m.Seen, " is removed ") {
		return
	}
	m.Severity = check.Info
	m.Do = "leave it out: " + filepath.Base(m.of.starters[i].script) + " starts the program with a list, and that holds"
	m.Instead, m.Fixable = "", false
}

// settle takes out what holds from a release of PyTorch on that a project does not use yet, and lets one place of a
// project speak for all where a rule says so.
func (r *Report) settle() {
	once := map[string]string{}
	for _, d := range lint.Descriptions() {
		once[d.Code] = d.Once
	}

	type kind struct {
		of         *project
		code, name string
	}

	first, more, others := map[kind]int{}, map[int]int{}, map[int]bool{}
	kept := r.Findings[:0]
	for _, m := range r.Findings {
		if m.since != "" && m.of != nil && m.of.before(m.dir, m.since) {
			continue
		}

		if m.Code == "variable-misspelt" && m.of != nil && m.Severity.Bad() {
			m.settleReader()
		}
		if m.Code == "late-assignment" && m.of != nil {
			m.settleStart()
		}

		same := kind{of: m.of, code: m.Code}
		if once[m.Code] == "name" {
			same.name = m.Seen
		}

		i, met := first[same]
		if once[m.Code] != "" && met {
			more[i]++
			others[i] = others[i] || m.Seen != kept[i].Seen
			continue
		}

		first[same] = len(kept)
		kept = append(kept, m)
	}

	for i, n := range more {
		what := "; the same in "
		if others[i] {
			what = "; something like it in "
		}
		kept[i].Seen += what + prose.CountNoun(n, "further place") + " of the repository"
	}

	r.Findings = kept
}

// limitSeverities makes a remark of what is of a kind that was not right nearly always when people judged it.
func (r *Report) limitSeverities() {
	about := map[string]lint.Description{}
	for _, d := range lint.Descriptions() {
		about[d.Code] = d
	}
	for i, m := range r.Findings {
		r.Findings[i].Severity = about[m.Code].LimitSeverity(m.Severity, m.Kind)
	}
}
