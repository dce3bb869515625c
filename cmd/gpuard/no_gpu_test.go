package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/gate"
	"gpuard/test/hosts"
)

// makePCIRoot is a root whose PCI bus has one display controller of this vendor.
func makePCIRoot(t *testing.T, vendor string) string {
	t.Helper()
	const card = "sys/bus/pci/devices/0000:01:00.0/"
	return hosts.WriteRoot(t, map[string]string{card + "class": "0x030000\n", card + "vendor": vendor + "\n", card + "device": "0x2330\n"})
}

// TestNoGPU: one script serves for machines with and without GPUs, and a machine without a card is not told to install
// a driver.
func TestNoGPU(t *testing.T) {
	t.Parallel()
	if gate.Has(t, "gpu") {
		t.Skip("this machine has a driver")
	}
	work := t.TempDir()
	project := "services:\n  web:\n    command: sleep 600\n    cpu: true\n  tool:\n    command: sleep 600\n    fallback: [cpu]\n"
	if err := os.WriteFile(filepath.Join(work, "gpuard.yaml"), []byte(project), 0o644); err != nil {
		t.Fatal(err)
	}
	state, bare := stateFolder(t), makePCIRoot(t, "0x1234")
	ask := func(root string, args ...string) runResult {
		cmd := gpuardCommand(t, state, []string{"SITE=" + root}, args...)
		cmd.Args[0], cmd.Dir = "hasty", work
		return runCommand(t, cmd)
	}
	const none, show = "this machine has none of NVIDIA or AMD", "echo [$CUDA_VISIBLE_DEVICES]"
	for _, test := range []struct {
		args string
		code int
		out  string
	}{
		{"run -- true", 125, ""},
		{"status", 1, "No GPU"},
		{"run -q --fallback cpu -- sh -c", 0, "[-1]"},
		{"run --fallback other,cpu --device 3 -- sh -c", 0, "[-1]"},
		{"run --dry-run --fallback cpu -- true", 0, "fall back to the CPU"},
		{"sweep -q --fallback cpu --over a=1..3 -- sh -c", 0, ""},
		{"up -d", 0, ""},
	} {
		args := strings.Fields(test.args)
		if args[len(args)-1] == "-c" {
			args = append(args, show)
		}
		got := ask(bare, args...)
		said := strings.Join(strings.Fields(got.out+got.err), " ")
		if got.code != test.code || !strings.Contains(got.out, test.out) || strings.Contains(said, "install") {
			t.Errorf("%s: exit %d, %s", test.args, got.code, said)
		}
		if args[0] != "up" && !strings.Contains(said, none) {
			t.Errorf("%s does not say why: %s", test.args, said)
		}
		if advised := strings.Contains(said, "--cpu"); advised != (args[0] == "run" && got.code != 0) {
			t.Errorf("%s advises --cpu: %v: %s", test.args, advised, said)
		}
	}
	logs, _ := filepath.Glob(filepath.Join(work, "gpuard-sweep-1/runs/*/log"))
	checkEqual(t, "runs of the sweep", len(logs), 3)
	for _, log := range logs {
		text, _ := os.ReadFile(log)
		checkEqual(t, "what a run sees", string(text), "[-1]\n")
	}
	checkContains(t, ask(bare, "ps").out, "web", "tool", "no GPU")
	checkEqual(t, "exit of down", ask(bare, "down").code, 0)
	want := "load it: sudo modprobe nvidia"
	if gate.Has(t, "no nvidia libraries") {
		want = "install NVIDIA's driver"
	}
	checkContains(t, ask(makePCIRoot(t, "0x10de"), "run", "--", "true").err, want)
}
