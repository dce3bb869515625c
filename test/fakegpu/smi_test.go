package fakegpu

import (
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// runSMI runs nvidia-smi and returns its standard output and exit status.
func runSMI(t *testing.T, d *Driver, args ...string) (string, int) {
	t.Helper()
	out, err := machineCommand(d, "nvidia-smi", args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(out), exit.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(out), 0
}

func queryGPUs(t *testing.T, d *Driver, fields string) string {
	t.Helper()
	out, code := runSMI(t, d, "--query-gpu="+fields, "--format=csv,noheader")
	if code != 0 {
		t.Fatalf("nvidia-smi exits with %d: %s", code, out)
	}
	return out
}

func TestListDevices(t *testing.T) {
	d := New(t, A100(0), A100(1).MIG("1g.10gb", "2g.20gb"))
	out, _ := runSMI(t, d, "-L")
	want := `GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-fa4e0000-0000-4000-8000-000000000000)
GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-fa4e0000-0000-4000-8000-000000000001)
  MIG 1g.10gb         Device  0: (UUID: MIG-fa4e0000-0000-5000-8000-000001000000)
  MIG 2g.20gb         Device  1: (UUID: MIG-fa4e0000-0000-5000-8000-000001000001)
`
	if out != want {
		t.Errorf("nvidia-smi -L:\n%s\nwant\n%s", out, want)
	}
}

func TestQueryGPU(t *testing.T) {
	d := New(t, A100(0), GeForce(1).With("utilization", "37 12"), H100(2))
	for _, c := range []struct{ args, want string }{
		{"--query-gpu=index,name,memory.total,utilization.gpu --format=csv",
			"index, name, memory.total [MiB], utilization.gpu [%]\n0, NVIDIA A100-SXM4-80GB, 81920 MiB, 0 %\n1, NVIDIA GeForce RTX 3090, 24576 MiB, 37 %\n2, NVIDIA H100 80GB HBM3, 81559 MiB, 0 %\n"},
		{"--query-gpu=memory.total,memory.reserved,memory.used,memory.free --format=csv,noheader,nounits -i 0", "81920, 600, 0, 81320\n"},
		{"--query-gpu=pci.bus_id,compute_cap,driver_version --format=csv,noheader -i 1", "00000000:11:00.0, 8.6, 550.54.15\n"},
		{"--query-gpu=ecc.mode.current,ecc.errors.uncorrected.volatile.total,mig.mode.current --format=csv,noheader", "Enabled, 0, Disabled\n[N/A], [N/A], [N/A]\nEnabled, 0, Disabled\n"},
		{"--query-gpu=power.draw,power.limit,temperature.gpu,temperature.gpu.tlimit,clocks.sm,clocks.max.sm --format=csv,noheader",
			"61.03 W, 400.00 W, 30, [N/A], 210 MHz, 1410 MHz\n61.03 W, 350.00 W, 31, [N/A], 210 MHz, 2100 MHz\n61.03 W, 700.00 W, 32, 54, 210 MHz, 1980 MHz\n"},
		{"--query-gpu=persistence_mode,compute_mode,clocks_event_reasons.active,gpu_recovery_action --format=csv,noheader -i 2", "Enabled, Default, 0x0000000000000001, None\n"},
		{"--query-gpu=index --format=csv,noheader -i GPU-fa4e0000-0000-4000-8000-000000000002", "2\n"},
		{"--query-gpu=index --format=csv,noheader -i 0000:11:00.0,0", "0\n1\n"},
	} {
		if out, code := runSMI(t, d, strings.Fields(c.args)...); out != c.want || code != 0 {
			t.Errorf("nvidia-smi %s\n%q, status %d\nwant\n%q", c.args, out, code, c.want)
		}
	}
}

func TestUnknownField(t *testing.T) {
	d := New(t, A100(0))
	for _, field := range []string{"nonsense", "xml.minor"} {
		if out, code := runSMI(t, d, "--query-gpu=index,"+field, "--format=csv"); code != 2 || !strings.Contains(out, fmt.Sprintf("Field %q is not a valid field to query.", field)) {
			t.Errorf("field %s: status %d, %q", field, code, out)
		}
	}
}

func TestValuesChangeWhileTheDriverRuns(t *testing.T) {
	d := New(t, A100(0))
	d.SetValue(0, "temperature", "91")
	d.SetValue(0, "memory_used", "20G")
	if got := queryGPUs(t, d, "temperature.gpu,memory.used"); got != "91, 20480 MiB\n" {
		t.Errorf("after a change: %q", got)
	}
	d.UnsetValue(0, "temperature")
	if got := queryGPUs(t, d, "temperature.gpu,memory.used"); got != "[N/A], 20480 MiB\n" {
		t.Errorf("a missing file must be a reading that is not supported: %q", got)
	}
}

func TestComputeApps(t *testing.T) {
	d := New(t, A100(0), A100(1))
	d.AddProcess(1, 999999999, 20<<30, Compute)
	d.AddProcess(1, os.Getpid(), -1, Both)
	d.AddProcess(1, 1, 5<<20, Graphics)
	out, _ := runSMI(t, d, "--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv")
	want := fmt.Sprintf("gpu_uuid, pid, used_memory [MiB]\n%[1]s, 999999999, 20480 MiB\n%[1]s, %[2]d, [N/A]\n", A100(1)["uuid"], os.Getpid())
	if out != want {
		t.Errorf("compute processes:\n%s\nwant\n%s", out, want)
	}
	if out, _ := runSMI(t, d, "--query-compute-apps=process_name", "--format=csv,noheader"); out != "[Not Found]\n"+os.Args[0]+"\n" {
		t.Errorf("names: %q", out)
	}
	if got := queryGPUs(t, d, "memory.used"); got != "0 MiB\n20485 MiB\n" {
		t.Errorf("memory used: %q", got)
	}
	d.ClearProcesses(1)
	if got := queryGPUs(t, d, "memory.used"); got != "0 MiB\n0 MiB\n" {
		t.Errorf("memory used after the processes ended: %q", got)
	}
}

func TestInitFails(t *testing.T) {
	d := New(t, A100(0))
	for code, want := range map[int]string{
		4:  "Failed to initialize NVML: Insufficient Permissions\n",
		9:  "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
		18: "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.54.15\n",
	} {
		d.FailInit(code)
		if out, status := runSMI(t, d, "-L"); status != code || !strings.HasPrefix(out, want) {
			t.Errorf("init %d: status %d, %q", code, status, out)
		}
	}
	d.FailInit(0)
	if out, status := runSMI(t, d, "-L"); status != 0 || !strings.HasPrefix(out, "GPU 0") {
		t.Errorf("working again: status %d, %q", status, out)
	}
}

func TestNoDevices(t *testing.T) {
	d := New(t)
	if out, status := runSMI(t, d, "-q", "-x"); status != 6 || out != "No devices were found\n" {
		t.Errorf("status %d, %q", status, out)
	}
}

func TestLostDevice(t *testing.T) {
	d := New(t, A100(0), A100(1), A100(2))
	d.LoseGPU(1)
	out, status := runSMI(t, d, "--query-gpu=index", "--format=csv,noheader")
	if want := "0\nUnable to determine the device handle for GPU1: 0000:11:00.0: GPU is lost.  Reboot the system to recover this GPU\n2\n"; out != want || status != 15 {
		t.Errorf("status %d, %q", status, out)
	}
	d.SetValue(1, "lost", "handle")
	if got := queryGPUs(t, d, "index,uuid,temperature.gpu"); !strings.Contains(got, "1, "+A100(1)["uuid"]+", [GPU is lost]\n") {
		t.Errorf("a device that is lost but known: %q", got)
	}
	d.UnsetValue(1, "lost")
	if got := queryGPUs(t, d, "index"); got != "0\n1\n2\n" {
		t.Errorf("a device that came back: %q", got)
	}
}

func TestFailingCall(t *testing.T) {
	d := New(t, A100(0), A100(1))
	d.Fail("nvmlDeviceGetPowerUsage", 1, 4)
	if got := queryGPUs(t, d, "power.draw"); got != "61.03 W\n[Insufficient Permissions]\n" {
		t.Errorf("a failing call: %q", got)
	}
	d.Fail("nvmlDeviceGetPowerUsage", AnyGPU, 999)
	if got := queryGPUs(t, d, "power.draw"); got != "[Unknown Error]\n[Insufficient Permissions]\n" {
		t.Errorf("the first rule that fits counts: %q", got)
	}
	d.RemoveFile("fail")
	if got := queryGPUs(t, d, "power.draw"); got != "61.03 W\n61.03 W\n" {
		t.Errorf("after the rules are gone: %q", got)
	}
}

func TestHangingCall(t *testing.T) {
	t.Parallel()
	d := New(t, A100(0), A100(1))
	d.Hang("nvmlDeviceGetUtilizationRates", 1)
	if out, _ := runSMI(t, d, "--query-gpu=utilization.gpu", "--format=csv,noheader", "-i", "0"); out != "0 %\n" {
		t.Errorf("the other device: %q", out)
	}
	cmd := machineCommand(d, "nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader")
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		t.Fatalf("nvidia-smi did not hang: %v, %q", err, out.String())
	case <-time.After(150 * time.Millisecond):
	}
	d.Answer()
	select {
	case err := <-done:
		if err != nil || out.String() != "0 %\n0 %\n" {
			t.Errorf("after the answer: %v, %q", err, out.String())
		}
	case <-time.After(20 * time.Second):
		cmd.Process.Kill()
		t.Fatal("nvidia-smi still hangs after Answer")
	}
}

func TestDelay(t *testing.T) {
	t.Parallel()
	d := New(t, A100(0))
	d.Delay("nvmlInit_v2", AnyGPU, 120)
	start := time.Now()
	queryGPUs(t, d, "index")
	if took := time.Since(start); took < 120*time.Millisecond {
		t.Errorf("nvidia-smi took %v, want 120ms or more", took)
	}
}

// smiDocument is what a reader of -q -x needs.
type smiDocument struct {
	Driver   string `xml:"driver_version"`
	CUDA     string `xml:"cuda_version"`
	Attached int    `xml:"attached_gpus"`
	GPUs     []struct {
		ID       string `xml:"id,attr"`
		UUID     string `xml:"uuid"`
		Minor    string `xml:"minor_number"`
		Recovery string `xml:"gpu_recovery_action"`
		Bus      string `xml:"pci>pci_bus_id"`
		Total    string `xml:"fb_memory_usage>total"`
		Used     string `xml:"fb_memory_usage>used"`
		Util     string `xml:"utilization>gpu_util"`
		Temp     string `xml:"temperature>gpu_temp"`
		TLimit   string `xml:"temperature>gpu_temp_tlimit"`
		Slow     string `xml:"temperature>gpu_temp_slow_threshold"`
		Power    string `xml:"gpu_power_readings>power_draw"`
		Power13  string `xml:"gpu_power_readings>instant_power_draw"`
		Idle     string `xml:"clocks_event_reasons>clocks_event_reason_gpu_idle"`
		Thermal  string `xml:"clocks_event_reasons>clocks_event_reason_hw_thermal_slowdown"`
		ECC      string `xml:"ecc_errors>volatile>sram_uncorrectable"`
		Rows     string `xml:"remapped_rows>remapped_row_pending"`
		Retired  string `xml:"retired_pages>double_bit_retirement>retired_count"`
		MIG      []struct {
			Index int    `xml:"index"`
			GI    int    `xml:"gpu_instance_id"`
			Total string `xml:"fb_memory_usage>total"`
			Used  string `xml:"fb_memory_usage>used"`
		} `xml:"mig_devices>mig_device"`
		Processes []struct {
			GI     string `xml:"gpu_instance_id"`
			PID    int    `xml:"pid"`
			Type   string `xml:"type"`
			Name   string `xml:"process_name"`
			Memory string `xml:"used_memory"`
		} `xml:"processes>process_info"`
	} `xml:"gpu"`
}

func readXML(t *testing.T, d *Driver, args ...string) smiDocument {
	t.Helper()
	out, _ := runSMI(t, d, append([]string{"-q", "-x"}, args...)...)
	var doc smiDocument
	if err := xml.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatalf("nvidia-smi -q -x is not XML: %v\n%s", err, out)
	}
	return doc
}

