package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/gate"
	"gpuard/test/pages"
)

// typedLines are the lines of a how-to that type something into a shell, each of them for itself.
func typedLines(blocks []pages.Block) (lines []string) {
	first := regexp.MustCompile(`^(sudo )?(gpuard|go|eval|source|export|nohup)\b`)
	for _, b := range blocks {
		if b.Kind != pages.Code || !slices.Contains([]string{"indented", "sh", "bash", "zsh", "fish"}, b.Info) {
			continue
		}
		for _, line := range commandsIn(b.Lines()) {
			// "gpuard: …" and "gpuard.yaml" are what is printed, not what is typed.
			if line = strings.TrimPrefix(line, "$ "); first.MatchString(line) && !regexp.MustCompile(`^gpuard[:.-]`).MatchString(line) {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// howToSetup is what a line of a how-to takes for granted.
type howToSetup struct {
	pattern string // of the line
	before  string // typed first
	skip    string // why the line is not typed
}

// howToSetups are written out; a pattern that no line has is an error.
func howToSetups() []howToSetup {
	const (
		// The command of the lease is sleep only after gpuard has become it.
		job         = "gpuard run -q -- sleep 300 & job=$!; sleeping=$job; for n in $(seq 600); do tr '\\0' ' ' </proc/$job/cmdline | grep -q ^sleep && break; sleep 0.05; done"
		project     = "printf 'services:\\n  node:\\n    each: gpu\\n    command: sleep 300\\n' >gpuard.yaml; trap 'gpuard down --now >/dev/null 2>&1' EXIT"
		kernel      = `export JUPYTER_DATA_DIR="$PWD/jupyter"; mkdir -p jupyter/kernels/python3; echo '{"argv": ["python3", "{connection_file}"]}' >jupyter/kernels/python3/kernel.json`
		unit        = `export SYSTEMD_UNIT_PATH="$PWD/units"; mkdir -p units; printf '[Service]\nExecStart=/bin/sleep 1\n' | tee units/ollama.service >units/tts@.service; printf '#!/bin/sh\n' >serve.sh; chmod +x serve.sh`
		entry       = `export XDG_DATA_DIRS="$PWD/share"; mkdir -p share/applications; printf '[Desktop Entry]\nType=Application\nName=X\nExec=x %%U\n' | tee share/applications/mtools.desktop >share/applications/org.blender.Blender.desktop`
		script      = "mkdir jobs; echo 'export CUDA_VISIBLE_DEVICES=0-3' | tee jobs/train.sh >train.sh"
		train       = "printf 'services:\\n  train:\\n    image: train:1\\n    command: python train.py\\n' >gpuard.yaml"
		cluster     = `mkdir -p slurm; export PATH="$PWD/slurm:$PATH"; printf '#!/bin/sh\necho 1234\n' >slurm/sbatch; printf '#!/bin/sh\necho "all|all*|up|infinite|1"\n' >slurm/sinfo; printf '#!/bin/sh\necho ClusterName = c\necho GresTypes = gpu\necho NodeName=n1 State=IDLE Gres=gpu:4 GresUsed=gpu:1\n' >slurm/scontrol; chmod +x slurm/*; `
		environment = `mkdir -p envs/train/conda-meta; export CONDA_PREFIX="$PWD/envs/train"; printf 'name: train\n' >environment.yml`
	)
	return []howToSetup{
		{pattern: `\b(4242|4711|k3f9)\b`, before: job},
		{pattern: `submit --after 1`, before: "gpuard submit -q -- true"},
		{pattern: `gpuard reserve`, before: `trap 'gpuard release "$(gpuard status --json | grep -o "\"id\": \"[a-z0-9]*" | cut -d \" -f4)" >/dev/null' EXIT`},
		{pattern: `gpuard reserve .*--pid 4242`, before: "sleep 300 & job=$!; sleeping=$job"},
		{pattern: `gpuard export slurm`, before: `sbatch() { cat >/dev/null; }; ` + train},
		{pattern: `gpuard (doctor|submit) --engine slurm`, before: cluster + train},
		{pattern: `^gpuard submit -f`, before: train},
		{pattern: `gpuard export kubernetes`, before: `kubectl() { cat >/dev/null; }; ` + train},
		{pattern: `gpuard doctor --engine kubernetes`, before: kubectlReplayScript("survey.jsonl")},
		{pattern: `gpuard submit --engine kubernetes`, before: kubectlReplayScript("submit.jsonl") + "; " + train},
		{pattern: `gpuard (wait|logs -f) 1( |$)`, before: "gpuard submit -q -- true"},
		{pattern: `^gpuard simulate`, before: "gpuard submit -q -- sleep 0.1; gpuard wait 1"},
		{pattern: `gpuard cancel 3$`, before: "for i in 1 2 3; do gpuard submit -q --hold -- true; done"},
		{pattern: `sweep --resume`, before: "gpuard sweep --over seed=1..2 -- true"},
		{pattern: `gpuard lint`, before: script},
		{pattern: `gpuard setup conda`, before: environment},
		{pattern: `gpuard setup conda train$`, before: environment + `; echo '{"env_vars": {"GPUARD_CONDA": "--lease"}}' >envs/train/conda-meta/state`},
		{pattern: `gpuard setup jupyter`, before: kernel},
		{pattern: `gpuard setup systemd`, before: unit},
		{pattern: `gpuard setup desktop`, before: entry},
		{pattern: `gpuard up -d`, before: project},
		{pattern: `gpuard (ps|restart|down)\b`, before: project + "; gpuard up -d"},
		{pattern: `gpuard (up|logs -f node) +#`, skip: "stays until Ctrl-C: TestExamples and the tests of services do that"},
		{pattern: `fakegpu|/tmp/gpuard`, skip: "needs a C compiler: test/fakegpu does that"},
		{pattern: `setup direnv .*\btrain\b`, before: "mkdir train"},
		{pattern: `setup shell`, before: "export SHELL=/bin/bash"},
		{pattern: `setup github`, before: "mkdir .git"},
		{pattern: `gpuard (docker|podman)`, skip: "needs an engine: TestPodman and TestDocker do that"},
		{pattern: `^gpuard top`, skip: "needs a terminal: TestTop does that"},
		{pattern: `^gpuard serve`, skip: "stays until Ctrl-C: TestServe does that"},
		{pattern: `compare .*--load`, before: "printf 'services:\\n  llm:\\n    command: sleep 300\\n  image:\\n    command: sleep 300\\n' >gpuard.yaml; printf '#!/bin/sh\\n' >clients.sh; chmod +x clients.sh"},
		{pattern: `compare .*--chart`, skip: "needs gpuard-view: TestCompareChart does that"},
		{pattern: `history .*--chart`, skip: "needs gpuard-view: TestHistoryChart does that"},
		{pattern: `--isolate cgroup`, skip: "needs root and device files: TestWallByFilter does that"},
		{pattern: `git diff`, skip: "in a repository of the reader"},
	}
}

// kubectlReplayScript is a shell whose kubectl answers from a recording.
func kubectlReplayScript(recording string) string {
	path, _ := filepath.Abs(filepath.Join(clusterRecordings, recording))
	return fmt.Sprintf(`export GPUARD_KUBECTL_RECORDING=%q GPUARD_KUBECTL_CALLS="$PWD/calls"`, path)
}

// TestHowTo types what the how-to pages show, each line in a shell of its own.
func TestHowTo(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "docs", "how-to", "*.md"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d pages: %v", len(files), err)
	}
	used := map[string]bool{}
	for _, file := range files {
		name := filepath.Base(file)
		if strings.HasSuffix(name, ".zh-CN.md") {
			continue // its lines are those of the page in English: the test of the layout compares them
		}
		text, blocks := readPage(t, filepath.Join("docs", "how-to", name))
		t.Run(name, func(t *testing.T) { // what it shows after a command
			p := pageRun{T: t, name: "docs/how-to/" + name, folder: makePageFolder(t), lines: strings.Split(text, "\n")}
			for _, b := range blocks {
				if b.Kind == pages.Code && b.Info == "console" {
					p.checkConsoleBlock(b)
				}
			}
		})
		for _, line := range typedLines(blocks) {
			s := shellSession{shell: "bash", columns: 80, said: map[string]string{"4242": "$job", "4711": "$job",
				"k3f9": `"$(gpuard status --json | sed -n 's/.*"id": "\([a-z0-9]*\)".*/\1/p' | head -n 1)"`}}
			skip := ""
			for _, x := range howToSetups() {
				if regexp.MustCompile(x.pattern).MatchString(line) {
					used[x.pattern], s.before, skip = true, x.before, x.skip
				}
			}
			if skip != "" {
				continue
			}
			t.Run(name+" "+line, func(t *testing.T) {
				t.Parallel()
				for _, other := range []string{"zsh", "fish"} {
					if strings.Contains(line, "completion "+other) {
						gate.Need(t, other)
						s.shell = other
					}
				}
				if strings.Contains(line, "bwrap ") {
					gate.Need(t, "bwrap")
				}
				if strings.Contains(line, "gpuard setup ") { // whatever it would write belongs to the tests of setup
					line = regexp.MustCompile(`gpuard setup \S+`).ReplaceAllString(line, "$0 --dry-run")
				}
				checkExit(t, line, s.runCommands(t, makePageFolder(t), []string{line})[0])
			})
		}
	}
	for _, s := range howToSetups() {
		if !used[s.pattern] {
			t.Errorf("no line of a how-to has %q any more", s.pattern)
		}
	}
}
