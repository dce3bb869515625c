package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gpuard/internal/host/affinity"
)

// makeNUMARoot is a machine with two NUMA nodes, of one of our processors each; there is one that is both where we have
// only one.
func makeNUMARoot(t *testing.T) (root string, cpus [2]string) {
	t.Helper()
	allowed, err := affinity.AllowedCPUs()
	if err != nil {
		t.Fatal(err)
	}
	root = t.TempDir()
	for n, cpu := range []int{allowed[0], allowed[len(allowed)-1]} {
		cpus[n] = strconv.Itoa(cpu)
		dir := filepath.Join(root, fmt.Sprint("sys/devices/system/node/node", n))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "cpulist"), []byte(cpus[n]+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root, cpus
}

// rankAffinityScript is a script: what a rank says of its processors and its memory, by rank in the folder NEAR.
const rankAffinityScript = `grep -h -e ^Cpus_allowed_list: -e ' stack ' /proc/self/status /proc/self/numa_maps >"$NEAR/$RANK"`

// readRankAffinity reads one of those. Memory policies cannot be seen everywhere.
func readRankAffinity(t *testing.T, dir string, rank int) (cpus, memory string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, strconv.Itoa(rank)))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if strings.HasPrefix(line, "Cpus_allowed_list:") {
			cpus = fields[1]
		} else {
			memory = fields[1]
		}
	}
	return cpus, memory
}

// TestRankNodes: a rank has the processors and the memory near its device, with any launcher. The demo machine's last
// GPU is on node 1, its first one on node 0.
func TestRankNodes(t *testing.T) {
	t.Parallel()
	root, cpus := makeNUMARoot(t)
	memory := ""
	_ = affinity.CallBound(nil, 0, func() error {
		text, err := exec.Command("grep", " stack ", "/proc/self/numa_maps").Output()
		if fields := strings.Fields(string(text)); len(fields) > 1 {
			memory = fields[1]
		}
		return err
	})
	for name, flags := range map[string][]string{
		"gpuard":   {"--ranks", "--", "sh", "-c"},
		"torchrun": {"--torchrun", "--", "--no-python", "sh", "-c"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write := exec.Command("sh", "-c", `cat >"$0" && chmod 700 "$0"`, filepath.Join(dir, "torchrun"))
			write.Stdin = strings.NewReader(torchrunScript)
			if out, err := write.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			cmd := gpuardCommand(t, stateFolder(t), []string{"AMDBOX=" + root, "NEAR=" + dir, "SEEN=" + dir, "PATH=" + dir + ":" + os.Getenv("PATH")},
				append(append([]string{"run", "--machine", "demo", "--device", "3,0"}, flags...), rankAffinityScript+"; :")...)
			cmd.Args[0] = "amdbox"
			if got := runCommand(t, cmd); got.code != 0 {
				t.Fatalf("%+v", got)
			}
			for rank, node := range []int{1, 0} {
				got, policy := readRankAffinity(t, dir, rank)
				checkEqual(t, fmt.Sprintf("processors of rank %d", rank), got, cpus[node])
				if node == 0 { // it is the one that every computer has
					checkEqual(t, "memory", policy, memory)
				}
			}
		})
	}
}

// TestRankStopped: a stopped rank gets the SIGTERM too, and the time to act on it.
func TestRankStopped(t *testing.T) {
	t.Parallel()
	c := startRanks(t, stateFolder(t), 2, "-q --machine demo --gpus 2 --ranks --grace 40s", nil)
	ranks := c.waitForReports()
	if err := unix.Kill(ranks[0].PID, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "it stands still", func() bool {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", ranks[0].PID))
		return strings.Contains(string(stat), ") T ")
	})
	if err := unix.Kill(ranks[1].PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = c.cmd.Wait()
	checkEqual(t, "the stopped one got", c.signalsOf(0), "SIGTERM ")
}
