package toolkit

import (
	"reflect"
	"testing"

	"gpuard/internal/core/hostinfo"
)

func TestRuntime(t *testing.T) {
	for name, c := range map[string]struct {
		src  string
		want hostinfo.Containers
	}{
		"installed": {`
#accept-nvidia-visible-devices-envvar-when-unprivileged = true
disable-require = false
supported-driver-capabilities = "compat32,compute,display,graphics,ngx,utility,video"
[nvidia-container-cli]
environment = []
[nvidia-container-runtime]
mode = "auto"
runtimes = ["runc", "crun"]
[nvidia-container-runtime.modes.cdi]
default-kind = "nvidia.com/gpu"
`, hostinfo.Containers{Mode: "auto"}},
		"closed": {"accept-nvidia-visible-devices-envvar-when-unprivileged = false\naccept-nvidia-visible-devices-as-volume-mounts = true\n[nvidia-container-runtime]\nmode=\"legacy\"\n",
			hostinfo.Containers{EnvWhenUnprivileged: new(false), AsVolumeMounts: new(true), Mode: "legacy"}},
		"empty": {"", hostinfo.Containers{}},
	} {
		t.Run(name, func(t *testing.T) {
			var got hostinfo.Containers
			if err := ReadRuntime([]byte(c.src), &got); err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%+v, %v, want %+v", got, err, c.want)
			}
		})
	}
	for _, src := range []string{"mode = ", "accept-nvidia-visible-devices-envvar-when-unprivileged = \"yes\"", "[a]\n[a]\n"} {
		before := hostinfo.Containers{Mode: "cdi"}
		got := before
		if err := ReadRuntime([]byte(src), &got); err == nil || !reflect.DeepEqual(got, before) {
			t.Errorf("%q: %+v, %v", src, got, err)
		}
	}
}

func TestDocker(t *testing.T) {
	for name, c := range map[string]struct {
		src  string
		want hostinfo.Containers
	}{
		"nvidia for all": {`{"default-runtime": "nvidia", "runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}}}`, hostinfo.Containers{DefaultRuntime: "nvidia"}},
		"cgroupfs":       {`{"exec-opts": ["Native.CgroupDriver = cgroupfs"], "features": {"cdi": true}}`, hostinfo.Containers{CgroupDriver: "cgroupfs"}},
		"no CDI":         {`{"features": {"cdi": false, "buildkit": true}}`, hostinfo.Containers{CDIOff: true}},
		"empty":          {`{}`, hostinfo.Containers{}},
		"nothing":        {" \n", hostinfo.Containers{}},
		"a mark first":   {"\xef\xbb\xbf{\"default-runtime\": \"nvidia\"}\r\n", hostinfo.Containers{DefaultRuntime: "nvidia"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got hostinfo.Containers
			if err := ReadDocker([]byte(c.src), &got); err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%+v, %v, want %+v", got, err, c.want)
			}
		})
	}
	for _, src := range []string{"{", "nothing", `{"default-runtime": 1}`, `[]`} {
		if err := ReadDocker([]byte(src), &hostinfo.Containers{}); err == nil {
			t.Errorf("%q was read", src)
		}
	}
}

func FuzzRuntime(f *testing.F) {
	f.Add([]byte("accept-nvidia-visible-devices-envvar-when-unprivileged = false\n[nvidia-container-runtime]\nmode=\"legacy\"\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		var c hostinfo.Containers
		if err := ReadRuntime(src, &c); err != nil && !reflect.DeepEqual(c, hostinfo.Containers{}) {
			t.Errorf("%v, and yet %+v", err, c)
		}
	})
}

func FuzzDocker(f *testing.F) {
	f.Add([]byte(`{"exec-opts": ["native.cgroupdriver=cgroupfs"], "features": {"cdi": true}}`))
	f.Fuzz(func(t *testing.T, src []byte) {
		var c hostinfo.Containers
		if err := ReadDocker(src, &c); err != nil && !reflect.DeepEqual(c, hostinfo.Containers{}) {
			t.Errorf("%v, and yet %+v", err, c)
		}
	})
}
