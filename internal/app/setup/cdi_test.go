package setup

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"gpuard/internal/app/engine"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/host/proc"
)

// siteWith is a machine with these devices and files.
func siteWith(t *testing.T, devices []gpu.Device, files ...string) *machine.Host {
	t.Helper()
	root := t.TempDir()
	for _, name := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // a test's folder
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("\x7fELF"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &machine.Host{Root: root, Proc: proc.New("/proc"), Run: t.TempDir(), Tmp: t.TempDir(), Messages: machine.Messages{Say: func(string) {}},
		Readers: machine.Readers{Reader: func(context.Context, gpu.Query) (gpu.Machine, error) { return gpu.Machine{Devices: devices}, nil }}}
}

// TestCDI: the official package reads the file and knows each device by UUID, by index, and all of them; it has the
// lowest version in which such names are allowed.
func TestCDI(t *testing.T) {
	t.Parallel()
	devices := []gpu.Device{
		{Index: 0, UUID: "GPU-aaaa-1", Vendor: gpu.NVIDIA, Minor: new(3)}, {Index: 1, UUID: "GPU-bbbb-2", Vendor: gpu.NVIDIA, Minor: new(0)},
		{Index: 2, UUID: "GPU-cccc-3", Vendor: gpu.NVIDIA, Minor: new(1), MIG: []gpu.MIGDevice{{UUID: "MIG-1"}}},
		{Index: 0, UUID: "GPU-dddd-4", Vendor: gpu.AMD, Minor: new(128)},
	}
	host := siteWith(t, devices, "dev/nvidiactl", "dev/nvidia-uvm", "dev/kfd")
	for vendor, want := range map[gpu.Vendor]map[string]string{
		gpu.NVIDIA: {"GPU-aaaa-1": "/dev/nvidia3", "0": "/dev/nvidia3", "GPU-bbbb-2": "/dev/nvidia0", "1": "/dev/nvidia0", "all": "/dev/nvidia3 /dev/nvidia0"},
		gpu.AMD:    {"GPU-dddd-4": "/dev/dri/renderD128", "0": "/dev/dri/renderD128", "all": "/dev/dri/renderD128"},
	} {
		spec, notes, err := engine.MachineSpec(t.Context(), host, vendor)
		if err != nil {
			t.Fatal(err)
		}
		if said := strings.Join(notes, "; "); vendor == gpu.NVIDIA && !strings.Contains(said, "GPU 2 has no entry") {
			t.Errorf("said %q", said)
		}
		text, err := json.Marshal(spec)
		path := filepath.Join(t.TempDir(), string(vendor)+".json")
		if err == nil {
			err = os.WriteFile(path, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		read, err := cdi.ReadSpec(path, 0)
		if err != nil {
			t.Fatalf("the official package refuses it: %v\n%s", err, text)
		}
		if lowest, err := specs.MinimumRequiredVersion(read.Spec); err != nil || lowest != spec.Version {
			t.Errorf("its version is %s, and %s would do (%v)", spec.Version, lowest, err)
		}
		for name, files := range want {
			d := read.GetDevice(name)
			if d == nil {
				t.Errorf("%s: no device %s", vendor, name)
				continue
			}
			var nodes []string
			for _, n := range d.ContainerEdits.DeviceNodes {
				nodes = append(nodes, n.Path)
			}
			if strings.Join(nodes, " ") != files {
				t.Errorf("%s %s: %q, want %s", vendor, name, nodes, files)
			}
		}
		if read.GetDevice("2") != nil {
			t.Error("a GPU with MIG slices is listed")
		}
	}
}

// TestCDISetup: one file for each vendor, only root may write it, and the file of a vendor stays.
func TestCDISetup(t *testing.T) {
	t.Parallel()
	devices := []gpu.Device{{UUID: "GPU-aaaa-1", Vendor: gpu.NVIDIA, Minor: new(0)}, {UUID: "GPU-dddd-4", Vendor: gpu.AMD, Minor: new(128)}}
	host := siteWith(t, devices, "dev/nvidiactl")
	paths := func() (names []string) {
		w, err := CDI{host}.Wish(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range w.Changes {
			names = append(names, filepath.Base(c.Path))
		}
		return names
	}
	if got := paths(); !slices.Equal(got, []string{"gpuard-nvidia.json", "gpuard-amd.json"}) {
		t.Errorf("%q", got)
	}
	theirs := filepath.Join(host.Root, "etc/cdi/nvidia.yaml")
	if err := os.MkdirAll(filepath.Dir(theirs), 0o755); err != nil { //nolint:gosec // a test's folder
		t.Fatal(err)
	}
	if err := os.WriteFile(theirs, []byte("cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: \"0\"\n  containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := paths(); !slices.Equal(got, []string{"gpuard-amd.json"}) {
		t.Errorf("beside the vendor's file: %q", got)
	}
}