func TestXML(t *testing.T) {
	d := New(t, A100(0).With("events", "0x48").With("ecc_uncorrected", "3").With("remapped", "1 2 1 0"), GeForce(1).With("retired", "4 2 1"))
	d.AddProcess(0, 999999999, 1<<30, Both)
	doc := readXML(t, d)
	if doc.Driver != "550.54.15" || doc.CUDA != "12.4" || doc.Attached != 2 || len(doc.GPUs) != 2 {
		t.Fatalf("document: %+v", doc)
	}
	g := doc.GPUs[0]
	for _, c := range []struct{ name, got, want string }{
		{"id", g.ID, "00000000:10:00.0"}, {"bus", g.Bus, "00000000:10:00.0"}, {"uuid", g.UUID, A100(0)["uuid"]}, {"minor", g.Minor, "0"},
		{"total", g.Total, "81920 MiB"}, {"used", g.Used, "1024 MiB"}, {"utilisation", g.Util, "0 %"}, {"temperature", g.Temp, "30 C"},
		{"margin", g.TLimit, "N/A"}, {"slowdown", g.Slow, "89 C"}, {"power", g.Power, "61.03 W"}, {"idle", g.Idle, "Not Active"},
		{"thermal", g.Thermal, "Active"}, {"ecc", g.ECC, "3"}, {"rows pending", g.Rows, "Yes"}, {"retired", g.Retired, "N/A"},
		{"ecc of a GeForce", doc.GPUs[1].ECC, "N/A"}, {"retired of a GeForce", doc.GPUs[1].Retired, "2"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", c.name, c.got, c.want)
		}
	}
	if p := g.Processes; len(p) != 1 || p[0].PID != 999999999 || p[0].Type != "C+G" || p[0].Memory != "1024 MiB" || p[0].GI != "N/A" || p[0].Name != "[Not Found]" {
		t.Errorf("processes: %+v", p)
	}
	if one := readXML(t, d, "-i", "1"); len(one.GPUs) != 1 || one.GPUs[0].Minor != "1" || one.Attached != 2 {
		t.Errorf("-i 1: %+v", one)
	}
}

