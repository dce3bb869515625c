package setup

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rhysd/actionlint"
)

// TestWorkflowIsValid: the checker of workflows that people use finds nothing, whatever the command is.
func TestWorkflowIsValid(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, ".git", "deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{
		{"pytest"}, {"pytest", "-k", "it's"}, {"sh", "-c", `echo "$HOME" | grep -c '#'; : {{ }} %s`}, {"echo", ": - > | & * ! %", `\`, "", "ünï"},
	} {
		w, err := GitHub{Folder: filepath.Join(root, ".git", "deep"), Command: command}.Wish()
		if err != nil {
			t.Fatal(err)
		}
		c := w.Changes[0]
		if want := filepath.Join(root, ".github", "workflows", "gpuard.yml"); c.Path != want {
			t.Errorf("it goes to %s, want %s", c.Path, want)
		}
		if found, err := checked(t, c.Content); err != nil || len(found) > 0 {
			t.Errorf("%q: %v, %v in\n%s", command, err, found, c.Content)
		}
	}
	if found, err := checked(t, strings.Replace(workflowText, "runs-on:", "runs-at:", 1)); err != nil || len(found) == 0 {
		t.Errorf("the checker finds %v where there is a mistake: %v", found, err)
	}
}

func checked(t *testing.T, text string) ([]*actionlint.Error, error) {
	t.Helper()
	linter, err := actionlint.NewLinter(io.Discard, &actionlint.LinterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return linter.Lint("gpuard.yml", []byte(text), nil)
}

// TestWorkflowRefuses: no word of the command means something to GitHub or to YAML.
func TestWorkflowRefuses(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"${{ secrets.TOKEN }}", "a\nb", "\x1b[1m", "\xff"} {
		if w, err := (GitHub{Folder: root, Command: []string{"echo", word}}).Wish(); err == nil || !strings.Contains(err.Error(), "put the command into a script") {
			t.Errorf("%q: %v, %v", word, w, err)
		}
	}
	if _, err := (GitHub{Folder: "/", Command: []string{"true"}}).Wish(); err == nil || !strings.Contains(err.Error(), "it is in no repository of git") {
		t.Errorf("in no repository: %v", err)
	}
}
