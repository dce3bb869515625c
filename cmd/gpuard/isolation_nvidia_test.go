package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/gate"
	"gpuard/test/executable"
)

// runOnLabRoot is the program on the machine with the files of the folder LABBOX.
func runOnLabRoot() { os.Exit(start(os.Getenv("LABBOX"), machine.Times{})) }

// envChanges are what programs do to their variables before they start another. After those that are true libcuda shows all GPUs of the
// lease, and after no change one of others.
func envChanges(other gpu.UUID) map[string]bool {
	return map[string]bool{
		"env":                         true,
		"env -u CUDA_VISIBLE_DEVICES": true,
		"env -u CUDA_VISIBLE_DEVICES -u CUDA_DEVICE_ORDER":                                  true,
		"env -u CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER=FASTEST_FIRST":                       true,
		"env -u CUDA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES=all GPUARD_GPUS= GPUARD_LEASE=": true,
		"env CUDA_VISIBLE_DEVICES=0,1,2,3":                                                  true,
		"env CUDA_VISIBLE_DEVICES=0":                                                        false,
		"env CUDA_VISIBLE_DEVICES=3":                                                        false,
		"env CUDA_VISIBLE_DEVICES=" + string(other):                                         false,
	}
}

// eachIsolationLevel are the levels, and who starts the job.
func eachIsolationLevel(t *testing.T, test func(t *testing.T, level string, uid uint32)) {
	t.Helper()
	for _, level := range levels() {
		for _, uid := range []uint32{0, aliceUID} {
			t.Run(fmt.Sprintf("%s, user %d", level, uid), func(t *testing.T) { test(t, level, uid) })
		}
	}
}

// isolatedCommand is a run of a script behind a wall, over the lab's device files.
func (l *nvidiaMachine) isolatedCommand(t *testing.T, uid uint32, script string, flags ...string) *exec.Cmd {
	t.Helper()
	return behindWall(t, l.Root(), l.Env(), uid, script, flags...)
}

// behindWall is a run of a script behind a wall, over the device files below root.
func behindWall(t *testing.T, root string, env []string, uid uint32, script string, flags ...string) *exec.Cmd {
	t.Helper()
	state := stateFolder(t)
	for dir := root; len(dir) > len(os.TempDir()); dir = filepath.Dir(dir) {
		_ = os.Chmod(dir, 0o755) //nolint:gosec // for the other user; what is not ours is open
	}
	file := filepath.Join(root, "script")
	executable.Write(t, file, []byte("#!/bin/sh\n"+script))
	parent := filepath.Dir(state)
	err := os.Chmod(parent, 0o777) //nolint:gosec // for the other user's lease
	if err == nil {
		err = os.Chmod(filepath.Dir(parent), 0o755) //nolint:gosec // likewise
	}
	if err != nil {
		t.Fatal(err)
	}
	words := []string{file}
	byRoot := uid != 0 && slices.Contains(flags, "cgroup") // who alone builds that wall
	if byRoot {
		id := strconv.Itoa(int(uid))
		words = []string{"setpriv", "--reuid", id, "--regid", id, "--clear-groups", file}
	}
	cmd := gpuardCommand(t, state, append(env, "LABBOX="+root), slices.Concat([]string{"run", "-q", "--anyway"}, flags, []string{"--"}, words)...)
	if uid != 0 && !byRoot {
		cmd = asUser(uid, cmd)
	}
	cmd.Args[0] = "labbox"
	return cmd
}

var uuidPattern = regexp.MustCompile(`(GPU|MIG)-[0-9a-f-]{36}`)

// TestWallNVIDIA: behind each wall NVIDIA's libcuda and libnvidia-ml show the GPUs of the lease, and no other, whatever the program
// does to its variables. What the kernel does with the device files is real.
func TestWallNVIDIA(t *testing.T) {
	gate.Need(t, "root", "isolation")
	eachNVIDIALibrary(t, "idle", func(t *testing.T, l *nvidiaMachine) {
		l.MakeNodes()
		ids := []gpu.UUID{l.Machine.Devices[1].UUID, l.Machine.Devices[3].UUID}
		want := envChanges(l.Machine.Devices[0].UUID)
		script := "echo \"$CUDA_VISIBLE_DEVICES\"\n"
		for change := range want {
			script += fmt.Sprintf("echo \"%s: $(%[1]s %s)\"\n", change, strings.Join(l.Own(), " "))
		}
		script += "echo LIBNVIDIA-ML; env -u CUDA_VISIBLE_DEVICES -u GPUARD_LEASE labbox status --json | grep '\"uuid\"'\n" // through libnvidia-ml
		eachIsolationLevel(t, func(t *testing.T, level string, uid uint32) {
			got := runCommand(t, l.isolatedCommand(t, uid, script, "--isolate", level, "--device", "1,3"))
			mask, rest, _ := strings.Cut(got.out, "\n")
			checkEqual(t, "mask: "+got.err, mask, fmt.Sprintf("%s,%s", ids[0], ids[1]))
			for change, all := range want {
				_, after, found := strings.Cut(rest, change+": ")
				line, _, _ := strings.Cut(after, "\n")
				if !found {
					t.Fatalf("no answer after %q:\n%s%s", change, got.out, got.err)
				}
				code, shown := l.ParseShown(line)
				if all {
					checkEqual(t, change, []any{code, shown}, []any{0, ids})
				}
				for _, id := range shown {
					if !slices.Contains(ids, id) {
						t.Errorf("%s: libcuda shows %s", change, id)
					}
				}
			}
			_, listed, _ := strings.Cut(rest, "LIBNVIDIA-ML")
			checkEqual(t, "libnvidia-ml: "+listed+got.err, uuidPattern.FindAllString(listed, -1), []string{string(ids[0]), string(ids[1])})
		})
	})
}

// TestWallNVIDIASlices: a job with a slice of a GPU in MIG mode is shown no other slice of it, whatever it sets.
func TestWallNVIDIASlices(t *testing.T) {
	gate.Need(t, "root", "isolation")
	eachNVIDIALibrary(t, "mig", func(t *testing.T, l *nvidiaMachine) {
		if !strings.HasPrefix(l.Library.Version, "525") && !strings.HasPrefix(l.Library.Version, "535") {
			t.Skip("the pretended driver does not know yet what this library asks about MIG")
		}
		l.MakeNodes()
		slices := l.Machine.Devices[0].MIG
		ask := strings.Join(l.Own(), " ")
		script := ask + "\nenv -u CUDA_VISIBLE_DEVICES " + ask + "\nenv CUDA_VISIBLE_DEVICES=" + string(slices[1].UUID) + " " + ask + "\n"
		eachIsolationLevel(t, func(t *testing.T, level string, uid uint32) {
			got := runCommand(t, l.isolatedCommand(t, uid, script, "--isolate", level, "--device", string(slices[0].UUID)))
			lines := strings.Split(strings.TrimSpace(got.out), "\n")
			if len(lines) != 3 {
				t.Fatalf("%s%s", got.out, got.err)
			}
			for i, line := range lines {
				code, shown := l.ParseShown(line)
				if i < 2 {
					checkEqual(t, "libcuda", []any{code, shown}, []any{0, []gpu.UUID{slices[0].UUID}})
				}
				for _, id := range shown {
					if id != slices[0].UUID && id != l.Machine.Devices[0].UUID {
						t.Errorf("libcuda shows %s", id)
					}
				}
			}
		})
	})
}
