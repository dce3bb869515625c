package nvsmi

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/prose"
)

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Parse reads XML alone, without the names of MIG devices.
func Parse(xml []byte) (gpu.Machine, error) {
	r, err := parseReport(xml, nil)
	if err != nil {
		return gpu.Machine{}, err
	}
	return r.toMachine(), nil
}

func parsed(t *testing.T, name string) gpu.Machine {
	t.Helper()
	m, err := Parse(fixture(t, name))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return m
}

// same compares field by field, so that a failure names the reading.
func same[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	if g.Kind() != reflect.Struct {
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
		return
	}
	for i := range g.NumField() {
		a, b := g.Field(i), w.Field(i)
		if !reflect.DeepEqual(a.Interface(), b.Interface()) {
			t.Errorf("%s.%s: got %v, want %v", what, g.Type().Field(i).Name, shown(a), shown(b))
		}
	}
}

func shown(v reflect.Value) any {
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		return v.Elem().Interface()
	}
	return v.Interface()
}

func TestParseOldDriver(t *testing.T) {
	m := parsed(t, "driver-470.xml")
	if m.Driver != "470.256.02" || m.CUDA != "11.4" || m.Source != "nvidia-smi" || len(m.Devices) != 2 ||
		strings.Join(m.Problems, "; ") != "GPU 1: cannot read its utilisation: nvidia-smi says that there was an error; GPU 1: cannot read its power: nvidia-smi says that there was an error" {
		t.Fatalf("machine: %+v", m)
	}
	same(t, "V100", m.Devices[0], gpu.Device{
		Index: 0, UUID: "GPU-11111111-2222-3333-4444-000000000470", Name: "Tesla V100-PCIE-32GB", Vendor: gpu.NVIDIA, PCI: "0000:3b:00.0", Minor: new(0),
		MemoryTotal: new(32510 * gpu.MiB), MemoryUsed: new(1500 * gpu.MiB), Utilization: new(0.37), MemoryLoad: new(0.04), Temperature: new(61), TempSlowdown: new(87),
		Power: new(112.5), PowerLimit: new(200.0), ClockSM: new(1245), ClockSMMax: new(1380), ClockMemory: new(877),
		ClockEvents: []string{"applications_clocks", "sw_power_cap"}, ECC: new(true), ECCCorrected: new(int64(3)), ECCUncorrected: new(int64(1)),
		RetiredPages: &gpu.RetiredPages{SingleBit: 2, DoubleBit: 1, Pending: true}, Persistence: new(true), DisplayActive: new(false), ComputeMode: "exclusive_process",
	})
	// Almost nothing is readable on the second: absent is not zero, and not "no events" either.
	same(t, "GTX 1080", m.Devices[1], gpu.Device{
		Index: 1, UUID: "GPU-11111111-2222-3333-4444-000000000471", Name: "NVIDIA GeForce GTX 1080", Vendor: gpu.NVIDIA, PCI: "0000:af:00.0", Minor: new(1),
		MemoryTotal: new(8119 * gpu.MiB), MemoryUsed: new(310 * gpu.MiB), ClockSMMax: new(1911), ClockMemory: new(405), Persistence: new(false), DisplayActive: new(false), ComputeMode: "default",
	})
	second := m.Devices[1].UUID
	same(t, "processes", m.Processes, []gpu.Process{
		{PID: 4321, GPU: m.Devices[0].UUID, Memory: new(1190 * gpu.MiB), Command: "/usr/bin/python3", Kind: gpu.ComputeProcess},
		{PID: 1201, GPU: second, Memory: new(180 * gpu.MiB), Command: "/usr/lib/xorg/Xorg", Kind: gpu.GraphicsProcess},
		{PID: 1500, GPU: second, Command: "/opt/viewer/bin/view & edit", Kind: gpu.BothKinds},
	})
}

