package cdi

import (
	"reflect"
	"testing"

	"gpuard/internal/core/hostinfo"
)

// generated has the shape of what nvidia-ctk cdi generate writes.
const generated = `---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  hooks:
  - args:
    - nvidia-cdi-hook
    - create-symlinks
    - --link
    - libcuda.so.1::/usr/lib/x86_64-linux-gnu/libcuda.so
    hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
  mounts:
  - containerPath: /run/nvidia-persistenced/socket
    hostPath: /run/nvidia-persistenced/socket
  - containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.1
    hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.1
  - containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14
    hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: "0"
- containerEdits: {}
  name: GPU-11111111-2222-3333-4444-555555555555
- containerEdits: {}
  name: all
kind: nvidia.com/gpu
`

func TestRead(t *testing.T) {
	want := hostinfo.CDISpec{Version: "0.5.0", Kind: "nvidia.com/gpu", Devices: []string{"0", "GPU-11111111-2222-3333-4444-555555555555", "all"}, Driver: "550.54.14"}
	for name, src := range map[string]string{
		"YAML": generated,
		"JSON": `{"cdiVersion":"0.5.0","kind":"nvidia.com/gpu","devices":[{"name":"0","containerEdits":{"mounts":[{"hostPath":"/x/libnvidia-ml.so.550.54.14"}]}},` +
			`{"name":"GPU-11111111-2222-3333-4444-555555555555"},{"name":"all"}]}`,
	} {
		if got, err := ReadSpec([]byte(src)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, want)
		}
	}
	other, err := ReadSpec([]byte("cdiVersion: \"0.6.0\"\nkind: amd.com/gpu\ndevices: []\n"))
	if err != nil || other.Kind != "amd.com/gpu" || other.Driver != "" || other.Devices != nil {
		t.Errorf("another vendor's: %+v, %v", other, err)
	}
	for _, src := range []string{"", "{", "a: b", "kind: nvidia.com/gpu", "- a\n- b\n", "cdiVersion: [1]\nkind: {}\n", `{"cdiVersion": 5}`, "\x00", "devices:\n - &a [*a]\n"} {
		if got, err := ReadSpec([]byte(src)); err == nil || !reflect.DeepEqual(got, hostinfo.CDISpec{}) {
			t.Errorf("%q: %+v, %v", src, got, err)
		}
	}
}

func TestDriverOf(t *testing.T) {
	for host, want := range map[string]string{
		"/usr/lib/libcuda.so.1": "", "/usr/lib/libcuda.so": "", "/usr/lib64/libcuda.so.535.104": "535.104", "libnvidia-ml.so.580.65.06": "580.65.06",
		"/usr/lib/libcuda.so.1.1.1.1": "", "/usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1.1": "", "/usr/lib/libcuda.so.x.y": "", "/usr/lib/libcudart.so.12.4.127": "", "": "",
	} {
		if got, _ := driverOf(host); got != want {
			t.Errorf("driverOf(%s) = %q, want %q", host, got, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(generated))
	f.Add([]byte(`{"cdiVersion":"0.5.0","kind":"nvidia.com/gpu","devices":[{"name":"0"}]}`))
	f.Fuzz(func(t *testing.T, src []byte) {
		spec, err := ReadSpec(src)
		if err == nil && (spec.Kind == "" || spec.Version == "") || err != nil && !reflect.DeepEqual(spec, hostinfo.CDISpec{}) {
			t.Errorf("%+v, %v", spec, err)
		}
	})
}
