package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/internal/app/leases"
)

// TestReserve: a lease without a command that ends by itself, is given back earlier, is used by its name, waits in the
// line, and is limited by the rules.
func TestReserve(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(1)...)
	config := t.TempDir()
	writeFile(t, filepath.Join(config, "gpuard", "config.yaml"), "rules:\n  - name: short\n    users: [root]\n    time: 2h\n", 0)
	reserve := func(words ...string) (a leases.HeldLease) {
		t.Helper()
		words = append([]string{"reserve", "--json"}, words...)
		if isContained() {
			words = append(words, "--private-state")
		}
		got := runCommand(t, r.cmd(words...))
		if err := json.Unmarshal([]byte(got.out), &a); err != nil {
			t.Fatalf("%v: %+v", words, got)
		}
		return a
	}
	first := reserve("--for", "1h", "--note", "figures")
	if first.Lease == "" || len(first.Devices) != 1 || first.PID == 0 || first.Until == nil {
		t.Fatalf("%+v", first)
	}
	checkContains(t, r.run("status").out, "figures", first.Lease)
	checkContains(t, r.run("status", "--json").out, `"until": "2`)
	checkEqual(t, "another", r.run("run", "--no-wait", "--", "true").code, 120)
	inside := r.cmd("run", "-q", "--", "sh", "-c", "echo $GPUARD_GPUS")
	inside.Env = append(inside.Env, "GPUARD_LEASE="+first.Lease)
	checkEqual(t, "inside", runCommand(t, inside).out, fakeUUID(0)+"\n")
	waits := r.cmd("reserve", "--for", "1s", "--json")
	if isContained() {
		waits.Args = append(waits.Args, "--private-state")
	}
	done := make(chan string, 1)
	go func() { text, _ := waits.Output(); done <- string(text) }()
	waitUntil(t, "it is in the line", func() bool { return strings.Contains(r.run("queue").out, "reserved") })
	checkEqual(t, "release", r.run("release", first.Lease).out, "released "+first.Lease+"\n")
	waitUntil(t, "what slept for it is gone", func() bool { return unix.Kill(first.PID, 0) != nil })
	checkContains(t, <-done, `"lease": "`)
	checkEqual(t, "waits until its time is over", r.run("run", "--wait=20s", "--", "true").code, 0)
	unheard := r.cmd("reserve", "--for", "1h", "--json")
	if isContained() {
		unheard.Args = append(unheard.Args, "--private-state")
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close() //nolint:errcheck // nothing fits
	if unheard.Stdout = full; unheard.Run() == nil {
		t.Error("an answer that nobody got is no error")
	}
	checkEqual(t, "a lease that nobody knows of is given back", r.run("run", "--wait=20s", "--", "true").code, 0)
	killed := reserve("--for", "1h")
	_ = unix.Kill(killed.PID, unix.SIGKILL)
	checkEqual(t, "after a kill", r.run("run", "--wait=20s", "--", "true").code, 0)
	for words, want := range map[string]string{"": "without an end", "--for soon": "90s", "--for 3h": "ask for less time (--for 2h)", "--for 1h --cpu": "no GPU to lease", "--for 1h --note=": "note"} {
		c := r.cmd(append([]string{"reserve"}, strings.Fields(words)...)...)
		c.Env = append(c.Env, "XDG_CONFIG_HOME="+config)
		got := runCommand(t, c)
		if got.code != map[bool]int{true: 122, false: 125}[words == "--for 3h" && os.Geteuid() == 0] {
			t.Errorf("%q: %+v", words, got)
		}
		checkContains(t, got.err, want)
	}
}
