package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/status"
	"gpuard/internal/core/visible"
	"gpuard/test/fakegpu"
)

func TestDriverStatus(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.A100(0).With("utilization", "37 4").With("temperature", "61").With("power_mw", "250500"),
		fakegpu.GeForce(1).With("power_mw", ""))
	pid := r.startFakeJob(0, "20G", fakegpu.Compute)
	s, code := r.readStatus()
	if code != 0 || s.Schema != "gpuard.status/1" || s.Source != "nvml" || s.Driver != "550.54.15" || s.CUDA != "12.4" || len(s.Devices) != 2 {
		t.Fatalf("exit %d, %+v", code, s)
	}
	one, two := s.Devices[0], s.Devices[1]
	checkEqual(t, "identity", []any{one.Index, one.UUID, one.Name, one.PCI, one.Vendor}, []any{0, gpu.UUID(fakeUUID(0)), "NVIDIA A100-SXM4-80GB", "0000:10:00.0", gpu.NVIDIA})
	checkEqual(t, "memory", []gpu.Bytes{*one.MemoryTotal, *one.MemoryUsed, *one.MemoryReserved}, []gpu.Bytes{80 * gpu.GiB, 20 * gpu.GiB, 600 * gpu.MiB})
	checkEqual(t, "load", []any{*one.Utilization, *one.Temperature, *one.Power, *one.PowerLimit}, []any{0.37, 61, 250.5, 400.0})
	checkEqual(t, "use", []status.Use{one.Use, two.Use}, []status.Use{status.Busy, status.Free})
	if len(one.Processes) != 1 {
		t.Fatalf("processes: %+v", one.Processes)
	}
	p := one.Processes[0]
	checkEqual(t, "process", []any{p.PID, *p.Memory, p.Foreign, p.Since != nil, p.User != ""}, []any{pid, 20 * gpu.GiB, true, true, true})
	checkContains(t, p.Command, "fakegpu-job --gpu 0")
	checkEqual(t, "a reading that is absent", two.Power, (*float64)(nil))
	if len(s.Problems)+len(s.Notes)+len(s.Unavailable) != 0 {
		t.Errorf("something is wrong with a machine that is well: %+v", s)
	}
	text := r.run("status")
	checkContains(t, text.out, "driver 550.54.15", "CUDA 12.4", "2 GPUs: 1 free, 1 busy", "A100-SXM4-80GB", "GeForce RTX 3090",
		"37 %", "20.0/80.0 GiB", "0.0/24.0 GiB", "61 C", "31 C", fmt.Sprint(pid), "fakegpu-job")
	checkContains(t, r.run().out, "2 GPUs: 1 free, 1 busy")
}

func TestDriverRun(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(4)...)
	got := r.run("run", "--device", "3,1", "--", "sh", "-c",
		`echo "$CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER"; echo "$GPUARD_GPUS"; echo "$NVIDIA_VISIBLE_DEVICES"; echo "lease $GPUARD_LEASE"; exit 7`)
	if got.code != 7 {
		t.Fatalf("exit %d, not the command's own:\n%s", got.code, got.err)
	}
	both := fakeUUID(3) + "," + fakeUUID(1) + "\n"
	checkContains(t, got.out, "3,1 PCI_BUS_ID\n"+both+both)
	_, lease, _ := strings.Cut(strings.TrimSpace(got.out), "lease ")
	checkContains(t, got.err, "gpuard: GPU 3 (NVIDIA A100-SXM4-80GB) is cuda:0, GPU 1 (NVIDIA A100-SXM4-80GB) is cuda:1, lease "+lease)
}

// TestDriverStatusOfALease: what status says while a command runs, and after it.
func TestDriverStatusOfALease(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(2)...)
	cmd := r.cmd("run", "-q", "--device", "1", "--", "sh", "-c", "echo $GPUARD_LEASE; exec sleep 60")
	lease := startToFirstLine(t, cmd)
	s, _ := r.readStatus()
	checkEqual(t, "uses", []status.Use{s.Devices[0].Use, s.Devices[1].Use}, []status.Use{status.Free, status.Leased})
	if l := s.Devices[1].Leases; len(l) != 1 || l[0].ID != lease || l[0].PID != cmd.Process.Pid || l[0].Command != "sh" {
		t.Errorf("leases: %+v", l)
	}
	refusal := mustRefuse(t, r.cmd("run", "--json", "--device", "1", "--", "true"), 120)
	checkContains(t, refusal.Error, "leased as "+lease)
	_ = cmd.Process.Kill()
	waitUntil(t, "the device is free", func() bool {
		s, _ := r.readStatus()
		return s.Devices[1].Use == status.Free
	})
}

