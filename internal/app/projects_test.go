package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/gate"
)

// TestProjectsInAFolderOfAnotherUser: who owns the folder above could put another project in the place of the caller's, and its
// commands would be started.
func TestProjectsInAFolderOfAnotherUser(t *testing.T) {
	gate.Need(t, "root")
	const mallory = 4003
	own := filepath.Join(t.TempDir(), "state")
	a := &App{Env: []string{"GPUARD_STATE=" + own}}
	if _, err := a.Projects(false); err != nil {
		t.Errorf("where there is none yet: %v", err)
	}
	if _, err := a.Projects(true); err != nil {
		t.Errorf("in a folder of one's own: %v", err)
	}
	if err := os.Chown(own, mallory, mallory); err != nil {
		t.Fatal(err)
	}
	for _, create := range []bool{false, true} {
		if _, err := a.Projects(create); err == nil || !strings.HasPrefix(err.Error(), "cannot keep projects in GPUARD_STATE="+own+": "+own+" belongs to uid 4003") {
			t.Errorf("%v", err)
		}
	}
}
