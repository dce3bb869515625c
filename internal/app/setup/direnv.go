package setup

import (
	"fmt"
	"os"
	"path/filepath"

	"gpuard/internal/app"
	"gpuard/internal/core/edit"
	"gpuard/internal/core/quote"
)

// Direnv is a choice of devices for a folder, in its .envrc. A lease cannot be had there: direnv evaluates the file in a
// shell that ends at once (direnv/direnv: man/direnv.1.md).
type Direnv struct {
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
		return Wish{}, &app.Usage{Text: fmt.Sprintf("cannot set up %s for direnv: it is no folder", folder)}
	}
	program, err := Program()
	if err != nil {
		return Wish{}, err
	}
	line := fmt.Sprintf("eval \"$(%s)\"\n", quote.Words(quote.Sh, append([]string{program, "env"}, d.Flags...)...))
	return Wish{
		Key:     key,
		Changes: []edit.Change{{Path: filepath.Join(folder, ".envrc"), Block: "direnv", Content: line}},
		Try:     []string{"direnv allow " + quote.Sh(folder), "cd " + quote.Sh(folder), "gpuard explain"},
		Notes:   []string{"direnv cannot keep a lease; start what needs one by gpuard run"},
	}, nil
}
