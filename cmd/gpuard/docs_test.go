package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/gate"
	"gpuard/internal/text/projectyaml"
	"gpuard/test/pages"
)

// expectedExit is how a command of a page ends where that is not 0.
type expectedExit struct {
	pattern string // of the command
	code    int
	why     string // pattern of what it prints
	lacks   bool   // only where the machine lacks what it is about; 0 elsewhere
}

// expectedExits are written out: what a page shows ends with 0 unless it is here.
func expectedExits() []expectedExit {
	const invented = "on an invented machine"
	return []expectedExit{
		{`gpuard run .*--(no-wait|dry-run) --gpus 3 `, 120, "ask for 2 GPUs", false},
		{`gpuard lint ([a-z]+\.sh|jobs/|\.)`, 1, "mask-range", false},
		{`gpuard lint .*>`, 1, "", false},
		{`gpuard verify `, 2, invented, false},
		{`gpuard run --verify `, 125, invented, false},
		{`gpuard evict .*4711`, 2, "it is not on this machine", false},
		{`gpuard setup `, 2, "cannot (find|set up|write) ", true}, // a unit, an environment or a kernel that is not on this machine
	}
}

// checkExit fails the test unless a command ended as it should.
func checkExit(t *testing.T, command string, got commandReply) {
	t.Helper()
	want, why := 0, ""
	for _, e := range expectedExits() {
		if !regexp.MustCompile(e.pattern).MatchString(command) || e.lacks && got.code == 0 {
			continue
		}
		want, why = e.code, e.why
		if e.lacks && got.code == 1 {
			want = 1
		}
	}
	if got.code != want || !regexp.MustCompile(why).MatchString(got.out) {
		t.Errorf("%s\nends with %d, want %d and %q:\n%s", command, got.code, want, why, got.out)
	}
}

// typedPages are those of which every block of code is run, compared or read; what their commands leave is there for
// the next block.
func typedPages(t *testing.T) []string {
	t.Helper()
	all := []string{"docs/explanation/what-your-program-sees.md"}
	for _, pattern := range []string{"README*.md", "docs/quick-start*.md", "docs/tutorial/*.md"} {
		found, err := filepath.Glob(filepath.Join("..", "..", pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("there is no %s (%v)", pattern, err)
		}
		for _, name := range found {
			all = append(all, strings.TrimPrefix(filepath.ToSlash(name), "../../"))
		}
	}
	return all
}

func readPage(t *testing.T, page string) (string, []pages.Block) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", page))
	if err != nil {
		t.Fatal(err)
	}
	return string(text), pages.Read(string(text))
}

