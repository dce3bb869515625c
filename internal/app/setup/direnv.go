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
	Setup  *Setup
	Folder string   // "" is the current one
	Flags  []string // of gpuard env
}

// key is what the setup is remembered by.
func (d Direnv) key() (key, folder string, err error) {
	folder, err = filepath.Abs(d.Folder)
	if err != nil {
		return "", "", fmt.Errorf("cannot find the current folder: %w", err)
	}
	return "direnv " + folder, folder, nil
}

// Key is what the setup is remembered by.
func (d Direnv) Key() (string, error) {
	key, _, err := d.key()
	return key, err
}

// Wish is the block in .envrc.
func (d Direnv) Wish() (Wish, error) {
	key, folder, err := d.key()
	if err != nil {
		return Wish{}, err
	}
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return Wish{}, &exit.Usage{Text: fmt.Sprintf("cannot set up %s for direnv: it is no folder", folder)}
	}
	if len(d.Flags) == 0 {
		return Wish{}, &exit.Usage{Text: "cannot set up direnv without a choice, because what is free now may not be later: write --device 0, --model '*A100*', --cpu, …"}
	}
	program, err := Program()
	if err != nil {
		return Wish{}, err
	}
	// If the choice fails, or gpuard is gone, the folder sees no GPU instead of all of them. Other users may use the
	// file too, with gpuard at another path.
	set, unset := hide()
	lines := fmt.Sprintf(`_gpuard="$(command -v %s || echo gpuard)"
if _gpuard="$("$_gpuard" %s)"; then
  eval "$_gpuard"
else
  echo 'gpuard: this folder sees NO GPU; what .envrc exports below this block counts' >&2
  export %s
  unset %s
fi
`, shellquote.Sh(program), shellquote.Words(shellquote.Sh, append([]string{"env"}, d.Flags...)...), shellquote.Words(shellquote.Sh, set...), strings.Join(unset, " "))
	notes := []string{"direnv cannot keep a lease; start what needs one by gpuard run"}
	if _, err := (GitHub{Folder: folder}).root(); err == nil {
		notes = append(notes, "who gets .envrc by git and has no gpuard sees no GPU in this folder, and is told so")
	}
	return Wish{
		Key:     key,
		Changes: []edit.Change{{Path: filepath.Join(folder, ".envrc"), Block: "direnv", Content: lines}},
		Try:     []string{"direnv allow " + shellquote.Sh(folder), "cd " + shellquote.Sh(folder), "gpuard explain"},
		Notes:   append(notes, d.missing()...),
	}, nil
}

// missing says what keeps direnv from working here (direnv/direnv: docs/hook.md).
func (d Direnv) missing() []string {
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
		vendor, _ := filepath.Glob("/usr/share/fish/vendor_conf.d/*direnv*.fish") // of a package
		read = append(read, vendor...)
	}
	if len(read) == 0 {
		return nil
	}
	for _, path := range read {
		if text, err := files.Read(path); err == nil && strings.Contains(string(text.Content), "direnv") {
			return nil
		}
	}
	return []string{"direnv does nothing before your shell calls it; put this into " + read[0] + ": " + hook}
}
