package container

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/docker/cli/opts"

	"gpuard/internal/core/gpu"
)

// TestDockersParser: Docker's own parser reads the request as exactly the devices of the lease, whatever their number.
func TestDockersParser(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 4; n++ {
		form := lease(t, Facts{Engine: "docker", Toolkit: true}, n)
		m, err := gpu.InventMachine("demo:4xA100-80GB")
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, d := range m.Devices[:n] {
			want = append(want, string(d.UUID))
		}
		var read opts.GpuOpts
		if err := read.Set(form.Words[1]); err != nil || form.Words[0] != "--gpus" {
			t.Fatalf("%q: %v", form.Words, err)
		}
		got := read.Value()
		if len(got) != 1 || got[0].Count != 0 || !slices.Equal(got[0].DeviceIDs, want) || len(got[0].Capabilities) != 1 || !slices.Equal(got[0].Capabilities[0], []string{"gpu"}) {
			t.Errorf("%q is read as %+v", form.Words, got)
		}
	}
}

// FuzzDockersMounts: what Docker's own parser would mount is what is judged, however it is written.
func FuzzDockersMounts(f *testing.F) {
	for _, value := range []string{
		"type=bind,source=/dev,target=/x", `"type=bind","SRC=/a,b",dst=/x,ro`, "TYPE=Bind,Source=./a,Destination=/x", "src=devs,dst=/x", "type=bind,src=/a,src=/dev,dst=/x", " type=bind,src=/a,dst=/x ",
		"type=volume,src=n,dst=/x,volume-opt=type=none,volume-opt=o=bind,volume-opt=device=/dev", "type=bind,src=/a,type=volume,dst=/x", "dst=/x,type=tmpfs",
	} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		var read opts.MountOpt
		if err := read.Set(value); err != nil {
			return
		}
		sources, why := readMount(value)
		if why != "" {
			return
		}
		has := func(name string) bool {
			return slices.ContainsFunc(sources, func(s source) bool {
				absolute, err := filepath.Abs(s.name)
				return s.name == name || err == nil && absolute == name
			})
		}
		for _, m := range read.Value() {
			if (m.Type == "bind" || m.Type == "volume") && m.Source != "" && !has(m.Source) {
				t.Errorf("%q mounts %q, and %v is judged", value, m.Source, sources)
			}
			if m.VolumeOptions != nil && m.VolumeOptions.DriverConfig != nil {
				if device := m.VolumeOptions.DriverConfig.Options["device"]; strings.HasPrefix(device, "/") && !has(device) {
					t.Errorf("%q mounts the device %q, and %v is judged", value, device, sources)
				}
			}
		}
	})
}
