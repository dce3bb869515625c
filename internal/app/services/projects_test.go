package services

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/app/machine"
	"gpuard/internal/gate"
)

// TestProjectsInAFolderOfAnotherUser: the owner of the parent folder could replace the caller's project, and gpuard
// would start its commands.
func TestProjectsInAFolderOfAnotherUser(t *testing.T) {
	gate.Need(t, "root")
	const mallory = 4003
	own := filepath.Join(t.TempDir(), "state")
	host := &machine.Host{Env: []string{"GPUARD_STATE=" + own}}
	if _, err := folderOfProjects(host, false); err != nil {
		t.Errorf("where there is none yet: %v", err)
	}
	if _, err := folderOfProjects(host, true); err != nil {
		t.Errorf("in a folder of one's own: %v", err)
	}
	if err := os.Chown(own, mallory, mallory); err != nil {
		t.Fatal(err)
	}
	for _, create := range []bool{false, true} {
		if _, err := folderOfProjects(host, create); err == nil || !strings.HasPrefix(err.Error(), "cannot keep projects in "+own) || !strings.Contains(err.Error(), own+" belongs to uid 4003") {
			t.Errorf("%v", err)
		}
	}
}