func TestDriverExplain(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(4)...)
	var view visible.View
	got := r.run("explain", "--json", "CUDA_VISIBLE_DEVICES=2,0,7,1", "CUDA_DEVICE_ORDER=PCI_BUS_ID")
	if err := json.Unmarshal([]byte(got.out), &view); err != nil || got.code != 0 {
		t.Fatalf("exit %d, %v\n%s%s", got.code, err, got.out, got.err)
	}
	var seen []string
	for _, e := range view.Visible {
		seen = append(seen, fmt.Sprintf("%d:%d:%s:%s", e.Logical, e.Index, e.UUID, e.Runtime))
	}
	checkEqual(t, "visible", seen, []string{"0:2:" + fakeUUID(2) + ":cuda", "1:0:" + fakeUUID(0) + ":cuda"})
	if len(view.Notes) == 0 {
		t.Error("nothing is said about the entry that is no device")
	}
	checkContains(t, r.run("explain").out, "cuda:3", fakeUUID(3), "0000:13:00.0")
}

func TestDriverEnv(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(4)...)
	got := r.run("env", "--device", "2")
	if got.code != 0 {
		t.Fatalf("exit %d\n%s", got.code, got.err)
	}
	checkContains(t, got.out, "export CUDA_VISIBLE_DEVICES=2\n", "export CUDA_DEVICE_ORDER=PCI_BUS_ID\n", "export NVIDIA_VISIBLE_DEVICES="+fakeUUID(2)+"\n")
	got = r.run("env", "--device", "2", "--ids", "uuid")
	checkContains(t, got.out, "export CUDA_VISIBLE_DEVICES="+fakeUUID(2)+"\n")
	if s, _ := r.readStatus(); len(s.Devices[2].Leases) != 0 {
		t.Error("env has leased the device")
	}
}

func TestDriverSixteenDevices(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, makeA100s(16)...)
	s, code := r.readStatus()
	if code != 0 || len(s.Devices) != 16 {
		t.Fatalf("exit %d, %d devices", code, len(s.Devices))
	}
	for i, d := range s.Devices {
		checkEqual(t, "device", []any{d.Index, d.UUID, *d.Temperature, d.Use}, []any{i, gpu.UUID(fakeUUID(i)), 30 + i, status.Free})
	}
	all := strings.Split(r.givenDevices("--gpus", "16"), ",")
	unique := map[string]bool{}
	for _, id := range all {
		unique[id] = true
	}
	checkEqual(t, "devices of --gpus 16", len(unique), 16)
	refusal := mustRefuse(t, r.cmd("run", "--json", "--gpus", "17", "--", "true"), 122)
	checkContains(t, refusal.Error, "17 GPUs", "this machine has 16")
	checkEqual(t, "reasons", len(refusal.Reasons), 16)
}

func TestDriverMIG(t *testing.T) {
	t.Parallel()
	r := newFakeDriverMachine(t, fakegpu.A100(0).MIG("1g.10gb", "1g.10gb", "2g.20gb"), fakegpu.A100(1))
	slice := func(i int) string { return fmt.Sprintf("MIG-fa4e0000-0000-5000-8000-%06x%06x", 0, i) }
	s, _ := r.readStatus()
	if len(s.Devices) != 2 || len(s.Devices[0].MIG) != 3 {
		t.Fatalf("%d devices, %d slices", len(s.Devices), len(s.Devices[0].MIG))
	}
	checkEqual(t, "a slice", []any{s.Devices[0].MIG[2].UUID, s.Devices[0].MIG[2].Profile}, []any{gpu.UUID(slice(2)), "2g.20gb"})
	checkContains(t, r.run("status").out, "2 GPUs (1 split into 3 MIG slices): 4 free")

	first := startToFirstLine(t, r.cmd("run", "-q", "--mig", "1g.10gb", "--", "sh", "-c", `echo "$CUDA_VISIBLE_DEVICES $GPUARD_GPUS"; exec sleep 60`))
	second := startToFirstLine(t, r.cmd("run", "-q", "--mig", "1g.10gb", "--", "sh", "-c", `echo "$CUDA_VISIBLE_DEVICES $GPUARD_GPUS"; exec sleep 60`))
	for _, got := range []string{first, second} {
		if got != slice(0)+" "+slice(0) && got != slice(1)+" "+slice(1) {
			t.Errorf("the variables are %q, not a slice's UUID", got)
		}
	}
	if first == second {
		t.Errorf("two jobs have the slice %s", first)
	}
	refusal := mustRefuse(t, r.cmd("run", "--json", "--mig", "1g.10gb", "--", "true"), 120)
	checkContains(t, refusal.Error, "none of 2 is free")

	// The slices are no GPUs, free or not: only one whole device is here.
	checkEqual(t, "a whole GPU", r.givenDevices("--gpus", "1"), fakeUUID(1))
	refusal = mustRefuse(t, r.cmd("run", "--json", "--gpus", "2", "--", "true"), 122)
	checkContains(t, refusal.Error, "1 of 2 could ever serve", "1 split")
}