// TestPages runs every command of the first pages, in their order, and compares the output with the page.
// GPUARD_UPDATE=1 writes the output into the page.
func TestPages(t *testing.T) {
	for _, name := range typedPages(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, blocks := readPage(t, name)
			p := pageRun{t, name, makePageFolder(t), strings.Split(text, "\n"), 0}
			for _, b := range blocks {
				if b.Kind == pages.Code {
					p.checkBlock(b)
				}
			}
			if p.commands < 8 {
				t.Errorf("%s has only %d commands", name, p.commands)
			}
			if os.Getenv("GPUARD_UPDATE") != "" {
				now := strings.Join(slices.DeleteFunc(p.lines, func(line string) bool { return line == replacedLine }), "\n")
				if err := os.WriteFile(filepath.Join("..", "..", name), []byte(now), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// replacedLine is a line of a page that has gone into another one.
const replacedLine = "\x00"

// pageRun is one that is being typed.
type pageRun struct {
	*testing.T
	name, folder string
	lines        []string // of the page; what a block shows is replaced in place
	commands     int
}

func (p *pageRun) checkBlock(b pages.Block) {
	p.Helper()
	switch b.Info {
	case "sh", "zsh", "fish":
		p.runScriptBlock(b)
	case "console":
		p.checkConsoleBlock(b)
	case "yaml":
		p.writeFileBlock(b)
	default:
		p.Errorf("%s:%d: what is a block %q? It is sh (commands), zsh or fish, console (commands after \"$ \" and what they print), or yaml with the name of a file in a comment", p.name, b.Line, b.Info)
	}
}

func (p *pageRun) newSession(shell string) shellSession {
	s := shellSession{shell: shell, columns: 80}
	if strings.Contains(p.name, "explanation") {
		s.columns = 120
	}
	return s
}

// runScriptBlock runs the commands of a block in one shell.
func (p *pageRun) runScriptBlock(b pages.Block) {
	p.Helper()
	shell := b.Info
	if shell == "sh" {
		shell = "bash"
	} else if !gate.Has(p.T, shell) {
		p.Logf("%s:%d: there is no %s", p.name, b.Line, shell)
		return
	}
	commands := commandsIn(b.Lines())
	p.commands += len(commands)
	for i, got := range p.newSession(shell).runCommands(p.T, p.folder, commands) {
		checkExit(p.T, commands[i], got)
		p.checkPromises(commands[i], got)
	}
}

// commandsIn are the commands of a block, one per line, with continued lines joined.
func commandsIn(lines []string) (all []string) {
	goesOn := false
	for _, line := range lines {
		switch {
		case goesOn:
			all[len(all)-1] += "\n" + line
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
			continue
		default:
			all = append(all, line)
		}
		goesOn = strings.HasSuffix(line, "\\")
	}
	return all
}

// checkPromises are what the text around a command says of it.
func (p *pageRun) checkPromises(command string, got commandReply) {
	p.Helper()
	seen, _ := os.ReadFile(filepath.Join(p.folder, "workers"))
	switch {
	case strings.HasPrefix(command, "go run ") && !regexp.MustCompile(`(?m)^[0-3]\n\z`).MatchString(got.out):
		p.Errorf("%s prints %q, want the number of a GPU", command, got.out)
	case strings.Contains(command, "--gpus 99") && !strings.Contains(got.out, "exit code 122"):
		p.Errorf("%s is not refused for ever: %s", command, got.out)
	case strings.Contains(command, "worker.py"):
		numbers := strings.Fields(string(seen))
		slices.Sort(numbers)
		if strings.Join(numbers, " ") != "0 1 2 3" {
			p.Errorf("four workers see %q", numbers)
		}
	}
}

// checkConsoleBlock runs the commands of a block in one shell and compares what they print with what the block shows.
func (p *pageRun) checkConsoleBlock(b pages.Block) {
	p.Helper()
	var commands, shown []string
	for _, line := range b.Lines() {
		switch command, begins := strings.CutPrefix(line, "$ "); {
		case begins:
			commands, shown = append(commands, command), append(shown, "")
		case len(shown) == 0:
			p.Fatalf("%s:%d: a block of a console begins with a command after \"$ \"", p.name, b.Line)
		default:
			shown[len(shown)-1] += line + "\n"
		}
	}
	p.commands += len(commands)
	now := ""
	for i, got := range p.newSession("bash").runCommands(p.T, p.folder, commands) {
		checkExit(p.T, commands[i], got)
		out := normalizeOutput(p.T, commands[i], got.out)
		if out != shown[i] && os.Getenv("GPUARD_UPDATE") == "" {
			p.Errorf("%s:%d is stale (GPUARD_UPDATE=1 go test ./cmd/gpuard -run TestPages writes it again)\n$ %s\nthe page:\n%s\nnow:\n%s", p.name, b.Line, commands[i], shown[i], out)
		}
		now += "$ " + commands[i] + "\n" + out
	}
	for i := range b.Lines() { // the lines of the others keep their numbers
		p.lines[b.Line-1+i] = replacedLine
	}
	p.lines[b.Line-1] = strings.TrimSuffix(now, "\n")
}

// writeFileBlock writes a file that a page shows, and reads it with its own reader.
func (p *pageRun) writeFileBlock(b pages.Block) {
	p.Helper()
	name := strings.TrimPrefix(b.Lines()[0], "# ")
	switch name {
	case "gpuard.yaml":
		if _, mistakes := projectyaml.Read([]byte(b.Text), name); len(mistakes) > 0 {
			p.Errorf("%s:%d: %v", p.name, b.Line, mistakes)
		}
	default:
		p.Errorf("%s:%d: the first line names the file, and the test has a reader for it: not %q", p.name, b.Line, name)
	}
	if err := os.WriteFile(filepath.Join(p.folder, filepath.Base(name)), []byte(b.Text), 0o644); err != nil {
		p.Fatal(err)
	}
}

// TestReadme: the two commands that README promises for a fresh machine are there. (.ci/run runs them as they are, in a
// fresh clone; TestPages tries the first.)
func TestReadme(t *testing.T) {
	_, blocks := readPage(t, "README.md")
	var lines []string
	for _, b := range blocks {
		if b.Kind == pages.Code && b.Info == "sh" {
			lines = append(lines, b.Lines()...)
		}
	}
	for _, want := range []string{`go run ./cmd/gpuard run --machine demo -- sh -c 'echo $CUDA_VISIBLE_DEVICES'`, "go test ./..."} {
		if !slices.Contains(lines, want) {
			t.Errorf("README.md lacks the command %s", want)
		}
	}
}

// TestVariables: the reference has every variable of gpuard that the code names, and no other.
func TestVariables(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "variables.md"))
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`GPUARD_[A-Z_]+`)
	ours := []string{"GPUARD_AMD", "GPUARD_CAPTURES", "GPUARD_GATES", "GPUARD_NVIDIA", "GPUARD_SKIPPED", "GPUARD_SOAK", "GPUARD_TRACES"} // for the tests of this repository
	code := slices.Clone(ours)
	err = filepath.WalkDir(filepath.Join("..", "..", "internal"), func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		code = append(code, name.FindAllString(string(text), -1)...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	told := append(name.FindAllString(string(page), -1), ours...)
	for _, list := range []*[]string{&code, &told} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	checkEqual(t, "variables in docs/reference/variables.md", strings.Join(told, " "), strings.Join(code, " "))
}
