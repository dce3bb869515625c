package setup

import (
	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"

	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"gpuard/internal/core/edit"
	"gpuard/internal/core/shellquote"
)

//go:embed github.yml
var workflowText string

// GitHub is a workflow that runs one command without a GPU and with one.
type GitHub struct {
	Host *machine.Host
	// A folder in the repository; "" is the current one.
	Folder  string
	Command []string
}

// parentFolders are that one and those above it.
func (g GitHub) parentFolders() (list []string, err error) {
	dir, err := filepath.Abs(g.Folder)
	if err != nil {
		return nil, fmt.Errorf("cannot find the current folder: %w", err)
	}

	for list = []string{dir}; dir != filepath.Dir(dir); list = append(list, dir) {
		dir = filepath.Dir(dir)
	}

	return list, nil
}

// repositoryRoot is the repository's.
func (g GitHub) repositoryRoot() (string, error) {
	folders, err := g.parentFolders()
	for _, dir := range folders {
		// A folder, or the file of a worktree.
		_, err := os.Lstat(filepath.Join(dir, ".git"))
		if err == nil {
			return dir, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("cannot look for the repository: %w", err)
		}
	}
	if err != nil {
		return "", err
	}

	return "", &exit.Usage{Text: fmt.Sprintf("cannot set up a workflow in %s: it is in no repository of git; go to one, or type git init", folders[0])}
}

// Key is what the setup is remembered by, also where the repository is none any more.
func (g GitHub) Key() (string, error) {
	root, err := g.repositoryRoot()
	if err == nil {
		return "github " + root, nil
	}

	keys, _ := (&Setup{Host: g.Host}).Keys()
	folders, _ := g.parentFolders()
	for _, dir := range folders {
		if slices.Contains(keys, "github "+dir) {
			return "github " + dir, nil
		}
	}

	return "", err
}

// Wish is the file of the workflow.
func (g GitHub) Wish() (ChangePlan, error) {
	root, err := g.repositoryRoot()
	if err != nil {
		return ChangePlan{}, err
	}
	if len(g.Command) > 0 && g.Command[0] == "" {
		return ChangePlan{}, &exit.Usage{Text: "cannot put \"\" into a workflow: say which command it runs, such as gpuard setup github -- pytest"}
	}

	for _, word := range g.Command {
		if strings.Contains(word, "${{") {
			return ChangePlan{}, &exit.Usage{Text: fmt.Sprintf("cannot put %q into a workflow: GitHub would replace ${{ in it; put the command into a script, and name that", word)}
		}
		if strings.ContainsFunc(word, unicode.IsControl) || strings.ToValidUTF8(word, "") != word {
			return ChangePlan{}, &exit.Usage{Text: fmt.Sprintf("cannot put %q into a workflow: it is more than a line of text; put the command into a script, and name that", word)}
		}
	}

	name := filepath.Join(".github", "workflows", "gpuard.yml")
	text := strings.ReplaceAll(workflowText, "@COMMAND@", shellquote.JoinQuoted(shellquote.Sh, g.Command...))

	return ChangePlan{
		Key:     "github " + root,
		Changes: []edit.Change{{Path: filepath.Join(root, name), Content: text}},
		Try: []string{
			"gpuard run --cpu -- " + shellquote.JoinQuoted(shellquote.Sh, g.Command...),
			"git -C " + shellquote.Sh(root) + " add " + name,
			"gh variable set GPUARD_URL",
			"gh variable set GPUARD_SHA256",
		},
		Notes: []string{
			"the runner with GPUs is your own, with the labels self-hosted, linux and gpu, and with gpuard on it",
			"what the command needs is yours to add: steps before it, in that file",
		},
	}, nil
}