func TestParseNewDriver(t *testing.T) {
	m := parsed(t, "driver-550.xml")
	if m.Driver != "550.90.07" || m.CUDA != "12.4" || len(m.Devices) != 2 || len(m.Problems) != 0 {
		t.Fatalf("machine: %+v", m)
	}
	want := gpu.Device{
		Index: 0, UUID: "GPU-aaaaaaaa-0000-1111-2222-000000000550", Name: "NVIDIA H100 80GB HBM3", Vendor: gpu.NVIDIA, PCI: "0000:17:00.0", Minor: new(0),
		MemoryTotal: new(81559 * gpu.MiB), MemoryUsed: new(61440 * gpu.MiB), MemoryReserved: new(551 * gpu.MiB), Utilization: new(0.98), MemoryLoad: new(0.98), Temperature: new(58), TempMargin: new(29),
		Power: new(501.0), PowerLimit: new(700.0), ClockSM: new(1755), ClockSMMax: new(1980), ClockMemory: new(2619),
		ClockEvents: []string{"sw_power_cap", "sw_thermal_slowdown", "display_clock_setting"}, ECC: new(true), ECCCorrected: new(int64(41)), ECCUncorrected: new(int64(55)),
		RemappedRows: &gpu.RemappedRows{Correctable: 4, Uncorrectable: 2, Pending: true}, RecoveryAction: "drain_and_reset", Persistence: new(true), ComputeMode: "default", MIGMode: new(false),
	}
	same(t, "H100", m.Devices[0], want)
	idle := want
	idle.Index, idle.UUID, idle.PCI, idle.Minor = 1, "GPU-aaaaaaaa-0000-1111-2222-000000000551", "10000:65:00.0", new(1)
	idle.MemoryUsed, idle.Utilization, idle.Temperature, idle.TempMargin, idle.Power = new(gpu.Bytes(0)), new(0.0), new(32), new(55), new(70.1)
	idle.ClockEvents, idle.RecoveryAction, idle.MemoryLoad = []string{}, "none", new(0.0)
	same(t, "idle H100", m.Devices[1], idle)
	first := m.Devices[0].UUID
	same(t, "processes", m.Processes, []gpu.Process{
		{PID: 900001, GPU: first, Memory: new(40960 * gpu.MiB), Command: "/home/alice/venv/bin/python", Kind: gpu.ComputeProcess},
		{PID: 900002, GPU: first, Memory: new(20000 * gpu.MiB), Command: "/opt/app/server", Kind: gpu.ComputeProcess},
		{PID: 900003, GPU: first, Memory: new(100 * gpu.MiB), Command: `python3 <b>& "x" &#0; [31m</used_memory>`, Kind: gpu.ComputeProcess},
		{PID: 900004, GPU: first, Kind: gpu.ComputeProcess},
	})
}

// TestSameCard: of an H200 nvidia-smi and the library said the same at the same time, but for what only the library says.
func TestSameCard(t *testing.T) {
	said, err := gpu.DecodeMachine(fixture(t, "driver-580.json"))
	if err != nil {
		t.Fatal(err)
	}
	m := parsed(t, "driver-580.xml")
	same(t, "versions", []string{m.Driver, m.CUDA}, []string{said.Driver, said.CUDA})
	want := said.Devices[0]
	want.Compute, want.TempSlowdown, want.NUMA, want.Links = nil, nil, nil, nil
	got := m.Devices[0]
	if rounded := *got.MemoryReserved - *want.MemoryReserved; rounded < 0 || rounded >= gpu.MiB {
		t.Errorf("reserved: %v and %v", *got.MemoryReserved, *want.MemoryReserved)
	}
	same(t, "power", fmt.Sprintf("%.2f", *got.Power), fmt.Sprintf("%.2f", *want.Power))
	got.MemoryReserved, got.Power, got.DisplayActive, got.MemoryLoad = want.MemoryReserved, want.Power, want.DisplayActive, want.MemoryLoad // the recording has none
	same(t, "H200", got, want)
}

