package linter

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"gpuard/internal/core/launchers"
	"gpuard/internal/core/lint"
	"gpuard/internal/text/lineshell"
	"gpuard/internal/text/shell"
)

// kindByName tells the format of a file from its path; "" when the name does not say it.
func kindByName(file string) lint.Kind {
	name := strings.ToLower(path.Base(file))
	ext := path.Ext(name)
	folder := path.Base(path.Dir(file))
	switch {
	case slices.Contains([]string{".py", ".pyw"}, ext):
		return lint.Python
	case ext == ".ipynb":
		return lint.Notebook
	case slices.Contains([]string{".sh", ".bash", ".ksh", ".zsh", ".sbatch", ".slurm", ".pbs", ".lsf", ".qsub"}, ext), slices.Contains(shellFiles(), name):
		return lint.Shell
	case slices.Contains([]string{".csh", ".tcsh", ".cshrc", ".tcshrc"}, ext):
		return lint.Csh
	case ext == ".fish":
		return lint.Fish
	case slices.Contains([]string{"makefile", "gnumakefile", "bsdmakefile"}, name), ext == ".mk", ext == ".mak":
		return lint.Makefile
	case name == "crontab", ext == ".cron", ext == ".crontab", folder == "cron.d":
		return lint.Crontab
	case ext == ".conf" && (strings.Contains(name, "supervisor") || strings.Contains(path.Dir(file), "/supervisor")):
		return lint.Supervisor
	case name == "launch.json", ext == ".code-workspace":
		return lint.Launch
	case name == "kernel.json":
		return lint.Kernel
	case ext == ".md", ext == ".markdown":
		return lint.Markdown
	case slices.Contains([]string{"dockerfile", "containerfile"}, strings.TrimSuffix(name, ext)), ext == ".dockerfile", ext == ".containerfile":
		return lint.Dockerfile
	case ext == ".desktop":
		return lint.Desktop
	case ext == ".service", ext == ".container", ext == ".conf" && (strings.HasSuffix(folder, ".service.d") || strings.HasSuffix(folder, ".container.d")):
		return lint.Unit
	case ext == ".yml" || ext == ".yaml":
		return yamlKindByName(file, strings.TrimSuffix(name, ext))
	}

	return ""
}

// shellFiles are read by a shell at its start, or by direnv.
func shellFiles() []string {
	return []string{".bashrc", ".bash_profile", ".bash_login", ".bash_aliases", ".profile", ".kshrc", ".envrc", ".zshrc", ".zshenv", ".zprofile", ".zlogin"}
}

func yamlKindByName(file, stem string) lint.Kind {
	folder := path.Dir(file)
	first, _, _ := strings.Cut(stem, ".")
	switch {
	case path.Base(folder) == "workflows" && slices.Contains([]string{".github", ".gitea", ".forgejo"}, path.Base(path.Dir(folder))):
		return lint.Workflow
	case first == "compose", first == "docker-compose", strings.HasPrefix(first, "docker-compose-"), strings.HasPrefix(first, "docker-compose_"):
		return lint.Compose
	case first == "environment", strings.HasPrefix(first, "environment-"), strings.HasPrefix(first, "environment_"):
		return lint.Conda
	case stem == ".gitlab-ci", strings.HasSuffix(stem, ".gitlab-ci"):
		return lint.GitLab
	}

	return ""
}

// guessKind tells the format from the text, where the name does not say it: by its first line, or by the keys that only one
// format has at the top.
func guessKind(file string, text []byte) lint.Kind {
	if bytes.HasPrefix(text, []byte("#!")) {
		line, _, _ := bytes.Cut(text, []byte("\n"))
		return kindByInterpreter(string(line[2:]))
	}

	if isBatch(text) {
		return lint.Shell
	}

	ext := strings.ToLower(path.Ext(file))
	if ext != ".yml" && ext != ".yaml" && file != stdinPath {
		return ""
	}

	top := topKeys(text)
	has := func(names ...string) bool {
		return !slices.ContainsFunc(names, func(n string) bool { return !slices.Contains(top, n) })
	}

	switch {
	case has("services") && (bytes.Contains(text, []byte("image:")) || bytes.Contains(text, []byte("build:"))):
		return lint.Compose
	case has("dependencies", "channels"), has("name", "dependencies"):
		return lint.Conda
	case has("on", "jobs"):
		return lint.Workflow
	case has("apiVersion", "kind") && bytes.Contains(text, []byte("ontainers:")) && !bytes.Contains(text, []byte("{{")):
		// A template is no YAML yet.
		return lint.Kubernetes
	}

	return ""
}

// topKeys lists the keys of a YAML text that start at the left margin.
func topKeys(text []byte) (keys []string) {
	for line := range bytes.Lines(text) {
		key, _, found := bytes.Cut(line, []byte(":"))
		if found && len(key) > 0 && !bytes.ContainsAny(key, " \t#-{[") {
			keys = append(keys, strings.Trim(string(key), `"'`))
		}
	}
	return keys
}

// kindByInterpreter tells the format of a script from what follows "#!"; "uv run --script" is Python.
func kindByInterpreter(line string) lint.Kind {
	name := shell.InterpreterName(line)
	switch {
	case name == "uv", strings.HasPrefix(name, "python"), strings.HasPrefix(name, "pypy"):
		return lint.Python
	case launchers.IsShell(name):
		return lint.Shell
	case name == "csh", name == "tcsh":
		return lint.Csh
	case name == "fish":
		return lint.Fish
	case name == "make", name == "gmake":
		return lint.Makefile
	}
	return ""
}

// isBatch reports whether a text begins like a job of a batch system: with its options in comments, whatever starts it
// (sbatch(1), qsub(1), bsub(1)).
func isBatch(text []byte) bool {
	for line := range bytes.Lines(text[:min(len(text), firstBytes)]) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' {
			return false
		}

		for _, mark := range []string{"#SBATCH -", "#PBS -", "#BSUB -", "#$ -", "#COBALT -"} {
			if bytes.HasPrefix(line, []byte(mark)) {
				return true
			}
		}
	}
	return false
}

// readScript reads a script by the shell of its first line: a job script may be one of csh, whatever its name.
func readScript(file string, text []byte) (lint.File, error) {
	if line, _, _ := bytes.Cut(text, []byte("\n")); bytes.HasPrefix(line, []byte("#!")) {
		switch kindByInterpreter(string(line[2:])) {
		case lint.Csh:
			return lineshell.ReadCsh(file, text)
		case lint.Fish:
			return lineshell.ReadFish(file, text)
		}
	}
	return shell.ReadSteps(file, text)
}
