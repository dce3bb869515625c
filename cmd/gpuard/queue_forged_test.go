package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/gate"
)

// TestQueueForged: links, folders and journals that one user plants give him nothing of another's queue, and nothing of
// them is run by another.
func TestQueueForged(t *testing.T) {
	t.Parallel()
	gate.Need(t, "root", "cc")
	l := newQueueFixture(t, 1)
	for _, path := range []string{filepath.Dir(filepath.Dir(l.state)), filepath.Dir(l.marks)} {
		if err := os.Chmod(path, 0o755); err != nil { //nolint:gosec // other users read it
			t.Fatal(err)
		}
	}
	if err := os.Chmod(l.marks, 0o777); err != nil { //nolint:gosec // other users write there
		t.Fatal(err)
	}
	program := l.installForAllUsers()
	checkEqual(t, "root makes the folder of the leases", l.run("run", "-q", "--", "true").code, 0)
	const ann, bob, cem = 41011, 41012, 41013
	dir := func(uid int) string { return durablePath(l.state, uid, "queue") }
	stolen := filepath.Join(l.marks, "stolen")
	got := runCommand(t, l.namespaceCommand(ann, "env", program+" submit $PRIVATE -q --cpu --hold -- touch "+filepath.Join(l.marks, "ann")))
	checkEqual(t, "ann: "+got.err, got.out, "1\n")
	kept, err := os.ReadFile(filepath.Join(dir(ann), "journal"))
	if err != nil {
		t.Fatal(err)
	}
	forged := fmt.Sprintf(`{"is":"submit","run":0,"at":"2026-01-01T00:00:00Z","job":{"name":"x","retry":{},"data":{"command":["touch",%q],"path":"/usr/bin/touch","folder":"/","env":"","umask":18,"spec":{"CPU":true},"log":""}}}`, stolen)
	bobs := func(plant string) {
		t.Helper()
		if got := runCommand(t, l.namespaceCommand(bob, "env", "umask 0; "+plant)); got.code != 0 {
			t.Fatalf("%s: %+v", plant, got)
		}
		for _, words := range []string{"queue", "cancel 1", "queue unhold 1", "queue requeue 1", "logs 1", "history --json", "submit $PRIVATE -q --cpu --hold -- true"} {
			got := runCommand(t, l.namespaceCommand(bob, "env", program+" "+words))
			if got.code == 0 || strings.Contains(got.out+got.err, "panic") || !strings.Contains(got.out+got.err, "cannot ") {
				t.Errorf("%s, then %s: %+v", plant, words, got)
			}
		}
		runCommand(t, l.namespaceCommand(bob, "env", "rm -rf "+dir(bob)))
	}
	bobs("(umask 077; mkdir -p " + filepath.Dir(dir(bob)) + ") && ln -s " + dir(ann) + " " + dir(bob))
	bobs("mkdir -m 700 " + dir(bob) + " && ln -s " + dir(ann) + "/journal " + dir(bob) + "/journal")
	for _, uid := range []int{cem} { // who has no queue yet
		if got := runCommand(t, l.namespaceCommand(bob, "env", fmt.Sprintf("umask 0; mkdir -p %s && printf '%%s\\n' '%s' >%[1]s/journal", dir(uid), forged))); got.code != 0 {
			t.Fatalf("%+v", got)
		}
		for _, words := range []string{"queue", "submit $PRIVATE -q --cpu -- true", "wait 1"} {
			if got := runCommand(t, l.namespaceCommand(uint32(uid), "env", program+" "+words)); got.code == 0 { //nolint:gosec // small
				t.Errorf("%s in a folder of another: %+v", words, got)
			}
		}
	}
	if _, err := os.Stat(stolen); err == nil {
		t.Error("a job that another user planted was run")
	}
	after, _ := os.ReadFile(filepath.Join(dir(ann), "journal"))
	checkEqual(t, "ann's journal", string(after), string(kept))
	checkEqual(t, "ann cancels her own", runCommand(t, l.namespaceCommand(ann, "env", program+" cancel 1")).code, 0)
}