func TestParseMIG(t *testing.T) {
	r, err := parseReport(fixture(t, "mig.xml"), nil)
	if err != nil || !r.hasSlices() {
		t.Fatalf("%v, slices %v", err, r.hasSlices())
	}
	r.nameSlices(parseList(fixture(t, "mig.list")))
	r.addCapabilities([]byte("GPU-bbbbbbbb-0000-1111-2222-00000000000a, 8.0\nGPU-bbbbbbbb-0000-1111-2222-00000000000b, [N/A]\nField \"compute_cap\" is not a valid field to query.\n"))
	m := r.toMachine()
	split, plain := m.Devices[0], m.Devices[1]
	same(t, "slices", split.MIG, []gpu.MIGDevice{
		{Index: 0, UUID: "MIG-cccccccc-0000-0000-0000-000000000000", Profile: "3g.40gb", GPUInstance: 1, MemoryTotal: new(39936 * gpu.MiB), MemoryUsed: new(8200 * gpu.MiB)},
		{Index: 1, UUID: "MIG-cccccccc-0000-0000-0000-000000000001", Profile: "1c.2g.20gb", GPUInstance: 5, MemoryTotal: new(19968 * gpu.MiB), MemoryUsed: new(12 * gpu.MiB)},
		{Index: 2, UUID: "MIG-cccccccc-0000-0000-0000-000000000002", Profile: "1c.2g.20gb", GPUInstance: 5, ComputeInstance: 1, MemoryTotal: new(19968 * gpu.MiB), MemoryUsed: new(12 * gpu.MiB)},
	})
	if !*split.MIGMode || *plain.MIGMode || plain.MIG != nil || split.Utilization != nil || *split.TempSlowdown != 89 || split.TempMargin != nil {
		t.Errorf("devices: %+v\n%+v", split, plain)
	}
	if split.Compute == nil || *split.Compute != (gpu.Capability{Major: 8}) || plain.Compute != nil || len(m.Problems) != 1 || !strings.Contains(m.Problems[0], "GPU 0: 1 of its MIG devices cannot be named") {
		t.Errorf("compute %v and %v, problems %q", split.Compute, plain.Compute, m.Problems)
	}
	for i, want := range []gpu.UUID{split.MIG[0].UUID, split.MIG[2].UUID, split.UUID, plain.UUID} {
		if got := m.Processes[i].GPU; got != want {
			t.Errorf("process %d is on %s, want %s", m.Processes[i].PID, got, want)
		}
	}
}

