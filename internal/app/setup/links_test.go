package setup

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/edit"
	"gpuard/internal/gate"
)

// TestLinksOfOthers: what is set up goes through links of one's own, as dotfiles need, and through none of another user,
// who could choose by it which file of root gets the lines.
func TestLinksOfOthers(t *testing.T) {
	home := t.TempDir()
	s := &Setup{Host: &machine.Host{Env: []string{"HOME=" + home}}}
	at := func(name string) string { return filepath.Join(home, name) }
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(at("dotfiles"), 0o755), os.WriteFile(at("dotfiles/bashrc"), []byte("mine\n"), 0o644), os.Symlink("dotfiles/bashrc", at(".bashrc")))
	block := func(path string) ChangePlan {
		return ChangePlan{Key: "direnv " + path, Changes: []edit.Change{{Path: path, Block: "direnv", Content: "lines\n"}}}
	}
	_, err := s.Apply(block(at(".bashrc")))
	must(err)
	if text, err := os.ReadFile(at("dotfiles/bashrc")); err != nil || !strings.Contains(string(text), "lines") {
		t.Errorf("a link of one's own: %q, %v", text, err)
	}
	if !gate.Has(t, "root") {
		return
	}

	const mallory = 4003
	must(os.MkdirAll(at("bob/env/conda-meta"), 0o755), os.Chown(at("bob"), mallory, mallory), os.WriteFile(at("precious"), []byte("old\n"), 0o644), os.Mkdir(at("etc"), 0o755))
	for name, to := range map[string]string{".envrc": at("precious"), "etc": at("etc"), "linked": at("bob/env")} {
		must(os.Symlink(to, at("bob/"+name)), os.Lchown(at("bob/"+name), mallory, mallory))
	}
	for name, w := range map[string]ChangePlan{
		"the file":   block(at("bob/.envrc")),
		"its folder": block(at("bob/etc/.envrc")),
		"a new one":  {Key: "conda " + at("bob"), Changes: []edit.Change{{Path: at("bob/etc/conda/activate.d/x.sh"), Content: "lines\n"}}},
	} {
		if _, err := s.Apply(w); err == nil || !strings.Contains(err.Error(), "is a symbolic link of uid 4003, which is not followed") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (Conda{Host: s.Host, Name: at("bob/linked")}).findPrefix(); err == nil || !strings.Contains(err.Error(), "symbolic link of uid 4003") {
		t.Errorf("an environment: %v", err)
	}
	if text, err := os.ReadFile(at("precious")); err != nil || string(text) != "old\n" {
		t.Errorf("the file of root has %q, %v", text, err)
	}
	if made, err := os.ReadDir(at("etc")); err != nil || len(made) > 0 {
		t.Errorf("made there: %v, %v", made, err)
	}
}
