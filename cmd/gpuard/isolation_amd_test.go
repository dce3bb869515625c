package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/gate"
	"gpuard/test/amd"
)

// TestWallAMD: behind a namespace, and behind a device filter, AMD's ROCr, HIP and OpenCL show the GPUs of the lease, in its order, and no other, whatever the program
// does to its variables; gpuard itself reads them alone there. What the kernel does with the device files is real.
func TestWallAMD(t *testing.T) {
	gate.Need(t, "root", "isolation")
	t.Parallel()
	for _, library := range amd.Libraries(t) {
		for name, devices := range map[string]string{"instinct4": "3,1", "order": "2,0", "integrated": "2,1", "partitions": "2,1,0"} {
			if name == "partitions" && library.IsBefore(6, 0) { // which knows no MI300
				continue
			}
			t.Run(library.Version+" "+name, func(t *testing.T) {
				t.Parallel()
				root, err := os.MkdirTemp("/var/tmp", "gpuard-wall")
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = os.RemoveAll(root) })
				l := amd.NewBelow(t, root, library, name)
				l.MakeNodes()
				walledAMD(t, l, devices)
			})
		}
	}
}

func walledAMD(t *testing.T, l *amd.InventedMachine, devices string) {
	t.Helper()
	var ids []gpu.UUID
	for index := range strings.SplitSeq(devices, ",") {
		ids = append(ids, l.Machine.Devices[index[0]-'0'].UUID)
	}
	turned := slices.Clone(ids) // in the order of the machine, for all lists here are in the other
	slices.Reverse(turned)
	var other gpu.Device
	for _, d := range l.Machine.Devices {
		if !slices.Contains(ids, d.UUID) {
			other = d
		}
	}
	want := map[string][]gpu.UUID{ // nil: only that nothing else is shown
		"env":                                ids,
		"env -u ROCR_VISIBLE_DEVICES":        turned,
		"env ROCR_VISIBLE_DEVICES=0,1,2,3,4": turned,
		"env -u ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES=0,1,2,3,4 GPUARD_LEASE=": turned,
		"env ROCR_VISIBLE_DEVICES=3":                                                  nil,
		"env ROCR_VISIBLE_DEVICES=" + string(other.UUID):                              nil,
		"env -u ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES=2 CUDA_VISIBLE_DEVICES=2":    nil,
		"env -u ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES=" + string(other.UUID) + ",": nil,
	}
	runtimes := []amd.Runtime{amd.HSA, amd.HIP}
	if l.Library.HasLibrary("libamdocl64.so") {
		runtimes = append(runtimes, amd.OpenCL)
	}
	script := ""
	for change := range want {
		for _, runtime := range runtimes {
			script += fmt.Sprintf("echo \"%s: %s: $(%[1]s %[3]s)\"\n", change, runtime, strings.Join(l.Own(runtime), " "))
		}
	}
	script += "env -u ROCR_VISIBLE_DEVICES -u GPUARD_LEASE labbox status --json | grep '\"uuid\"' >&2\n"
	for i := range 2 * len(levels()) {
		level, uid := levels()[i/2], []uint32{0, aliceUID}[i%2]
		if level == "landlock" || level == "cgroup" && devices != "3,1" {
			continue
		}
		got := runCommand(t, behindWall(t, l.Root(), l.Env(), uid, script, "--isolate", level, "--device", devices))
		for change, devices := range want {
			for _, runtime := range runtimes {
				_, after, found := strings.Cut("\n"+got.out, fmt.Sprintf("\n%s: %s: ", change, runtime))
				line, _, _ := strings.Cut(after, "\n")
				if !found {
					t.Fatalf("no answer after %q:\n%s%s", change, got.out, got.err)
				}
				shown := l.Shown(line)
				if devices != nil {
					checkEqual(t, fmt.Sprintf("%s, user %d, %s shows after %s", level, uid, runtime, change), shown, devices)
				}
				if slices.ContainsFunc(shown, func(id gpu.UUID) bool { return !slices.Contains(ids, id) }) {
					t.Errorf("%s, user %d: after %s %s shows %s", level, uid, change, runtime, shown)
				}
			}
		}
		checkEqual(t, "gpuard behind "+level+": "+got.err, strings.Count(got.err, `"uuid"`), len(ids))
	}
	got := runCommand(t, behindWall(t, l.Root(), l.Env(), 0, "echo begun", "--isolate", "landlock", "--device", devices))
	checkEqual(t, "landlock: "+got.out, got.code, 122)
	checkContains(t, got.err, "by landlock: ROCm finds no GPU at all", "write --isolate namespace")
}
