package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/gate"
)

// namespaceCase is where a starter is: outside of namespaces, or in some that words make. One that is refused must not lease
// anything there.
type namespaceCase struct {
	words   string
	refused string // what it says
	root    bool   // only root can make it
	user    bool   // what root makes so cannot be told from the machine's
	below   bool   // the run is a child of what makes it
	gate    string
}

func namespaceCases() []namespaceCase {
	const (
		tmpfs = `sh -c 'mount -t tmpfs none "$0" && exec "$@"' $PARENT`
		bind  = `sh -c 'mount --bind "$0" "$1" && shift && exec "$@"' `
		alone = "this is a container or a private PID namespace"
	)
	return []namespaceCase{
		{words: "unshare -c"},
		{words: "unshare -r"},
		{words: "unshare -r unshare --map-user=7"},
		{words: "unshare -r --mount"},
		{words: "bwrap --die-with-parent --dev-bind / /", gate: "bwrap", below: true}, // its child waits for ever if it is killed at its start
		{words: "unshare -r --mount " + bind + "$STATE $STATE", user: true},
		{words: "unshare --time --boottime 100000 --fork --kill-child", root: true, gate: "timens", below: true},
		{words: "unshare --time --boottime 100000", root: true, gate: "timens"},
		{words: "unshare -U", refused: "no place for your user id"},
		{words: "unshare -r --mount " + tmpfs, refused: "was mounted in here by uid", user: true},
		{words: "unshare -r --pid --fork --kill-child --mount-proc", refused: alone},
		{words: "unshare --pid --fork --kill-child --mount-proc", root: true, gate: "pidns", refused: alone},
		{words: "unshare --mount", root: true},
		{words: "unshare --mount " + tmpfs, root: true, refused: "this mount namespace has another"},
		{words: "unshare --mount " + bind + "$OWN $STATE", root: true, refused: "this mount namespace has another"},
	}
}

// TestChaosInSpaces: the same on hardware, while a third of the starters are in user, mount, time and PID namespaces and
// a fourth of the runs are containers, which outlive the client that was killed; two hosts run the jobs of a user in one
// home, and processes that the driver lists for a device, but that do not use it, are to be evicted. Those that cannot see the
// others' leases lease nothing, no job runs twice, and no process of those ends.
func TestChaosInSpaces(t *testing.T) {
	gate.Need(t, "userns", "mountns")
	const spare = 4 // the device that is never free
	r := newFakeDriverMachine(t, makeA100s(spare+1)...)
	c := newChaosTest(t, r.state)
	c.spaces, c.own = true, t.TempDir()
	if err := os.Chmod(filepath.Dir(c.own), 0o755); err != nil {
		t.Fatal(err)
	}
	c.prepareMachine(func() string { return r.state }, nil, []string{fakeUUID(0), fakeUUID(1), fakeUUID(2), fakeUUID(3)}, append(r.Env(), c.installEngine(r.Env())...)...)
	b := startMisreportedProcesses(c, r, spare)
	h := newSharedHome(c)
	c.beside = append(c.beside, b.requestEvictions, h.submitJobs, h.submitJobs, h.killProcesses)
	c.enough = func() bool {
		leased, contained, refused := 0, 0, 0
		for k, n := range c.runs {
			switch {
			case strings.HasPrefix(k, "leased: a container"):
				contained += n
			case k != "leased: " && strings.HasPrefix(k, "leased: "):
				leased += n
			case strings.HasPrefix(k, "refused: "):
				refused += n
			}
		}
		return leased > 0 && contained > 0 && refused > 0 && b.hasMetReasons() && h.hasMetBothHosts()
	}
	c.runUntilMet(8)
	b.checkNoneEnded()
	h.checkAllJobs()
	c.checkNothingLeft(spare)
}
