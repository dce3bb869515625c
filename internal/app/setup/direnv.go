package setup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"gpuard/internal/app/exit"
	"gpuard/internal/core/edit"
	"gpuard/internal/core/shellquote"
	"gpuard/internal/host/files"
)

// Direnv is a choice of devices for a folder, in its .envrc. It cannot be a lease: direnv evaluates the file in a shell
// that ends immediately (direnv/direnv: man/direnv.1.md).
type Direnv struct {
	Setup *Setup
	// "" is the current one.
	Folder string
	Flags  []string // of gpuard env
}

// keyAndFolder is what the setup is remembered by.
func (d Direnv) keyAndFolder() (key, folder string, err error) {
	folder, err = filepath.Abs(d.Folder)
	if err != nil {
		return "", "", fmt.Errorf("cannot find the current folder: %w", err)
	}
	return "direnv " + folder, folder, nil
}

// Key is what the setup is remembered by.
func (d Direnv) Key() (string, error) {
	key, _, err := d.keyAndFolder()
	return key, err
}

// Wish is the block in .envrc.
func (d Direnv) Wish() (ChangePlan, error) {
	key, folder, err := d.keyAndFolder()
	if err != nil {
		return ChangePlan{}, err
	}
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return ChangePlan{}, &exit.Usage{Text: fmt.Sprintf("cannot set up %s for direnv: it is no folder", folder)}
	}
	if len(d.Flags) == 0 {
		return ChangePlan{}, &exit.Usage{Text: "cannot set up direnv without a choice, because what is free now may not be later: write --device 0, --model '*A100*', --cpu, …"}
	}

	program, err := ProgramPath()
	if err != nil {
		return ChangePlan{}, err
	}

	// If the choice fails, or gpuard is gone, the folder sees no GPU instead of all of them. Other users may use the
	// file too, with gpuard at another path.
	set, unset := hidingVars()
	lines := fmt.Sprintf(`_gpuard="$(command -v %s || echo gpuard)"
if _gpuard="$("$_gpuard" %s)"; then
  eval "$_gpuard"
else
  echo 'gpuard: this folder sees NO GPU; what .envrc exports below this block counts' >&2
  export %s
  unset %s
fi
`, shellquote.Sh(program), shellquote.JoinQuoted(shellquote.Sh, append([]string{"env"}, d.Flags...)...), shellquote.JoinQuoted(shellquote.Sh, set...), strings.Join(unset, " "))

	notes := []string{"direnv cannot keep a lease; start what needs one by gpuard run"}
	if _, err := (GitHub{Folder: folder}).repositoryRoot(); err == nil {
		notes = append(notes, "who gets .envrc by git and has no gpuard sees no GPU in this folder, and is told so")
	}

	return ChangePlan{
		Key:     key,
		Changes: []edit.Change{{Path: filepath.Join(folder, ".envrc"), Block: "direnv", Content: lines}},
		Try:     []string{"direnv allow " + shellquote.Sh(folder), "cd " + shellquote.Sh(folder), "gpuard explain"},
		Notes:   append(notes, d.missingNotes()...),
	}, nil
}

// missingNotes says what keeps direnv from working here (direnv/direnv: docs/hook.md).
func (d Direnv) missingNotes() []string {
	if _, err := exec.LookPath("direnv"); err != nil {
		return []string{"direnv is not installed here, or not on PATH: https://direnv.net/docs/installation.html"}
	}

	name, err := d.Setup.NameShell("")
	if err != nil {
		return nil
	}

	read, hook := d.Setup.rcFiles(name), `eval "$(direnv hook `+name+`)"`
	if name == "fish" {
		hook = "direnv hook fish | source"

		// Of a package.
		vendor, _ := filepath.Glob("/usr/share/fish/vendor_conf.d/*direnv*.fish")
		read = append(read, vendor...)
	}

	if len(read) == 0 {
		return nil
	}

	for _, path := range read {
		if text, err := files.ReadFile(path); err == nil && strings.Contains(string(text.Content), "direnv") {
			return nil
		}
	}

	return []string{"direnv does nothing before your shell calls it; put this into " + read[0] + ": " + hook}
}
