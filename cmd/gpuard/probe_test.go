package main

import (
	"encoding/json"
	"strings"
	"testing"

	"gpuard/internal/gate"
	"gpuard/test/fakegpu"
)

func seenFakeGPU(i int) fakegpu.Seen {
	return fakegpu.Seen{UUID: fakeUUID(i), PCI: fakegpu.A100(i)["pci"]}
}

// TestProbe: the driver's own answer is shown with gpuard's, and a difference has an exit code.
func TestProbe(t *testing.T) {
	r := newFakeDriverMachine(t, makeA100s(3)...)
	r.SetCUDATable(
		fakegpu.Answer{Devices: []fakegpu.Seen{seenFakeGPU(0), seenFakeGPU(1), seenFakeGPU(2)}},
		fakegpu.Answer{Visible: new("2,1"), Devices: []fakegpu.Seen{seenFakeGPU(2), seenFakeGPU(1)}},
		fakegpu.Answer{Visible: new("-1"), Code: 100},
		fakegpu.Answer{Visible: new("0,0"), Devices: []fakegpu.Seen{seenFakeGPU(0)}}, // a driver with another idea
	)
	for _, c := range []struct {
		args []string
		code int
		out  []string
	}{
		{nil, 0, []string{fakeUUID(2), "driver: agrees, it shows the same devices in the same order (CUDA 12.4, "}},
		{[]string{"CUDA_VISIBLE_DEVICES=2,1"}, 0, []string{"cuda:0", "driver: agrees"}},
		{[]string{"CUDA_VISIBLE_DEVICES=-1"}, 0, []string{"No GPU is visible.", "driver: agrees, it shows no device either (cuInit answers 100, CUDA_ERROR_NO_DEVICE; CUDA 12.4"}},
		{[]string{"CUDA_VISIBLE_DEVICES=0,0"}, 1, []string{
			"driver: shows something else", "cuda:0 is no device for gpuard and " + fakeUUID(0) + " at 0000:10:00.0 for the driver",
			"  CUDA_VISIBLE_DEVICES=0,0\n", "driver 550.54.15, CUDA 12.4, cuInit 0, ", "GPU 2: " + fakeUUID(2) + " 0000:12:00.0 NVIDIA A100-SXM4-80GB 8.0"}},
	} {
		got := runCommand(t, r.cmd(append([]string{"explain", "--probe"}, c.args...)...))
		if got.code != c.code || got.err != "" {
			t.Errorf("%q ends with %d: %s", c.args, got.code, got.err)
		}
		text := strings.Join(strings.Fields(got.out), " ")
		for _, part := range c.out {
			if !strings.Contains(got.out, part) && !strings.Contains(text, part) {
				t.Errorf("%q does not say %q:\n%s", c.args, part, got.out)
			}
		}
	}
}

// TestProbeJSON: one object with both lists, whether or not they agree.
func TestProbeJSON(t *testing.T) {
	r := newFakeDriverMachine(t, makeA100s(2)...)
	r.SetCUDATable(fakegpu.Answer{Visible: new("1"), Devices: []fakegpu.Seen{seenFakeGPU(1)}}, fakegpu.Answer{Visible: new("0"), Code: 100})
	for value, agrees := range map[string]bool{"1": true, "0": false} {
		got := runCommand(t, r.cmd("explain", "--probe", "--json", "CUDA_VISIBLE_DEVICES="+value))
		var answer struct {
			Schema  string
			Visible []struct{ UUID string }
			Notes   []any
			Probe   struct {
				Agrees  *bool
				Code    int
				Devices []struct{ UUID, PCI string }
				GPUs    []struct{ UUID string }
			}
		}
		if err := json.Unmarshal([]byte(got.out), &answer); err != nil {
			t.Fatalf("%v\n%s%s", err, got.out, got.err)
		}
		if (got.code == 0) != agrees || answer.Schema != "gpuard.explain/1" || len(answer.Visible) != 1 || answer.Notes == nil ||
			answer.Probe.Agrees == nil || *answer.Probe.Agrees != agrees || answer.Probe.Devices == nil || len(answer.Probe.GPUs) != 2 {
			t.Errorf("GPU %s: exit %d, %s", value, got.code, got.out)
		}
		if agrees && (answer.Probe.Devices[0].UUID != fakeUUID(1) || answer.Probe.Devices[0].PCI != "0000:11:00.0") || !agrees && answer.Probe.Code != 100 {
			t.Errorf("GPU %s: the driver's answer is %+v", value, answer.Probe)
		}
	}
}

func TestProbeNeedsADriver(t *testing.T) {
	gate.Need(t, "no nvidia libraries")
	r := newFakeDriverMachine(t, makeA100s(1)...)
	r.RemoveFile("lib/libcuda.so.1")
	got := runCommand(t, r.cmd("explain", "--probe"))
	if got.code != 1 || got.out != "" || !strings.Contains(got.err, "cannot find the CUDA driver's library") || !strings.Contains(got.err, "NVIDIA_DRIVER_CAPABILITIES") {
		t.Errorf("without libcuda: %d\n%s%s", got.code, got.out, got.err)
	}
	if got = runCommand(t, r.cmd("explain")); got.code != 0 {
		t.Errorf("explain itself needs libcuda: %s", got.err)
	}
	got = runCommand(t, r.cmd("explain", "--probe", "--machine", "demo"))
	if got.code != 2 || !strings.Contains(got.err, "cannot ask the driver about demo") {
		t.Errorf("about an invented machine: %d %s", got.code, got.err)
	}
}
