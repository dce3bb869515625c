package doctor

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/proc"
)

// planted writes files below a new root; a name that ends in / is a folder.
func planted(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		folder := path
		if !strings.HasSuffix(name, "/") {
			folder = filepath.Dir(path)
		}
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if folder != path {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return root
}

func TestSiteContainers(t *testing.T) {
	const spec = "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ncontainerEdits:\n  mounts:\n  - hostPath: /usr/lib64/libcuda.so.550.54.14\ndevices:\n- name: \"0\"\n- name: all\n"
	host := &machine.Host{Root: planted(t, map[string]string{
		"usr/bin/nvidia-container-runtime-hook":                  "",
		"usr/bin/dockerd":                                        "",
		"usr/lib/x86_64-linux-gnu/libnvidia-container.so.1.17.8": "",
		"usr/lib/x86_64-linux-gnu/libnvidia-container.so.1":      "",
		"etc/nvidia-container-runtime/config.toml":               "accept-nvidia-visible-devices-envvar-when-unprivileged = false\n[nvidia-container-runtime]\nmode = \"legacy\"\n",
		"etc/docker/daemon.json":                                 `{"default-runtime": "nvidia"}`,
		"sys/fs/cgroup/cgroup.controllers":                       "cpu\n",
		"run/systemd/system/":                                    "",
		"usr/share/containers/oci/hooks.d/oci-nvidia-hook.json":  "{}",
		"etc/cdi/nvidia.yaml":                                    spec,
		"etc/cdi/notes.txt":                                      "no such file",
		"var/run/cdi/broken.yaml":                                "kind: [",
		"var/run/cdi/other.json":                                 `{"cdiVersion":"0.6.0","kind":"amd.com/gpu","devices":[{"name":"0"}]}`,
	})}
	got := siteContainers(t.Context(), host)
	c := got.Found
	if got.Problem != "" || !c.Toolkit || !c.Hook || !c.Docker || c.Podman || c.ToolkitVersion != "1.17.8" || c.Mode != "legacy" || c.DefaultRuntime != "nvidia" ||
		c.EnvWhenUnprivileged == nil || *c.EnvWhenUnprivileged || c.CgroupDriver != "systemd" || !c.CgroupDefault || c.HookFile == "" || c.Problems != nil {
		t.Errorf("%+v, %s", c, got.Problem)
	}
	if len(c.Specs) != 3 {
		t.Fatalf("%d files of CDI: %+v", len(c.Specs), c.Specs)
	}
	first, broken, other := c.Specs[0], c.Specs[1], c.Specs[2]
	if first.Path != "/etc/cdi/nvidia.yaml" || first.Folder != 0 || first.Driver != "550.54.14" || !slices.Equal(first.Devices, []string{"0", "all"}) || first.Modified.IsZero() || first.Problem != "" {
		t.Errorf("%+v", first)
	}
	if broken.Path != "/var/run/cdi/broken.yaml" || broken.Folder != 1 || broken.Problem == "" || other.Kind != "amd.com/gpu" {
		t.Errorf("%+v, %+v", broken, other)
	}
}

// TestSiteEngines: who may use which engine, from files alone.
func TestSiteEngines(t *testing.T) {
	root := planted(t, map[string]string{"usr/bin/dockerd": "", "usr/bin/podman": "", "run/user/": "", "etc/subuid": "ann:100000:65536\n", "usr/bin/newuidmap": "", "usr/bin/newgidmap": ""})
	host := &machine.Host{Root: root, Proc: proc.New("/proc")}
	if c := siteContainers(t.Context(), host).Found; c.DockerSocket != "" || c.DockerDenied {
		t.Errorf("without a socket: %+v", c)
	}
	l, err := net.Listen("unix", filepath.Join(root, "run/docker.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // the end of the test
	if c := siteContainers(t.Context(), host).Found; c.DockerSocket != "/run/docker.sock" || c.DockerDenied {
		t.Errorf("with a socket: %+v", c)
	}
	if got := podmanLacks(host); got != "you have no range of IDs in /etc/subuid" {
		t.Errorf("without a range: %q", got)
	}
	ranges := fmt.Sprintf("ann:100000:65536\n%d:200000:65536\n", os.Getuid())
	for _, name := range []string{"subuid", "subgid"} {
		if err := os.WriteFile(filepath.Join(root, "etc", name), []byte(ranges), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := podmanLacks(host); got != "" {
		t.Errorf("with ranges: %q", got)
	}
	if err := os.Remove(filepath.Join(root, "usr/bin/newgidmap")); err != nil || podmanLacks(host) != "the program newgidmap is not" {
		t.Errorf("without newgidmap: %v, %q", err, podmanLacks(host))
	}
}

func TestSiteContainersOfNothing(t *testing.T) {
	got := siteContainers(t.Context(), (&machine.Host{Root: t.TempDir()}))
	if got.Problem != "" || !reflect.DeepEqual(got.Found, hostinfo.Containers{}) {
		t.Errorf("%+v", got)
	}
}

// TestSiteContainersUnread: what cannot be understood is a problem with its file, and the rest is still read.
func TestSiteContainersUnread(t *testing.T) {
	root := planted(t, map[string]string{"etc/docker/daemon.json": "{", "usr/bin/dockerd": "", "etc/cdi/nvidia.yaml": ""})
	if err := os.MkdirAll(filepath.Join(root, "etc/nvidia-container-runtime"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(root, "etc/nvidia-container-runtime/config.toml"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := siteContainers(t.Context(), (&machine.Host{Root: root})).Found
	if len(c.Problems) != 2 || !c.Docker || c.CgroupDriver != "cgroupfs" || len(c.Specs) != 1 || c.Specs[0].Problem == "" {
		t.Errorf("%+v", c)
	}
}

// TestSiteContainersManySpecs: a folder full of files is read in part, and it is told.
func TestSiteContainersManySpecs(t *testing.T) {
	many := map[string]string{}
	for i := range 65 {
		many[fmt.Sprintf("etc/cdi/%02d.yaml", i)] = "cdiVersion: 0.5.0\nkind: example.com/x\n"
	}
	c := siteContainers(t.Context(), (&machine.Host{Root: planted(t, many)})).Found
	if len(c.Specs) != 64 || len(c.Problems) != 1 || !strings.Contains(c.Problems[0], "/etc/cdi: only the first 64 of 65") {
		t.Errorf("%d files, %q", len(c.Specs), c.Problems)
	}
}

func TestSiteContainer(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		env   visible.Env
		want  string
	}{
		"machine":    {map[string]string{"run/systemd/system/": ""}, visible.Env{"PATH=/bin"}, ""},
		"Docker":     {map[string]string{".dockerenv": ""}, nil, "docker"},
		"Podman":     {map[string]string{"run/.containerenv": "engine=\"podman\""}, nil, "podman"},
		"Kubernetes": {map[string]string{".dockerenv": ""}, visible.Env{"KUBERNETES_SERVICE_HOST=10.0.0.1"}, "kubernetes"},
		"Apptainer":  {nil, visible.Env{"APPTAINER_CONTAINER=/x.sif"}, "apptainer"},
		"said":       {nil, visible.Env{"container=systemd-nspawn"}, "systemd-nspawn"},
		"WSL":        {map[string]string{"run/systemd/container": "wsl\n"}, nil, ""},
		"own word":   {nil, visible.Env{"container=training-data"}, ""},
		"both":       {map[string]string{"run/systemd/container": "lxc\n"}, visible.Env{"container=training-data"}, "lxc"},
		"LXC":        {map[string]string{"run/systemd/container": "lxc\n"}, nil, "lxc"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (&machine.Host{Root: planted(t, c.files), Env: c.env}).Container(); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestSiteNCCL(t *testing.T) {
	root := planted(t, map[string]string{"etc/nccl.conf": "NCCL_DEBUG=WARN\n", "home/ann/.nccl.conf": "NCCL_ALGO=Ring\n", "mine.conf": "NCCL_P2P_DISABLE=1\n"})
	home := "HOME=" + filepath.Join(root, "home/ann")
	for name, c := range map[string]struct {
		env  visible.Env
		want []string // settings or problem of each file
	}{
		"of the user":     {visible.Env{home}, []string{"NCCL_ALGO=Ring", "NCCL_DEBUG=WARN"}},
		"named":           {visible.Env{home, "NCCL_CONF_FILE=" + filepath.Join(root, "mine.conf")}, []string{"NCCL_P2P_DISABLE=1", "NCCL_DEBUG=WARN"}},
		"named, not here": {visible.Env{home, "NCCL_CONF_FILE=" + filepath.Join(root, "none")}, []string{"there is no such file, which NCCL_CONF_FILE names", "NCCL_DEBUG=WARN"}},
		"named by ~":      {visible.Env{home, "NCCL_CONF_FILE=~/mine.conf"}, []string{"NCCL does not understand ~ in NCCL_CONF_FILE", "NCCL_DEBUG=WARN"}},
		"no home":         {nil, []string{"NCCL_DEBUG=WARN"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, f := range siteNCCL(t.Context(), (&machine.Host{Root: root, Env: c.env})).Found {
				got = append(got, f.Problem+strings.Join(f.Settings, " "))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestSiteState(t *testing.T) {
	run := t.TempDir()
	host := &machine.Host{Run: run, Tmp: t.TempDir(), Root: "/", Proc: proc.New("/proc"), PrivateState: true, Messages: machine.Messages{Say: func(string) {}}, Env: visible.Env{"GPUARD_STATE=" + filepath.Join(run, "own")}}
	s := siteState(t.Context(), host).Found
	if s.Exists || s.Problem != "" || !s.Named || s.Folder != filepath.Join(run, "own") || s.Leases != 0 {
		t.Errorf("before anything was leased: %+v", s)
	}
	if _, err := os.Lstat(s.Folder); err == nil {
		t.Error("looking made the folder")
	}
	f, err := host.Folder(gpu.Machine{}, true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // a test
	if err := os.MkdirAll(filepath.Join(run, "gpuard"), 0o755); err != nil {
		t.Fatal(err)
	}
	s = siteState(t.Context(), host).Found
	if !s.Exists || s.Problem != "" || !slices.Equal(s.Others, []string{filepath.Join(run, "gpuard")}) {
		t.Errorf("with a folder, and another beside it: %+v", s)
	}
	host.Env = nil
	s = siteState(t.Context(), host).Found
	if s.Named || !s.Exists || !strings.Contains(s.Problem, "not a gpuard state folder") {
		t.Errorf("in a folder that is none: %+v", s)
	}
	host.Env = visible.Env{"GPUARD_STATE=" + filepath.Join(run, "none", "deeper")}
	if s := siteState(t.Context(), host).Found; s.Exists || !strings.Contains(s.Problem, "make "+filepath.Join(run, "none")+" first") {
		t.Errorf("below a folder that is not there: %+v", s)
	}
	if got := siteState(t.Context(), (&machine.Host{Env: visible.Env{"GPUARD_STATE=relative"}})); !strings.Contains(got.Problem, "absolute") {
		t.Errorf("with a relative path: %+v", got)
	}
}