func TestXMLOfNewerDrivers(t *testing.T) {
	d := New(t, H100(0).With("recovery", "1"))
	d.WriteFile("smi_format", "13")
	g := readXML(t, d).GPUs[0]
	if g.Power != "" || g.Power13 != "61.03 W" || g.Recovery != "Reset" || g.TLimit != "54 C" || g.Slow != "" {
		t.Errorf("layout 13: %+v", g)
	}
}

func TestXMLOfMIG(t *testing.T) {
	d := New(t, A100(0).MIG("1g.10gb", "3g.40gb"))
	d.AddProcess(0, 999999999, 4<<30, Compute, 2, 0)
	g := readXML(t, d).GPUs[0]
	if g.Util != "N/A" || g.Rows != "" || len(g.MIG) != 2 {
		t.Fatalf("a split device: %+v", g)
	}
	if m := g.MIG[1]; m.Index != 1 || m.GI != 2 || m.Total != "40448 MiB" || m.Used != "4096 MiB" {
		t.Errorf("second MIG device: %+v", m)
	}
	if g.MIG[0].Used != "0 MiB" || g.Used != "4096 MiB" || g.Processes[0].GI != "2" {
		t.Errorf("memory of the first MIG device %s, of the whole %s, process %+v", g.MIG[0].Used, g.Used, g.Processes[0])
	}
}

