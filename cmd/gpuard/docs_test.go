package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/gate"
	"gpuard/test/executable"
)

// commandsIn are the indented lines of a page that type something into a shell.
func commandsIn(t *testing.T, page string) (lines []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", page))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		line, indented := strings.CutPrefix(strings.TrimRight(line, "\n"), "    ")
		line = strings.TrimPrefix(line, "$ ")
		first, _, _ := strings.Cut(line, " ")
		if indented && slices.Contains([]string{"gpuard", "go", "eval", "source", "export", "nohup"}, first) {
			lines = append(lines, line)
		}
	}
	return lines
}

// stubs are the programs that the pages start. The worker waits until four of it run, and each says what it sees.
const (
	stub   = "#!/bin/sh\necho \"$CUDA_VISIBLE_DEVICES\" >>seen\n"
	worker = `#!/bin/sh
echo "$CUDA_VISIBLE_DEVICES" >>seen
[ "$1" = worker.py ] || exit 0
n=0
until [ "$(wc -l <seen)" -ge 4 ]; do
	n=$((n + 1))
	[ $n -lt 500 ] || exit 1
	sleep 0.02
done
`
)

// typed runs one line of a page in a shell on an idle invented machine, in a folder of its own.
func typed(t *testing.T, shell, line string) (result, string) {
	t.Helper()
	bin, work := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{bin + "/python": worker, bin + "/torchrun": stub, bin + "/pytest": stub, work + "/app": stub, work + "/train.sh": stub} {
		executable.Write(t, name, []byte(text))
	}
	cmd := program(t, stateFolder(t), []string{"GPUARD_MACHINE=demo", "SHELL=/bin/sh", "PATH=" + bin + ":" + os.Getenv("PATH")})
	found, err := exec.LookPath(shell)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Path, cmd.Args, cmd.Dir = found, []string{shell, "-c", line}, work
	got := run(t, cmd)
	seen, _ := os.ReadFile(filepath.Join(work, "seen"))
	return got, string(seen)
}

// TestGuide runs every command of the guide.
func TestGuide(t *testing.T) {
	lines := commandsIn(t, "docs/tutorial/first-lease.md")
	if len(lines) < 20 {
		t.Fatalf("only %d commands were found in the guide", len(lines))
	}
	for _, line := range lines {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			shell := "bash"
			for _, other := range []string{"zsh", "fish"} {
				if strings.Contains(line, "completion "+other) {
					gate.Need(t, other)
					shell = other
				}
			}
			if shell == "zsh" {
				line = "autoload -U compinit && compinit -u -D && " + line
			}
			if strings.HasSuffix(line, "&") {
				line += " wait $!" // its end counts
			}
			got, seen := typed(t, shell, line)
			if got.code != 0 {
				t.Errorf("ends with %d:\n%s%s", got.code, got.out, got.err)
			}
			if strings.Contains(line, "--gpus 99") && !strings.Contains(got.out, "exit code 122") {
				t.Errorf("is not refused for ever: %s", got.out)
			}
			if strings.Contains(line, "worker.py") {
				numbers := strings.Fields(seen)
				slices.Sort(numbers)
				if strings.Join(numbers, " ") != "0 1 2 3" {
					t.Errorf("four workers see %q", numbers)
				}
			}
		})
	}
}

// TestOtherGuides runs what the other pages show, as it stands there, but for those about a process or a lease that is not here.
func TestOtherGuides(t *testing.T) {
	for _, page := range []string{"sharing", "waiting", "supervise", "drift", "health", "leftovers", "doctor", "sweep"} {
		n := 0
		for _, line := range commandsIn(t, "docs/how-to/"+page+".md") {
			if regexp.MustCompile(`\b(4242|4711|k3f9)\b|--resume`).MatchString(line) {
				continue
			}
			n++
			t.Run(page+" "+line, func(t *testing.T) {
				t.Parallel()
				if got, _ := typed(t, "bash", line); got.code != 0 {
					t.Errorf("ends with %d:\n%s%s", got.code, got.out, got.err)
				}
			})
		}
		if n == 0 {
			t.Errorf("docs/how-to/%s.md shows no command", page)
		}
	}
}

// TestVariables: every variable of ours that the code names stands in the reference, and none that it does not.
func TestVariables(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "variables.md"))
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`GPUARD_[A-Z_]+`)
	code := []string{"GPUARD_GATES"} // for the tests of this repository
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
	told := append(name.FindAllString(string(page), -1), "GPUARD_GATES")
	for _, list := range []*[]string{&code, &told} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	same(t, "variables in docs/reference/variables.md", strings.Join(told, " "), strings.Join(code, " "))
}

// TestReadme: the two commands that it promises for a fresh machine are there, the first prints one device, and every other
// command that it shows is understood. (The acceptance run types the two as they stand, in a fresh clone.)
func TestReadme(t *testing.T) {
	lines := commandsIn(t, "README.md")
	const first = `go run ./cmd/gpuard run --machine demo -- sh -c 'echo $CUDA_VISIBLE_DEVICES'`
	if !slices.Contains(lines, first) || !slices.Contains(lines, "go test ./...") {
		t.Fatalf("README.md lacks one of its two commands: %q", lines)
	}
	got, _ := typed(t, "sh", strings.Replace(first, "go run ./cmd/gpuard", "gpuard", 1))
	if got.code != 0 || !regexp.MustCompile(`^[0-3]\n$`).MatchString(got.out) {
		t.Errorf("the first command ends with %d and prints %q\n%s", got.code, got.out, got.err)
	}
	for _, line := range lines {
		if strings.HasPrefix(line, "gpuard ") {
			if got, _ := typed(t, "sh", line); got.code != 0 {
				t.Errorf("%s: ends with %d\n%s", line, got.code, got.err)
			}
		}
	}
}
