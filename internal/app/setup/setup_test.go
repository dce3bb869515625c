package setup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/core/edit"
	"gpuard/internal/host/manifest"
	"gpuard/test/apart"
)

func TestMain(m *testing.M) {
	apart.UseMemoryFolder()
	os.Exit(m.Run())
}

// TestTakenBack: if a file changes at the moment in which it is to be written, the files written before it are
// restored, and so is the record.
func TestTakenBack(t *testing.T) {
	dir := t.TempDir()
	m, err := manifest.Open(filepath.Join(dir, "state", "gpuard", "setup.json"), func() {})
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{"updated": "old\n", "inserted": "mine\n", "changed": "theirs\n"} {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	step := func(name string, action edit.Action, before, after string) edit.Step {
		return edit.Step{Change: edit.Change{Path: at(name), Content: after}, Action: action, Before: before, After: after}
	}
	m.RecordIntent("x", step("updated", edit.Update, "", "old\n"))
	err = applySteps(m, "x", []edit.Step{step("updated", edit.Update, "old\n", "new\n"), step("inserted", edit.Insert, "mine\n", "mine\nnew\n"),
		step("deep/created", edit.Create, "", "new\n"), step("changed", edit.Update, "before\n", "new\n")})
	if err == nil || !strings.Contains(err.Error(), "changed meanwhile") {
		t.Errorf("%v", err)
	}
	for name, want := range map[string]string{"updated": "old\n", "inserted": "mine\n", "changed": "theirs\n", "deep/created": ""} {
		if text, err := os.ReadFile(at(name)); string(text) != want || (want == "") != os.IsNotExist(err) {
			t.Errorf("%s says %q (%v)", name, text, err)
		}
	}
	if known := m.KnownSums(edit.Change{Path: at("updated")}); len(m.Entries) != 1 || len(known) != 1 || known[0] != edit.TextSum("old\n") {
		t.Errorf("the record says %+v", m.Entries)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(at("deep")); !os.IsNotExist(err) {
		t.Errorf("a folder that was made stays (%v)", err)
	}
}

// TestNoLongerWished: what a setup wrote before and does not wish for any more goes away, and nothing of another
// setup's.
func TestNoLongerWished(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("old\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := edit.Record{Entries: []edit.Entry{{Setup: "x", Path: file, Sums: []string{edit.TextSum("old\n")}}}}
	if steps, err := planSteps(&r, ChangePlan{Key: "x"}); err != nil || len(steps) != 1 || steps[0].Action != edit.Delete {
		t.Errorf("%+v, %v", steps, err)
	}
	if steps, err := planSteps(&r, ChangePlan{Key: "y"}); err != nil || len(steps) != 0 {
		t.Errorf("of another: %+v, %v", steps, err)
	}
	if _, err := planSteps(&r, ChangePlan{Key: "y", Changes: []edit.Change{{Path: file, Content: "new\n"}}}); err == nil || !strings.Contains(err.Error(), "it belongs to another setup, x") {
		t.Errorf("the file of another: %v", err)
	}
}
