package setup

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gpuard/internal/app/exit"
	"gpuard/internal/core/edit"
	"gpuard/internal/core/policy"
	"gpuard/internal/core/shellquote"
	"gpuard/internal/host/files"
)

// The lines for each shell, which start no process before the first Tab, and the hooks for conda.
//
//go:embed rc.bash rc-prompt.bash rc.zsh rc-prompt.zsh rc-prompt.fish
//go:embed conda-activate.sh conda-deactivate.sh conda-activate.fish conda-deactivate.fish
var shellTexts embed.FS

// Shells are those that can be set up.
func Shells() []string { return []string{"bash", "zsh", "fish"} }

// Shell is completion, the lease in the prompt and the login rule for an interactive shell.
type Shell struct {
	Setup *Setup
	Name  string // one of Shells
	// The prompt shows the lease.
	Prompt bool
	// What it sees without a lease; "" as without gpuard.
	Login policy.Login
}

// Key is what the setup is remembered by.
func (s Shell) Key() (string, error) { return "shell " + s.Name, nil }

// Wish is a block in .bashrc or .zshrc; fish has files of gpuard's own.
func (s Shell) Wish() (ChangePlan, error) {
	program, err := ProgramPath()
	if err != nil {
		return ChangePlan{}, err
	}

	w := ChangePlan{Key: "shell " + s.Name, Try: []string{"exec " + s.Name, "gpuard run --cpu"}}
	if s.Name == "fish" {
		return s.fishWish(w, program)
	}

	rc, notes, err := s.rcFile()
	if err != nil {
		return ChangePlan{}, err
	}

	text := shellText("rc." + s.Name)
	if s.Prompt {
		text += shellText("rc-prompt." + s.Name)
	}

	text = strings.ReplaceAll(text, "@PROGRAM@", shellquote.Sh(program))
	if s.Login != "" {
		text += loginPosix(program, s.Login)
	}

	w.Changes, w.Notes = []edit.Change{{Path: rc, Block: "shell", Content: text}}, notes

	return w, nil
}

// rcFile is what an interactive shell reads, and what else there is to know about it.
func (s Shell) rcFile() (path string, notes []string, err error) {
	if s.Name == "zsh" {
		path, err = s.Setup.homePath("ZDOTDIR", ".", ".zshrc")
		if err != nil {
			return "", nil, err
		}
		if text, err := files.ReadFile(path); err != nil || !strings.Contains(string(text.Content), "compinit") {
			notes = append(notes, "zsh completes commands only after compinit; if Tab finds nothing, put this into "+path+": autoload -Uz compinit && compinit")
		}

		return path, notes, nil
	}

	path, err = s.Setup.homePath("", ".", ".bashrc")
	if err != nil {
		return "", nil, err
	}

	// A login shell reads the first of these, which decides whether it reads .bashrc too (bash(1), INVOCATION).
	for _, name := range []string{".bash_profile", ".bash_login", ".profile"} {
		profile := filepath.Join(filepath.Dir(path), name)
		text, err := files.ReadFile(profile)
		if err == nil && !strings.Contains(string(text.Content), "bashrc") {
			notes = append(notes, fmt.Sprintf("a login shell, as by ssh, reads %s, which does not read .bashrc; put this into it: . ~/.bashrc", profile))
		}

		if err != nil {
			continue
		}

		break
	}

	return path, notes, nil
}

// fishWish loads completions from files by itself, when they are needed.
func (s Shell) fishWish(w ChangePlan, program string) (ChangePlan, error) {
	folder, err := s.Setup.homePath("XDG_CONFIG_HOME", ".config", "fish")
	if err != nil {
		return ChangePlan{}, err
	}

	text := ""
	if s.Prompt {
		text = shellText("rc-prompt.fish")
	}

	if s.Login != "" {
		text += "status is-interactive; or status is-login; and " + loginFish(program, s.Login)
	}

	w.Changes = []edit.Change{{Path: filepath.Join(folder, "completions", "gpuard.fish"), Content: shellquote.Fish(program) + " completion fish 2>/dev/null | source\n"}}
	if text != "" {
		w.Changes = append(w.Changes, edit.Change{Path: filepath.Join(folder, "conf.d", "gpuard.fish"), Content: text})
	}

	return w, nil
}

func shellText(name string) string {
	text, err := shellTexts.ReadFile(name)
	if err != nil {
		// It is part of the program.
		panic(err)
	}
	return string(text)
}

// NameShell is the shell that was meant: the one that is named, else the login shell, as far as SHELL says.
func (s *Setup) NameShell(named string) (string, error) {
	if named == "" {
		path, _ := s.Host.Env.Lookup("SHELL")
		if path == "" {
			return "", &exit.Usage{Text: "cannot tell your login shell, because SHELL is not set: write gpuard setup shell and one of " + strings.Join(Shells(), ", ")}
		}
		named = filepath.Base(path)
	}
	for _, known := range Shells() {
		if named == known {
			return known, nil
		}
	}
	return "", &exit.Usage{Text: fmt.Sprintf("cannot set up the shell %q: write gpuard setup shell and one of %s", named, strings.Join(Shells(), ", "))}
}

// rcFiles are what an interactive shell of this name reads of a person's, the usual one first.
func (s *Setup) rcFiles(name string) []string {
	if name != "fish" {
		path, _, err := (Shell{Setup: s, Name: name}).rcFile()
		if err != nil {
			return nil
		}
		return []string{path}
	}

	folder, err := s.homePath("XDG_CONFIG_HOME", ".config", "fish")
	if err != nil {
		return nil
	}

	list := []string{filepath.Join(folder, "config.fish")}

	// Where it is not, nothing is read.
	entries, _ := os.ReadDir(filepath.Join(folder, "conf.d"))
	for _, e := range entries {
		list = append(list, filepath.Join(folder, "conf.d", e.Name()))
	}

	return list
}
