package layout

import (
	"go/token"
	"slices"
	"strings"
	"testing"
)

// broken is a small repository that violates one rule; want is part of what must be reported.
type broken struct {
	rule  string
	files map[string]string
	want  string // "" when the rule must stay silent
}

func brokenCases() []broken {
	gated := "package a\nimport (\n\"testing\"\n\"gpuard/internal/gate\"\n)\n"
	long := "package pick\nfunc f() {\n" + strings.Repeat("f()\n", maxFunction) + "}\n"
	airy := "package pick\nfunc f() {\n" + strings.Repeat("\n// why\n", maxWhole/2) + "}\n"
	return []broken{
		{"layers", one("internal/core/gpu/a.go", "package gpu\nimport _ \"gpuard/internal/core/job\"\n"), "internal/core/gpu may not import internal/core/job"},
		{"layers", one("internal/core/job/a.go", "package job\nimport _ \"gpuard/internal/core/gpu\"\n"), ""},
		{"layers", one("internal/ui/cli/a.go", "package cli\nimport _ \"gpuard/internal/host/store\"\n"), "internal/ui/cli may not import internal/host/store"},
		{"layers", one("internal/ui/cli/a.go", "package cli\nimport _ \"gpuard/internal/app/run\"\n"), ""},
		{"layers", one("internal/app/run/a.go", "package run\nimport _ \"gpuard/internal/ui/cli\"\n"), "internal/app/run may not import internal/ui/cli"},
		{"layers", one("internal/app/doctor/a.go", "package doctor\nimport _ \"gpuard/internal/app/leases\"\n"), "internal/app/doctor may not import internal/app/leases"},
		{"layers", one("internal/app/machine/a.go", "package machine\nimport _ \"gpuard/internal/app/claim\"\n"), "internal/app/machine may not import internal/app/claim"},
		{"layers", one("internal/host/proc/a.go", "package proc\nimport _ \"gpuard/internal/host/store\"\n"), "internal/host/proc may not import internal/host/store"},
		{"layers", one("internal/host/proc/a.go", "package proc\nimport _ \"gpuard/internal/host/sys\"\n"), ""},
		{"layers", one("internal/host/sys/a.go", "package sys\nimport _ \"gpuard/internal/core/gpu\"\n"), "internal/host/sys may not import internal/core/gpu"},
		{"layers", one("internal/text/config/a.go", "package config\nimport _ \"gpuard/internal/text/trace\"\n"), "may not import internal/text/trace"},
		{"layers", one("cmd/gpuard/main.go", "package main\nimport _ \"gpuard/internal/gate\"\n"), "internal/gate is for tests only"},
		{"layers", one("cmd/gpuard/main.go", "package main\nimport _ \"gpuard/test/fakegpu\"\n"), "cmd/gpuard may not import test/fakegpu"},
		{"layers", one("cmd/gpuard/main_test.go", "package main\nimport _ \"gpuard/internal/gate\"\n"), ""},
		{"layers", one("internal/extra/a.go", "package extra\n"), "no line in layerTable"},
		{"one reader of the hardware", map[string]string{
			"cmd/gpuard/main.go":  "package main\nimport _ \"gpuard/internal/host/nvml\"\n",
			"internal/app/run.go": "package app\nimport _ \"gpuard/internal/host/nvsmi\"\n",
		}, "more than one file reads the hardware"},
		{"views only show", one("internal/ui/cli/view_a.go", "package cli\nfunc (p *Program) a() {}\n"), "a view may not use Program"},
		{"views only show", one("internal/ui/cli/view_a.go", "package cli\nimport _ \"os\"\n"), "a view may not import os"},
		{"libraries at home", one("internal/app/a.go", "package app\nimport _ \"github.com/spf13/cobra\"\n"), "cobra lives in"},
		{"libraries at home", one("internal/host/store/a.go", "package store\nimport _ \"github.com/ebitengine/purego\"\n"), "purego lives in"},
		{"libraries at home", one("internal/host/store/a.go", "package store\nimport _ \"golang.org/x/sys/unix\"\n"), ""},
		{"libraries at home", one("internal/host/store/a_test.go", "package store\nimport _ \"example.org/unknown\"\n"), "has no home"},
		{"core is pure", one("internal/core/pick/a.go", "package pick\nimport _ \"os\"\n"), "core may not import os"},
		{"core is pure", one("internal/core/pick/a.go", "package pick\nimport _ \"log/slog\"\n"), "core may not import log/slog"},
		{"core is pure", one("internal/core/pick/a.go", "package pick\nimport _ \"sync/atomic\"\n"), "core may not import sync/atomic"},
		{"core is pure", one("internal/core/pick/a.go", "package pick\nimport \"sync\"\nfunc f() { var m sync.Mutex; m.Lock() }\n"), "core may not use sync.Mutex"},
		{"a light start", map[string]string{
			"cmd/gpuard/main.go": "package main\nimport _ \"gpuard/a\"\n", "a/a.go": "package a\nimport _ \"gpuard/b\"\n", "b/b.go": "package b\nimport _ \"net/http\"\n",
		}, "b/b.go:2: cmd/gpuard would be linked with net/http"},
		{"a light start", map[string]string{"cmd/gpuard/main.go": "package main\n", "b/b.go": "package b\nimport _ \"net/http\"\n"}, ""},
		{"leases without lint", map[string]string{
			"internal/app/claim/a.go": "package claim\nimport _ \"gpuard/internal/text/shell\"\n", "internal/text/shell/a.go": "package shell\nimport _ \"gpuard/internal/core/lint\"\n",
		}, "internal/app/claim imports core/lint, itself or through others"},
		{"leases without lint", one("internal/app/linter/a.go", "package linter\nimport _ \"gpuard/internal/core/lint\"\n"), ""},
		{"core is pure", one("internal/core/pick/a.go", "package pick\nimport clock \"time\"\nvar x = clock.Now()\n"), "core may not use clock.Now"},
		{"core is pure", one("internal/core/pick/a.go", "package pick\nimport \"time\"\nfunc f(a, b time.Time) time.Duration { return b.Sub(a) }\n"), ""},
		{"core is pure", one("internal/core/pick/a.go", "package pick\nimport \"fmt\"\nfunc f() { fmt.Println() }\n"), "core may not use fmt.Println"},
		{"core is pure", one("internal/core/pick/a.go", "package pick\nfunc f() { go f() }\n"), "core may not start goroutines"},
		{"core is pure", one("internal/core/pick/a_test.go", "package pick\nfunc f() { go f() }\n"), "core may not start goroutines"},
		{"core is pure", one("internal/core/pick/a_test.go", "package pick\nimport \"sync\"\nfunc f() { var w sync.WaitGroup; w.Go(f) }\n"), "core may not start goroutines"},
		{"core is pure", one("internal/text/cdi/a.go", "package cdi\nimport _ \"os\"\nfunc f() { go f() }\n"), "a.go:3: text may not start goroutines"},
		{"core is pure", one("internal/text/cdi/a.go", "package cdi\nimport _ \"os\"\n"), ""},
		{"core is pure", one("internal/core/pick/a_test.go", "package pick\nimport _ \"os\"\n"), ""},
		{"flags by their table", one("internal/core/pick/a.go", "package pick\nconst a = \"leave out --mem\"\n"), "a.go:2: --mem: write {mem}"},
		{"flags by their table", one("internal/core/pick/a.go", "package pick\nvar a = `see gpuard evict 1`\n"), "gpuard evict: write {gpuard evict}"},
		{"flags by their table", one("internal/core/check/a.go", "package check\nvar a = \"docker run --gpus all; gpuard demo; --member; pip --upgrade\"\n"), ""},
		{"flags by their table", one("internal/core/check/a.go", "package check\nvar a = option.Expand(\"{gpuard run} --gpus 2 -- docker --gpus\")\n"), "--gpus of a command of gpuard"},
		{"flags by their table", one("internal/core/check/a.go", "package check\nvar a = option.Expand(\"{gpuard submit} {engine} kubernetes --gone no\")\n"), "--gone of a command of gpuard"},
		{"flags by their table", one("internal/core/check/a.go", "package check\nvar a = option.Expand(\"{gpuard run} {gpus=2} -- docker --gpus; docker --device\")\n"), ""},
		{"flags by their table", one("internal/core/pick/a.go", "package pick\nvar a = option.Expand(\"leave out {memory}\")\n"), "there is no option or command {memory}"},
		{"flags by their table", one("internal/core/pick/a.go", "package pick\nvar a = option.Expand(\"{gpuard queue} and {gpuard quit}\")\n"), "there is no option or command {gpuard quit}"},
		{"flags by their table", one("internal/core/pick/a.go", "package pick\nvar a = fmt.Sprintf(\"leave out {mem=%s}\", option.Expand(\"{any}\"))\n"), "{mem=%s} is shown with its braces"},
		{"flags by their table", one("internal/core/pick/a.go", "package pick\nvar a = option.Sprintf(\"{mem=%s} {{mem}} {}\" + \"{any}\", \"\")\n"), ""},
		{"flags by their table", one("internal/core/handoff/a.go", "package handoff\nvar a = \"{mem}\"\n"), ""},
		{"flags by their table", one("internal/core/pick/a_test.go", "package pick\nvar a = \"--mem\"\n"), ""},
		{"flags by their table", one("internal/ui/cli/a.go", "package cli\nvar a = \"--mem\"\n"), ""},
		{"by descriptor", one("internal/host/store/a.go", "package store\nimport \"os\"\nfunc f() { _ = os.Chmod(\"\", 0) }\n"), "os.Chmod goes by a path"},
		{"by descriptor", one("internal/host/devicestate/a.go", "package devicestate\nimport \"golang.org/x/sys/unix\"\nfunc f() { _ = unix.Unlink(\"\") }\n"), "unix.Unlink goes by a path"},
		{"by descriptor", one("internal/host/store/a.go", "package store\nimport \"golang.org/x/sys/unix\"\nfunc f() { _ = unix.Unlinkat(0, \"\", 0) }\n"), ""},
		{"by descriptor", one("internal/app/run/a.go", "package run\nimport \"os\"\nfunc f() { _ = os.WriteFile(\"a\", nil, 0) }\n"), "os.WriteFile goes by a path"},
		{"by descriptor", one("internal/ui/cli/a.go", "package cli\nimport \"os\"\nfunc f(p string) { _, _ = os.OpenFile(p, os.O_RDONLY|os.O_CREATE, 0) }\n"), "os.OpenFile goes by a path"},
		{"by descriptor", one("internal/app/setup/a.go", "package setup\nimport \"path/filepath\"\nfunc f(p string) { _, _ = filepath.EvalSymlinks(p) }\n"), "filepath.EvalSymlinks goes by a path"},
		{"by descriptor", one("internal/ui/cli/a.go", "package cli\nimport (\"os\"; \"syscall\")\nfunc f(p string) { _, _ = os.OpenFile(p, os.O_RDONLY|syscall.O_NONBLOCK, 0) }\n"), ""},
		{"by descriptor", one("internal/app/run/a.go", "package run\nimport \"os\"\nfunc f() { _, _ = os.OpenFile(os.DevNull, os.O_RDWR, 0) }\n"), ""},
		{"by descriptor", one("internal/host/store/a_test.go", "package store\nimport \"os\"\nfunc f() { _ = os.Chmod(\"\", 0) }\n"), ""},
		{"no cgo, no dot imports", one("internal/host/nvml/a.go", "package nvml\nimport \"C\"\n"), "no cgo"},
		{"no cgo, no dot imports", one("internal/host/nvml/a.go", "package nvml\nimport . \"fmt\"\n"), "no dot imports"},
		{"one package comment", one("internal/core/pick/a.go", "package pick\n"), "0 package comments"},
		{"one package comment", map[string]string{
			"internal/core/pick/a.go": "// Package pick picks.\npackage pick\n",
			"internal/core/pick/b.go": "// Package pick picks again.\npackage pick\n",
		}, "2 package comments"},
		{"one package comment", one("internal/core/pick/a.go", "// Picks a device.\npackage pick\n"), "begins with"},
		{"one package comment", one("cmd/gpuard/main.go", "// Command gpuard leases.\npackage main\n"), ""},
		{"numbers of their own", map[string]string{"changes/unreleased/0010-a.md": "", "changes/unreleased/0010-b.md": ""}, "0010 is the number of 0010-a.md"},
		{"members that say what they are", one("internal/core/pick/a.go", "package pick\ntype a struct {\n// Of the lease.\nb int\n}\n"), "a.go:3: the comment begins with \"Of\""},
		{"members that say what they are", one("internal/core/pick/a.go", "package pick\ntype a struct {\n// Offset of the lease.\nb int\nc int // of the lease\n}\n"), ""},
		{"numbers of their own", one("docs/decisions/0001-a.md", ""), "has no row for it"},
		{"numbers of their own", map[string]string{"docs/decisions/0001-a.md": "", "docs/decisions/README.md": "| [0001](0001-a.md) | a |", "changes/unreleased/0001-b.md": ""}, ""},
		{"guards that exist", one(".ci/run", "\nguards='\ngpuard/a TestA\n'\n"), "there is no test TestA in gpuard/a"},
		{"guards that exist", one(".ci/run", "\n"), "cannot find the list"},
		{"guards that exist", map[string]string{".ci/run": "\nguards='\ngpuard/a TestA\n'\n", "a/a_test.go": "package a\n\nfunc TestA(t *testing.T) {}\n"}, ""},
		{"gates on their test", one("a/a_test.go", gated+"func TestA(t *testing.T) { t.Run(\"b\", func(t *testing.T) { gate.Need(t) }) }\n"), ""},
		{"gates on their test", one("a/a_test.go", gated+"func TestA(t *testing.T) { t.Run(\"b\", func(b *testing.T) { gate.Need(t) }) }\n"), "a/a_test.go:6: this may skip another test"},
		{"gates on their test", one("a/a_test.go", gated+"type home struct{ testing.TB }\nfunc (h home) start() { need(h) }\nfunc need(t testing.TB) { gate.Need(t) }\n"), "a/a_test.go:7: this may skip another test"},
		{"gates on their test", one("a/a_test.go", gated+"func TestA(t *testing.T) { need(t) }\nfunc need(t testing.TB) { more(t) }\nfunc more(t testing.TB) { gate.Need(t) }\n"), ""},
		{"gates on their test", map[string]string{
			"b/b.go":      gated + "func New(t testing.TB) { gate.Need(t) }\n",
			"a/a_test.go": "package a\nimport (\n\"testing\"\n\"gpuard/b\"\n)\nfunc TestA(t *testing.T) { home := struct{ t *testing.T }{t}; t.Run(\"b\", func(t *testing.T) { b.New(home.t) }) }\n",
		}, "a/a_test.go:6: this may skip another test"},
		{"file sizes", one("internal/core/pick/a.go", "package pick\n"+strings.Repeat("\n", maxFile)), "at most 500"},
		{"file sizes", one("internal/core/pick/a_test.go", "package pick\n"+strings.Repeat("\n", maxTestFile)), "at most 800"},
		{"file sizes", one("internal/core/pick/a_test.go", "package pick\n"+strings.Repeat("\n", maxFile)), ""},
		{"file sizes", one("test/fakegpu/c/a.c", strings.Repeat("\n", maxFile+1)), "at most 500"},
		{"file sizes", one("internal/text/a/a.py", strings.Repeat("\n", maxFile+1)), "at most 500"},
		{"function sizes", one("internal/core/pick/a.go", long), "func f has 62 lines of code in 62"},
		{"function sizes", one("internal/core/pick/a.go", airy), "func f has 2 lines of code in 82"},
		{"function sizes", one("internal/core/pick/a.go", strings.ReplaceAll(long, "f()\nf()\nf()\n", "f()\n\n// why\n")), ""},
		{"function sizes", one("internal/core/pick/a_test.go", long), ""},
		{"few exported names", one("internal/core/pick/a.go", "package pick\n"+strings.Repeat("type A struct{}\n", maxExported+1)), "26 exported names"},
		{"few exported names", one("internal/core/pick/a.go", "package pick\nconst (\n"+strings.Repeat("A = 1\n", 40)+")\n"), ""},
		{"few exported names", one("internal/core/pick/a.go", "package pick\n"+strings.Repeat("const (\nA = 1\n)\n", maxExported+1)), "26 exported names"},
		{"few exported names", one("internal/core/pick/a.go", "package pick\n"+strings.Repeat("const (\nA T = 1\n)\n", maxExported+1)), ""},
		{"small rooms", one("internal/ui/cli/a.go", "package cli\ntype A int\n"+strings.Repeat("func (a *A) b() {}\n", maxMethods+1)), "26 methods of A"},
		{"small rooms", one("internal/app/run/a.go", "package run\ntype A int\n"+strings.Repeat("func (a *A) b() {}\n", maxMethods+1)), ""},
		{"small rooms", map[string]string{"internal/ui/cli/a.go": "package cli\n" + strings.Repeat("var _ = 1\n", maxPackage/2), "internal/ui/cli/b.go": "package cli\n" + strings.Repeat("var _ = 1\n", maxPackage/2)}, "3002 lines of code"},
		{"no init", one("internal/core/pick/a.go", "package pick\nfunc init() {}\n"), "no init()"},
		{"no mutable package variables", one("internal/core/pick/a.go", "package pick\nvar x int\nfunc f() { x++ }\n"), "package variable x is changed"},
		{"no mutable package variables", map[string]string{
			"internal/core/pick/a.go": "package pick\nvar table = map[string]int{}\n",
			"internal/core/pick/b.go": "package pick\nfunc f() { table[\"a\"] = 1 }\n",
		}, "b.go:2: package variable table is changed"},
		{"no mutable package variables", one("internal/core/pick/a.go", "package pick\nvar x []int\nfunc f() { x = append(x, 1) }\n"), "package variable x is changed"},
		{"no mutable package variables", one("internal/core/pick/a.go", "package pick\nvar x int\nfunc f() *int { return &x }\n"), "package variable x is changed"},
		{"no mutable package variables", one("internal/core/pick/a.go", "package pick\nvar x = map[int]int{}\nfunc f() { delete(x, 1) }\n"), "package variable x is changed"},
		{"no mutable package variables", one("internal/core/pick/a.go", "package pick\nimport \"sync\"\nvar mu sync.Mutex\n"), "sync.Mutex is hidden state"},
		{"no mutable package variables", one("internal/core/pick/a.go", "package pick\nvar x = 1\nfunc f() int { x := 2; x++; return x }\n"), ""},
		{"no mutable package variables", one("internal/core/pick/a.go", "package pick\nimport \"errors\"\nvar errGone = errors.New(\"gone\")\nfunc f() error { return errGone }\n"), ""},
		{"names that say something", one("internal/core/util/a.go", "package util\n"), "named after what it does"},
		{"names that say something", one("internal/core/pick/a.go", "package pick\nfunc GetPlan() {}\n"), "without Get"},
		{"names that say something", one("internal/core/pick/a.go", "package pick\nfunc Getenv() {}\n"), ""},
		{"names of packages stand once", map[string]string{"internal/core/sweep/a.go": "package sweep\n", "internal/app/sweep/a.go": "package sweep\n"}, "the name sweep stands for another package"},
		{"names of packages stand once", one("cmd/gpuard/a.go", "package main\nimport core \"gpuard/internal/core/queue\"\n"), "queue is imported as core"},
		{"names of packages stand once", one("cmd/gpuard/a.go", "package main\nimport apprun \"gpuard/internal/app/run\"\n"), ""},
		{"words that do not belong here", one("docs/a.md", "see /wo"+"rk/main\n"), "docs/a.md:1"},
		{"links that lead somewhere", one("a.md", "see [b](b.md)\n"), "a.md:1: the link b.md leads nowhere"},
		{"links that lead somewhere", map[string]string{"d/a.md": "# A\n\n[b](../b.md#bb)\n", "b.md": "# B\n"}, "d/a.md:3: the link ../b.md#bb leads nowhere"},
		{"links that lead somewhere", map[string]string{"d/a.md": "# A\n[b](../b.md#b-c), [d](../d), [self](#a), [out](https://x)\n", "b.md": "# `B` c\n"}, ""},
		{"translations in step", translation("# 甲\n[英文](a.md)\n\n## 乙\n```sh\ngpuard run  # 注\n```\n- [c](c)\n"), ""},
		{"translations in step", translation("# 甲\n[英文](a.md)\n\n### 乙\n```sh\ngpuard run  # 注\n```\n- [c](c)\n"), "a.md:4: a heading of level 2\n  and a.zh-CN.md:4: a heading of level 3"},
		{"translations in step", translation("# 甲\n[英文](a.md)\n\n## 乙\n```sh\ngpuard hold  # 注\n```\n- [c](c)\n"), "a.zh-CN.md:6: the line gpuard hold"},
		{"translations in step", translation("# 甲\n[英文](a.md)\n\n## 乙\n```sh\ngpuard run  # 注\n```\n- [c](d)\n"), "a.zh-CN.md:8: a link to d"},
		{"translations in step", translation("# 甲\n[英文](a.md)\n\n## 乙\n```sh\ngpuard run  # 注\n```\n- [c](c)\n\n另\n"), "a.md: nothing more\n  and a.zh-CN.md:10: one more paragraph"},
		{"translations in step", translation("# 甲\n英文\n\n## 乙\n```sh\ngpuard run  # 注\n```\n- [c](c) [a](a.md)\n"), "a.zh-CN.md: the first line below the title has no link to a.md"},
		{"translations in step", one("a.zh-CN.md", ""), "there is no a.md"},
		{"translations in step", one("README.md", "# A\n"), "there is no README.zh-CN.md"},
		{"pages that are found", map[string]string{"docs/README.md": everyNeed() + "[a](a.md)", "docs/a.md": "[c](c.md)", "docs/b.md": "", "docs/c.md": ""}, "docs/b.md: no link leads here"},
		{"pages that are found", one("docs/README.md", ""), "no link to docs/how-to/waiting.md"},
		{"pages that are found", map[string]string{"docs/README.md": everyNeed() + "[a](a.md)", "docs/a.md": "[c](c.md)", "docs/c.md": ""}, ""},
		{"the architecture is whole", map[string]string{"docs/explanation/architecture.md": "core: gpu", "internal/core/gpu/a.go": "package gpu", "internal/host/proc/a.go": "package proc"}, "it does not name internal/host/proc"},
		{"every requirement is explained", map[string]string{
			"go.mod": "require (\n\tgithub.com/a/b v1.2.3\n\tgithub.com/c/d v1.0.0 // indirect\n)\n", "docs/dependencies.md": "nothing\n",
		}, "no row for github.com/a/b"},
		{"every requirement is explained", map[string]string{
			"go.mod": "require github.com/a/b v1.2.3\n", "docs/dependencies.md": "| github.com/a/b | v1.2.2 | what for |\n",
		}, `is "v1.2.2" there`},
		{"every requirement is explained", map[string]string{
			"go.mod": "require github.com/a/b v1.2.3\n", "docs/dependencies.md": "| github.com/a/b | v1.2.3 | what for |\n",
		}, ""},
	}
}

