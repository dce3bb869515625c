package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/app/explain"
	"gpuard/internal/core/gpu"
)

// TestNVIDIAProbe: what libcuda shows is what explain says, order and all.
func TestNVIDIAProbe(t *testing.T) {
	eachNVIDIALibrary(t, "a100x4", func(t *testing.T, l *nvidiaMachine) {
		if strings.HasPrefix(l.Library.Version, "470") {
			t.Skip("the pretended driver does not know yet how this library asks for the address of a GPU")
		}
		one, shortened := string(l.Machine.Devices[2].UUID), 1
		if strings.HasPrefix(l.Library.Version, "570") {
			shortened = 0 // it reads on behind the comma
		}
		for value, count := range map[string]int{"2,0": 2, "": 0, " 1": 1, "0x1,3": 2, "4294967297": 1, one[:12] + ",0": shortened, strings.ToUpper(one): 0, "GPU-" + strings.ToUpper(one[4:]): 1, "9,0": 0} {
			got := runCommand(t, l.cmd("explain", "--probe", "--json", "CUDA_VISIBLE_DEVICES="+value))
			var said struct{ Probe explain.Probe }
			if err := json.Unmarshal([]byte(got.out), &said); err != nil || got.code != 0 {
				t.Fatalf("%q: %d, %v\n%s%s", value, got.code, err, got.out, got.err)
			}
			p := said.Probe
			checkEqual(t, fmt.Sprintf("%q: %s", value, p.Differences), []any{p.Agrees, len(p.Devices), p.Driver}, []any{true, count, l.Library.Version})
			variables := slices.Clone(p.Variables)
			checkEqual(t, "variables, each once", slices.Compact(slices.Sorted(slices.Values(variables))), p.Variables)
		}
	})
}

// TestNVIDIAVerify: a job is where its lease is, or it is called wrong. What it has open and what the driver lists prove it.
func TestNVIDIAVerify(t *testing.T) {
	eachNVIDIALibrary(t, "idle", func(t *testing.T, l *nvidiaMachine) {
		right := l.startJobWithOpenGPU(2, "--device", "2")
		wrong := l.startJobWithOpenGPU(3, "--device", "0")
		l.AddGPULine(2, "process "+right+" 3000 C")
		l.AddGPULine(3, "process "+wrong+" 3000 C")
		got := runCommand(t, l.cmd("verify", right))
		checkEqual(t, "the right GPU: "+got.out+got.err, got.code, 0)
		checkContains(t, got.out, "is on GPU 2", string(l.Machine.Devices[2].UUID))
		got = runCommand(t, l.cmd("verify", wrong))
		checkEqual(t, "another one: "+got.out+got.err, got.code, 1)
		checkContains(t, got.out, "outside the lease", "GPU 3")
	})
}

// startJobWithOpenGPU starts a job that has a GPU open, and returns its number.
func (l *nvidiaMachine) startJobWithOpenGPU(on int, args ...string) (pid string) {
	l.t.Helper()
	cmd := l.cmd(slices.Concat([]string{"run", "--no-wait", "-q"}, args, []string{"--", "sh", "-c", `exec 3<"$0"; echo $$; read end`, l.DeviceFile(on)})...)
	input, err := cmd.StdinPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	pid = startToFirstLine(l.t, cmd)
	l.t.Cleanup(func() { _ = input.Close() })
	return pid
}

// TestNVIDIAGrows: a job that takes more than its share is ended, and one that keeps to it is not.
func TestNVIDIAGrows(t *testing.T) {
	eachNVIDIALibrary(t, "idle", func(t *testing.T, l *nvidiaMachine) {
		greedy := l.startJobWithOpenGPU(0, "--share", "8G", "--device", "0", "--require-quota", "watch")
		modest := l.startJobWithOpenGPU(1, "--share", "8G", "--device", "1", "--require-quota", "watch")
		l.AddGPULine(0, "process "+greedy+" 6000 C\nused 6500")
		l.AddGPULine(1, "process "+modest+" 6000 C\nused 6500")
		waitUntil(t, "both are seen", func() bool {
			s := l.readStatus()
			return len(s.Devices[0].Processes) == 1 && len(s.Devices[1].Processes) == 1
		})
		l.AddGPULine(0, "process "+greedy+" 12000 C\nused 12500")
		waitUntil(t, "it is ended", func() bool { _, err := os.Stat("/proc/" + greedy + "/fd/3"); return err != nil })
		_, err := os.Stat("/proc/" + modest + "/fd/3")
		checkEqual(t, "the other one lives", err, nil)
	})
}

// TestNVIDIAQueueAndServices: a job of the queue and a service are shown the devices of their leases.
func TestNVIDIAQueueAndServices(t *testing.T) {
	eachNVIDIALibrary(t, "idle", func(t *testing.T, l *nvidiaMachine) {
		asks := strings.Join(l.Own(), " ")
		dir := quietDir(t)
		submit := l.cmd("submit", "--gpus", "2", "--", "sh", "-c", asks+" > shown.new; mv shown.new shown; while test ! -e seen; do sleep 0.05; done")
		submit.Dir = dir
		if got := runCommand(t, submit); got.code != 0 {
			t.Fatal(got.err)
		}
		shown := func(name string) []gpu.UUID {
			var text []byte
			waitUntil(t, name+" has asked libcuda", func() (ok bool) {
				var err error
				text, err = os.ReadFile(filepath.Join(dir, name))
				return err == nil
			})
			code, devices := l.ParseShown(string(text))
			checkEqual(t, "cuInit", code, 0)
			return devices
		}
		held := func(devices []gpu.UUID) []gpu.UUID { slices.Sort(devices); return devices }
		checkEqual(t, "the job sees its lease", held(shown("shown")), held(l.leasedUUIDs()))
		checkEqual(t, "GPUs", len(l.leasedUUIDs()), 2)
		writeFile(t, filepath.Join(dir, "seen"), "", 0o600)
		waitUntil(t, "the job has ended", func() bool { return len(l.leasedUUIDs()) == 0 })

		project := "services:\n  web:\n    command: sh -c '" + asks + " > served.new; mv served.new served; exec sleep 600'\n    gpus: 1\n"
		if err := os.WriteFile(filepath.Join(dir, "gpuard.yaml"), []byte(project), 0o600); err != nil {
			t.Fatal(err)
		}
		up := l.cmd("up", "-d")
		up.Dir = dir
		if got := runCommand(t, up); got.code != 0 {
			t.Fatal(got.err)
		}
		defer func() {
			down := l.cmd("down")
			down.Dir = dir
			checkEqual(t, "down", runCommand(t, down).code, 0)
		}()
		checkEqual(t, "the service sees its lease", shown("served"), l.leasedUUIDs())
	})
}

// TestNVIDIAWithoutNodes: where no device file of a GPU is here there is no GPU, and nothing runs on the CPU unasked.
func TestNVIDIAWithoutNodes(t *testing.T) {
	eachNVIDIALibrary(t, "idle", func(t *testing.T, l *nvidiaMachine) {
		l.RemoveNodes()
		got := runCommand(t, l.cmd("run", "--", "sh", "-c", "echo it runs"))
		checkEqual(t, "exit and output: "+got.err, []any{got.code, got.out}, []any{125, ""})
		checkContains(t, got.err, "gpuard: cannot find a GPU", "--fallback cpu")
	})
}