// TestUnnamedSlicesAreNotGiven: slices that nvidia-smi -L does not name are counted, and their processes are on the whole GPU, which is
// not given. Older drivers leave the mode out, and a description may lack the numbers of its instances.
func TestUnnamedSlicesAreNotGiven(t *testing.T) {
	text := string(fixture(t, "mig.xml"))
	without := func(tag, of string) string { return strings.ReplaceAll(text, "<"+tag+">"+of+"</"+tag+">", "") }
	devices := regexp.MustCompile(`(?s)<mig_devices>.*?</mig_devices>`)
	for name, c := range map[string]struct {
		text, list string
		named      []gpu.UUID
		unnamed    string // "" where every slice is named
	}{
		"none":             {text, "", nil, "4"},
		"one":              {text, "  MIG 3g.40gb Device 0: (UUID: MIG-a)\n", []gpu.UUID{"MIG-a"}, "3"},
		"no mode":          {without("current_mig", "Enabled"), "", nil, "4"},
		"no instances":     {strings.Replace(text, "<gpu_instance_id>1<", "<gpu_instance_id>N/A<", 1), "  MIG 3g.40gb Device 0: (UUID: MIG-a)\n", nil, "5"},
		"not described":    {devices.ReplaceAllString(text, ""), "", nil, "3"},
		"nor is the mode":  {devices.ReplaceAllString(without("current_mig", "Enabled"), ""), "", nil, "3"},
		"a negative index": {text, "  MIG 3g.40gb Device -1: (UUID: MIG-a)\n", nil, "4"},
	} {
		r, err := parseReport([]byte(c.text), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.nameSlices(parseList([]byte("GPU 0: A (UUID: " + string(r.units[0].device.UUID) + ")\n" + c.list)))
		m := r.toMachine()
		d := m.Devices[0]
		var named []gpu.UUID
		for _, s := range d.MIG {
			named = append(named, s.UUID)
		}
		want := "GPU 0: " + c.unnamed + " of its MIG devices cannot be named, so no job gets them"
		if !slices.Equal(named, c.named) || !d.UsesMIG() || len(m.Problems) != 1 || !strings.HasPrefix(m.Problems[0], want) {
			t.Errorf("%s: device %+v, problems %q", name, d, m.Problems)
		}
		for i, p := range m.Processes[:3] {
			if i == 0 && len(c.named) > 0 {
				same(t, name, p.GPU, c.named[0])
			} else {
				same(t, name, p.GPU, d.UUID)
			}
		}
	}
}

// TestInstancesWithoutMIG: a device that says that it has no MIG, or that it is off, is whole, whatever numbers its processes have.
func TestInstancesWithoutMIG(t *testing.T) {
	text := regexp.MustCompile(`(?s)<mig_devices>.*?</mig_devices>`).ReplaceAllString(string(fixture(t, "mig.xml")), "")
	for _, mode := range []string{"Disabled", "N/A"} {
		r, err := parseReport([]byte(strings.ReplaceAll(text, "<current_mig>Enabled<", "<current_mig>"+mode+"<")), nil)
		if err != nil {
			t.Fatal(err)
		}
		if m := r.toMachine(); m.Devices[0].UsesMIG() || len(m.Problems) > 0 || m.Processes[0].GPU != m.Devices[0].UUID {
			t.Errorf("%s: %+v, %q", mode, m.Devices[0], m.Problems)
		}
	}
}

func TestParseLostDevices(t *testing.T) {
	m := parsed(t, "lost.xml")
	var got []string
	for i, d := range m.Devices {
		if d.Index != i {
			t.Errorf("device %d has the index %d", i, d.Index)
		}
		got = append(got, d.PCI+" "+d.Problem)
	}
	same(t, "devices", got, []string{"0000:17:00.0 ", "0000:2a:00.0 cannot open the device: Unknown Error", "0000:3d:00.0 GPU is lost", "0000:5d:00.0 GPU needs a reset"})
	lost := m.Devices[2]
	same(t, "lost", lost, gpu.Device{Index: 2, UUID: "GPU-dddddddd-0000-1111-2222-00000000000c", Name: "NVIDIA H100 80GB HBM3", Vendor: gpu.NVIDIA,
		PCI: "0000:3d:00.0", Minor: new(2), Problem: "GPU is lost", ECCCorrected: lost.ECCCorrected, ECCUncorrected: lost.ECCUncorrected, RemappedRows: lost.RemappedRows})
	if d := m.Devices[3]; d.RecoveryAction != "reset" || d.Temperature == nil {
		t.Errorf("a device that needs a reset keeps its other readings: %+v", d)
	}
	want := []string{"WARNING: infoROM is corrupted at gpu 0000:17:00.0", "GPU 1: cannot open the device: Unknown Error", "GPU 2: GPU is lost", "GPU 3: GPU needs a reset"}
	same(t, "problems", m.Problems, want)
}

const one = `<nvidia_smi_log><gpu id="00000000:05:00.0"><uuid>GPU-1</uuid></gpu></nvidia_smi_log>`

func TestComplaintsAboutDevices(t *testing.T) {
	for errs, want := range map[string][]string{
		"Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system to recover this GPU": {"0000:02:00.0 GPU is lost", "0000:05:00.0 "},
		"Unable to determine the device handle for GPU1: 0000:09:00.0: Unknown Error":                                     {"0000:05:00.0 ", "0000:09:00.0 cannot open the device: Unknown Error"},
		"Unable to determine the device handle for GPU0: Unknown Error":                                                   {" cannot open the device: Unknown Error", "0000:05:00.0 "},
		"Unable to determine the device handle for GPU0000:05:00.0: Unknown Error":                                        {"0000:05:00.0 "},
		"Unable to determine the device handle for GPU: what":                                                             {"0000:05:00.0 "},
	} {
		r, err := parseReport([]byte(one), []byte(errs+"\n"+errs+"\n"))
		if err != nil {
			t.Errorf("%s: %v", errs, err)
			continue
		}
		var got []string
		for _, d := range r.toMachine().Devices {
			got = append(got, d.PCI+" "+d.Problem)
		}
		if len(got) > len(want) && want[0] == " cannot open the device: Unknown Error" {
			continue // without an address, a device that is reported twice cannot be recognised
		}
		same(t, errs, got, want)
	}
}

func TestFailuresAreToldApart(t *testing.T) {
	for text, want := range map[string]gpu.Cause{
		"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\n": gpu.DriverNotLoaded,
		"Failed to initialize NVML: Driver Not Loaded\n":                                                     gpu.DriverNotLoaded,
		"Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.161\n":        gpu.VersionMismatch,
		"Mismatch in versions between nvidia-smi and NVML. \nAre you sure you are using nvidia-smi provided": gpu.VersionMismatch,
		"Failed to initialize NVML: Insufficient Permissions\n":                                              gpu.NoPermission,
		"No devices were found\n": gpu.NoDevice,
		"NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.":         gpu.LibraryMissing,
		"Failed to initialize NVML: Timeout":                                       gpu.NoAnswer,
		"Failed to initialize NVML: Unknown Error\n":                               gpu.DriverError,
		"Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.": gpu.DriverError,
		"":       gpu.DriverError,
		"\xff\n": gpu.DriverError,
		"<nvidia_smi_log><attached_gpus>0</attached_gpus></nvidia_smi_log>":                                 gpu.NoDevice,
		"<nvidia_smi_log><gpu><uuid>GPU-1</gpu></nvidia_smi_log>":                                           gpu.DriverError,
		"<nvidia_smi_logs></nvidia_smi_logs>":                                                               gpu.DriverError,
		"<nvidia_smi_log><gpu><uuid>GPU is lost</uuid></gpu></nvidia_smi_log>":                              gpu.DriverError,
		"<nvidia_smi_log>" + strings.Repeat("<a>", 20000):                                                   gpu.DriverError,
		"<nvidia_smi_log><gpu>" + strings.Repeat("<pci>", 20000):                                            gpu.DriverError,
		"<nvidia_smi_log><gpu><uuid>GPU-1</uuid><product_name>&boom;</product_name></gpu></nvidia_smi_log>": gpu.DriverError,
	} {
		_, err := Parse([]byte(text))
		var u *gpu.Unavailable
		if !errors.As(err, &u) {
			t.Errorf("%.60q: error %v", text, err)
			continue
		}
		if u.Cause != want || !strings.HasPrefix(u.Text, "cannot ") || u.Remedy == "" {
			t.Errorf("%.60q: %+v, want the cause %s", text, *u, want)
		}
		if first, _, _ := strings.Cut(text, "\n"); want == gpu.DriverError && strings.HasPrefix(text, "Failed") && !strings.Contains(u.Text, first) {
			t.Errorf("%q does not quote nvidia-smi", u.Text)
		}
	}
}

// TestWhatCouldBeRead: of a document that is damaged the GPUs before that count, and what is wrong is said.
func TestWhatCouldBeRead(t *testing.T) {
	for text, want := range map[string]string{
		"<nvidia_smi_log><gpu><uuid>GPU-1</uuid></gpu>":                                 "damaged behind GPU 0, so GPUs behind it are not known: XML syntax error",
		"<nvidia_smi_log><gpu><uuid>GPU-1</uuid></gpu><gpu><uuid>GPU-2</uu":             "damaged behind GPU 0",
		"<nvidia_smi_log><!-- a -- b --><gpu><uuid>GPU-1</uuid></gpu></nvidia_smi_log>": "",
	} {
		m, err := Parse([]byte(text))
		if err != nil || len(m.Devices) != 1 || m.Devices[0].UUID != "GPU-1" || !strings.Contains(strings.Join(m.Problems, "\n"), want) || (len(m.Problems) > 0) != (want != "") {
			t.Errorf("%s: %+v, %v", text, m, err)
		}
	}
	for text, want := range map[string]gpu.UUID{
		"54dc0f0b-1234-5678-9abc-def012345678": "GPU-54dc0f0b-1234-5678-9abc-def012345678", "54dc0f0b": "", "GPU-x": "GPU-x", "54DC0f0b-1234-5678-9abc-def012345678": "",
	} {
		if got := safeUUID(text, "GPU-"); got != want {
			t.Errorf("%s is read as %q, want %q", text, got, want)
		}
	}
	line := func(kind, memory string) string {
		return "<process_info><pid>7</pid><type>" + kind + "</type><used_memory>" + memory + "</used_memory></process_info>"
	}
	both, err := Parse([]byte(strings.Replace(one, "</gpu>", "<processes>"+line("C", "300 MiB")+line("G", "N/A")+line("G", "400 MiB")+"</processes></gpu>", 1)))
	if err != nil || len(both.Processes) != 1 || both.Processes[0].Kind != gpu.BothKinds || *both.Processes[0].Memory != 400*gpu.MiB {
		t.Errorf("a process with several lines: %+v, %v", both.Processes, err)
	}
	failed := strings.Replace(one, "</gpu>", "<temperature><gpu_temp>ERR!</gpu_temp></temperature><utilization><gpu_util>[Unknown Error]</gpu_util></utilization></gpu>", 1)
	m, err := Parse([]byte(failed))
	if err != nil || !slices.Equal(m.Problems, []string{"GPU 0: cannot read its utilisation: nvidia-smi says that there was an error", "GPU 0: cannot read its temperature: nvidia-smi says that there was an error"}) {
		t.Errorf("%q, %v", m.Problems, err)
	}
}

func TestParseRefusesTooMuch(t *testing.T) {
	var u *gpu.Unavailable
	if _, err := Parse(make([]byte, maxReportSize+1)); !errors.As(err, &u) || u.Cause != gpu.DriverError || !strings.Contains(u.Text, "64 MiB") {
		t.Errorf("too much input: %v", err)
	}
}

func TestTheSameDeviceTwice(t *testing.T) {
	m, err := Parse([]byte(strings.Replace(one, "</gpu>", "</gpu><gpu><uuid>GPU-1</uuid></gpu>", 1)))
	if err != nil || len(m.Devices) != 1 || len(m.Problems) != 1 || !strings.Contains(m.Problems[0], "GPU-1 twice") {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestReadings(t *testing.T) {
	for text, want := range map[string]bool{"1 W": true, " 12.50  W ": true, "N/A": false, "[N/A]": false, "Not Supported": false, "Unknown Error": false, "ERR!": false,
		"[GPU requires reset]": false, "": false, "W": false, "5": false, "5 MiB": false, "inf W": false, "NaN W": false, "0x10 W": false, "1e9 W": false, "-3 W": false, "5 W W": false, "99999999999999999999 W": false} {
		if got := parseWatts(text); (got != nil) != want {
			t.Errorf("watts(%q) is there: %v, want %v", text, got != nil, want)
		}
	}
	for text, want := range map[string]string{"00000000:17:00.0": "0000:17:00.0", "0000:AF:1F.7": "0000:af:1f.7", "00010000:01:00.0": "10000:01:00.0", "000024C3:00:00.0": "24c3:00:00.0",
		"17:00.0": "", "": "", "0000:17:00": "", "0000:170:00.0": "", "0000:17:20.0": "", "x:17:00.0": "", "-1:17:00.0": "", "N/A": ""} {
		if got := kernelAddress(text); got != want {
			t.Errorf("bus(%q) = %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]gpu.UUID{"GPU-1a": "GPU-1a", " GPU-1 ": "GPU-1", "GPU-": "", "GPU is lost": "", "MIG-1": "", "GPU-a b": "", "GPU-a,b": "", "GPU-\x1b": ""} {
		if got := safeUUID(text, "GPU-"); got != want {
			t.Errorf("uuid(%q) = %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]gpu.Kind{"C": gpu.ComputeProcess, "G": gpu.GraphicsProcess, "C+G": gpu.BothKinds, "M+C": gpu.ComputeProcess, "M+C+G": gpu.BothKinds, "N/A": "", "": ""} {
		if got := parseKind(text); got != want {
			t.Errorf("kind(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestParseListIgnoresWhatItDoesNotKnow(t *testing.T) {
	got := parseList([]byte("  MIG 1g.5gb Device 0: (UUID: MIG-orphan)\nGPU 0: A (UUID: fake) B (UUID: GPU-1)\n  MIG 1g.5gb+me Device  3: (UUID: MIG-2)\n  MIG broken\n  MIG 1g.5gb Device x: (UUID: MIG-3)\n" +
		"GPU 1: C (UUID: N/A)\n  MIG 1g.5gb Device 0: (UUID: MIG-4)\n"))
	same(t, "list", got, []namedSlice{{parent: "GPU-1", index: 3, uuid: "MIG-2", profile: "1g.5gb+me"}})
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"driver-470.xml", "driver-550.xml", "driver-580.xml", "mig.xml", "lost.xml", "mig.list"} {
		f.Add(fixture(f, name))
	}
	f.Add([]byte(one))
	f.Add([]byte("Failed to initialize NVML: Unknown Error"))
	f.Add([]byte("<nvidia_smi_log><process_name><supported_clocks></process_name></supported_clocks>"))
	f.Fuzz(func(t *testing.T, input []byte) {
		parseList(input)
		m, err := Parse(input)
		if err != nil {
			var u *gpu.Unavailable
			if !errors.As(err, &u) || u.Cause == "" || u.Remedy == "" || !utf8.ValidString(u.Text) {
				t.Fatalf("error without a cause: %#v", err)
			}
			return
		}
		seen := map[gpu.UUID]bool{"": true}
		for i, d := range m.Devices {
			if d.Index != i || d.UUID != "" && seen[d.UUID] || d.UUID == "" && d.Problem == "" {
				t.Fatalf("device %d: %+v", i, d)
			}
			seen[d.UUID] = true
			for _, b := range []*gpu.Bytes{d.MemoryTotal, d.MemoryUsed, d.MemoryReserved} {
				if b != nil && *b < 0 {
					t.Fatalf("negative memory in device %d", i)
				}
			}
		}
		for _, p := range m.Processes {
			if p.PID <= 0 || !seen[p.GPU] || p.GPU == "" || prose.Clean(p.Command) != p.Command {
				t.Fatalf("process %+v", p)
			}
		}
	})
}

// TestProcessesThatAreNotListed: a text in place of the list is no empty list, and drivers before 340 have another name
// for it.
func TestProcessesThatAreNotListed(t *testing.T) {
	for text, want := range map[string]string{
		"<processes>N/A</processes>":                                                            "cannot list its processes: nvidia-smi says N/A []",
		"<compute_processes>N/A</compute_processes>":                                            "cannot list its processes: nvidia-smi says N/A []",
		"<compute_processes>\n<process_info><pid>77</pid></process_info>\n</compute_processes>": " [77]",
		"<processes>\n</processes>":                                                             " []",
		"":                                                                                      " []",
	} {
		r, err := parseReport([]byte("<nvidia_smi_log><gpu><uuid>GPU-1</uuid>"+text+"</gpu></nvidia_smi_log>"), nil)
		if err != nil {
			t.Fatal(err)
		}
		m, pids := r.toMachine(), []int{}
		for _, p := range m.Processes {
			pids = append(pids, p.PID)
		}
		if got := fmt.Sprint(m.Devices[0].Unlisted, " ", pids); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
