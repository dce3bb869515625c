package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSetupQueue: the unit is one for systemd, it is taken away again, and lingering is said where it is not on.
func TestSetupQueue(t *testing.T) {
	t.Parallel()
	home := quietDir(t)
	state := stateFolder(t)
	gpuard := func(args ...string) runResult {
		return runCommand(t, gpuardCommand(t, state, []string{"HOME=" + home, "XDG_CONFIG_HOME=" + filepath.Join(home, ".config"), "XDG_STATE_HOME=" + filepath.Join(home, "state")}, args...))
	}
	unit := filepath.Join(home, ".config/systemd/user/gpuard-queue.service")
	if got := gpuard("setup", "queue", "--dry-run"); got.code != 0 || !strings.Contains(got.out, "gpuard-queue.service") {
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat(unit); err == nil {
		t.Error("--dry-run wrote it")
	}
	got := gpuard("setup", "queue")
	checkContains(t, got.out, "systemctl --user enable --now gpuard-queue.service", "loginctl enable-linger")
	text, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	checkContains(t, string(text), " queue --mine\n", "KillMode=process", "WantedBy=default.target")
	verifyUserUnit(t, "queue", home, "gpuard-queue")
	checkEqual(t, "remove", gpuard("setup", "queue", "--remove").code, 0)
	if _, err := os.Stat(unit); err == nil {
		t.Error("it is still there")
	}
}