func TestXMLWithALostDevice(t *testing.T) {
	d := New(t, A100(0), A100(1))
	d.LoseGPU(0)
	if doc := readXML(t, d); len(doc.GPUs) != 1 || doc.Attached != 2 || doc.GPUs[0].Minor != "1" {
		t.Errorf("without the lost device: %+v", doc)
	}
	d.SetValue(0, "lost", "handle")
	if g := readXML(t, d).GPUs[0]; g.UUID != A100(0)["uuid"] || g.Temp != "GPU is lost" {
		t.Errorf("a device that is lost but known: %+v", g)
	}
}

// The real tool is missing only where it was taken away, not because the library was.
func TestSMIRunsWithoutTheLibrary(t *testing.T) {
	d := New(t, A100(0))
	d.RemoveFile("lib/libnvidia-ml.so.1")
	if got := queryGPUs(t, d, "index"); got != "0\n" {
		t.Errorf("without the library: %q", got)
	}
}

// TestSmiHelp: help needs no driver; tools ask for it to see whether the program is there.
func TestSmiHelp(t *testing.T) {
	d := New(t, A100(0))
	d.FailInit(9)
	if out, code := runSMI(t, d, "--help"); code != 0 || !strings.HasPrefix(out, "NVIDIA System Management Interface") {
		t.Errorf("exit status %d: %s", code, out)
	}
}
