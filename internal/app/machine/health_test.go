package machine

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/host/devicestate"
	"gpuard/internal/host/proc"
)

// TestMarksOfOthers: the owner of a folder is trusted only if the folder is the one in use. Of two marks on a device
// the later one counts.
func TestMarksOfOthers(t *testing.T) {
	run, own, me := t.TempDir(), t.TempDir(), uint32(os.Geteuid())
	theirs := filepath.Join(run, "gpuard")
	if err := os.Mkdir(theirs, 0o755); err != nil {
		t.Fatal(err)
	}
	now := time.Now().Truncate(time.Millisecond)
	write := func(path string, id gpu.UUID, reason string, at time.Time) {
		t.Helper()
		if err := devicestate.WriteMark(path, me, devicestate.DrainMark{Device: id, Drained: true, Reason: reason, Since: at}); err != nil {
			t.Fatal(err)
		}
	}
	write(own, "GPU-a", "own", now)
	write(theirs, "GPU-a", "theirs", now.Add(-time.Hour))
	write(theirs, "GPU-b", "theirs", now)
	reasons := func(state string) map[gpu.UUID]string {
		h := &Host{Env: []string{"GPUARD_STATE=" + state}, Proc: proc.New("/proc"), Run: run, Tmp: t.TempDir()}
		found, _ := h.DeviceMarks(&gpu.Machine{})
		out := map[gpu.UUID]string{}
		for id, m := range found {
			out[id] = m.Reason
		}
		return out
	}
	if me == 0 { // of root both count
		if got := reasons(own); len(got) != 2 || got["GPU-a"] != "own" || got["GPU-b"] != "theirs" {
			t.Errorf("two folders of root: %v", got)
		}
		for _, path := range []string{theirs, filepath.Join(theirs, "drained")} {
			if err := os.Chown(path, 4242, -1); err != nil {
				t.Fatal(err)
			}
		}
		files, err := filepath.Glob(filepath.Join(theirs, "drained", "*"))
		if err != nil || len(files) != 2 {
			t.Fatal(files, err)
		}
		for _, file := range files {
			if err := os.Chown(file, 4242, -1); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := reasons(own); len(got) != 1 || got["GPU-a"] != "own" {
		t.Errorf("beside the folder of another user: %v", got)
	}
	if got := reasons(theirs); got["GPU-b"] != "theirs" {
		t.Errorf("in that user's folder: %v", got)
	}
}