// translation is a page with its translation.
func translation(text string) map[string]string {
	return map[string]string{"a.md": "# A\n[Chinese](a.zh-CN.md)\n\n## B\n```sh\ngpuard run  # note\n```\n- [c](c)\n", "a.zh-CN.md": text}
}

// everyNeed is a map of the documents that has them all.
func everyNeed() string {
	var b strings.Builder
	for _, n := range needs() {
		b.WriteString("[x](../" + n.page + ")\n")
	}
	return b.String()
}

func one(name, text string) map[string]string { return map[string]string{name: text} }

// TestRulesCanFail shows each rule its violation: a check that cannot fail protects nothing.
func TestRulesCanFail(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range brokenCases() {
		i := slices.IndexFunc(rules(), func(r rule) bool { return r.name == c.rule })
		if i < 0 {
			t.Fatalf("cannot find the rule %q", c.rule)
		}
		bad := rules()[i].check(treeOf(t, c.files))
		switch {
		case c.want == "" && len(bad) > 0:
			t.Errorf("%s reports what is allowed: %v\nin %v", c.rule, bad, c.files)
		case c.want != "" && !slices.ContainsFunc(bad, func(line string) bool { return strings.Contains(line, c.want) }):
			t.Errorf("%s does not report %q, only %v\nin %v", c.rule, c.want, bad, c.files)
		}
		seen[c.rule] = seen[c.rule] || c.want != ""
	}
	for _, r := range rules() {
		if !seen[r.name] {
			t.Errorf("rule %q has no case that breaks it", r.name)
		}
	}
}

func treeOf(t *testing.T, files map[string]string) tree {
	t.Helper()
	var repo tree
	fset := token.NewFileSet()
	for name, text := range files {
		s, err := newSource(fset, name, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		repo = append(repo, s)
	}
	slices.SortFunc(repo, func(a, b *source) int { return strings.Compare(a.path, b.path) })
	return repo
}
