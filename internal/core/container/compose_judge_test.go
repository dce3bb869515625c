package container

import (
	"strings"
	"testing"
)

// TestServicesBeyond: a service that would have what the lease does not have is refused, with GPUs and without, and no
// ordinary one is.
func TestServicesBeyond(t *testing.T) {
	t.Parallel()
	const (
		ours   = `"deploy": {"resources": {"reservations": {"devices": [{"driver": "${GPUARD_COMPOSE_DRIVER:-x}", "device_ids": ["${GPUARD_X_1}"]}]}}}, `
		shared = `"volumes": {"dev": {"driver_opts": {"type": "none", "o": "bind", "device": "/dev"}}, "over": {"driver_opts": {"type": "overlay", "o": "lowerdir=/proc:/a"}}, "devs": {"name": "devs", "external": true},
			"data": {"driver_opts": {"type": "nfs", "o": "addr=10.0.0.1", "device": ":/export"}}, "plain": null},
			"secrets": {"key": {"file": "/home/ann/key"}, "node": {"file": "/dev/nvidia3"}}, "configs": {"proc": {"file": "/proc/1/root"}, "conf": {"content": "a"}}`
	)
	refused, passed := []string{
		`"privileged": true`, `"privileged": "true"`, `"volumes": ["/dev:/dev"]`, `"volumes": ["../../../dev:/x:ro"]`, `"volumes": [{"type": "bind", "source": "/dev/dri", "target": "/x"}]`,
		`"volumes": [{"type": "bind", "source": "/proc", "target": "/x", "read_only": true}]`, `"volumes": [{"type": "bind", "source": "/", "target": "/x"}]`,
		`"volumes": [{"type": "bind", "source": "./link", "target": "/x"}]`, `"volumes": [{"type": "bind", "source": "/var/run/docker.sock", "target": "/x"}]`,
		`"volumes": [{"type": "bind", "source": "/dev/null", "target": "/var/run/nvidia-container-devices/all"}]`, `"volumes": [{"type": "unheard", "source": "x", "target": "/x"}]`,
		`"volumes": [{"type": "volume", "source": "dev", "target": "/x"}]`, `"volumes": ["over:/x"]`, `"volumes": ["devs:/x"]`, `"volumes": [{"type": "bind", "source": "/sys/fs/cgroup", "target": "/x"}]`,
		`"volumes_from": ["container:greedy:ro"]`, `"volumes_from": ["open"]`, `"secrets": ["node"]`, `"secrets": [{"source": "node", "target": "x"}]`, `"configs": [{"source": "proc"}]`,
		`"devices": ["/dev/mem:/dev/mem"]`, `"devices": [{"source": "/dev/vfio/1", "target": "/x"}]`, `"devices": ["management.nvidia.com/gpu=all"]`, `"devices": ["/dev/char:/x"]`, `"devices": ["/srv/node:/x"]`,
		`"cap_add": ["SYS_ADMIN"]`, `"cap_add": ["all"]`, `"security_opt": ["unheard:1"]`, `"device_cgroup_rules": ["c 195:* rwm"]`, `"runtime": "habana"`, `"use_api_socket": true`,
		`"annotations": {"cdi.k8s.io/x": "nvidia.com/gpu=all"}`, `"annotations": ["cdi.k8s.io/x=nvidia.com/gpu=all"]`, `"models": {"llm": {}}`, `"provider": {"type": "x"}`, `"unheard": 1`,
		`"post_start": [{"command": "x", "privileged": true}]`, `"build": {"privileged": true}`, `"build": {"entitlements": ["security.insecure"]}`, `"environment": {"HABANA_VISIBLE_DEVICES": "all"}`,
	}, []string{
		`"image": "x", "ports": ["80:80"], "restart": "always", "ipc": "host", "network_mode": "host", "shm_size": "8g", "ulimits": {"memlock": -1}, "x-own": 1`,
		`"privileged": false, "use_api_socket": false`, `"volumes": ["./dev:/x", "data:/data", "plain:/p", "/dev/shm:/dev/shm", "/sys/fs/cgroup:/x:ro"]`, `"volumes": [{"type": "bind", "source": "/home/ann/project", "target": "/w"}]`,
		`"volumes": [{"type": "tmpfs", "target": "/x"}, {"type": "volume", "source": "plain", "target": "/x", "volume": {}}]`, `"secrets": ["key"], "configs": ["conf"]`, `"pid": "host"`,
		`"devices": ["/dev/snd:/dev/snd"], "cap_add": ["SYS_PTRACE"], "security_opt": ["seccomp:unconfined"]`, `"device_cgroup_rules": ["c 189:* rmw"]`, `"volumes_from": ["calm"]`,
		`"runtime": "runc", "userns_mode": "host", "cgroup": "host", "post_start": [{"command": "x"}], "build": {"context": "."}, "develop": {"watch": []}`, `"volumes": ["${DEV}:/x"]`,
	}
	say := func(service string) string {
		p, err := ReadProject([]byte(`{"name": "p", "services": {"a": {` + service + `}, "open": {"volumes": ["/dev:/x"]}, "calm": {"volumes": ["/data:/x"]}}, ` + shared + `}`))
		if err != nil {
			t.Fatalf("%s: %v", service, err)
		}
		found := onMachine()
		found.Paths["/srv/node"] = []string{"/dev/mapper/x", "/dev/nvidia3"}
		call, err := ReadCall([]string{"docker", "compose", "up", "a"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = call.LeasingServices(p.WithFound(found)); err != nil {
			return err.Error()
		}
		return ""
	}
	for _, service := range refused {
		if why := say(service); !strings.HasPrefix(why, "cannot start service a beside a lease: ") || strings.Contains(why, "\n") {
			t.Errorf("%s: %q", service, why)
		}
		if why := say(ours + service); !strings.HasPrefix(why, "cannot keep service a to its GPUs: ") && !strings.Contains(why, "in another way") {
			t.Errorf("with a GPU, %s: %q", service, why)
		}
	}
	for _, service := range passed {
		if why := say(service) + say(ours+service); why != "" {
			t.Errorf("%s: %q", service, why)
		}
	}
	for service, want := range map[string]string{
		`"environment": {"NVIDIA_VISIBLE_DEVICES": "all"}`:  "cannot start service a without a GPU: it sets NVIDIA_VISIBLE_DEVICES=all",
		ours + `"gpus": "all"`:                              "it asks for GPUs in another way than when its file was written",
		ours + `"devices": ["/dev/nvidia3"]`:                "it asks for GPUs in another way than when its file was written",
		`"environment": {"NVIDIA_VISIBLE_DEVICES": "void"}`: "",
	} {
		if why := say(service); want == "" && why != "" || !strings.Contains(why, want) {
			t.Errorf("%s: %q", service, why)
		}
	}
}

// TestFilled: what variables of a project stand for is judged, and its own variables stay those of the file.
func TestFilled(t *testing.T) {
	t.Parallel()
	const service = `{"services": {"a": {"deploy": {"resources": {"reservations": {"devices": [{"driver": "DRIVER", "device_ids": ["1"]}]}}}, "volumes": ["DATA:/x"], "privileged": "ROOT"}}}`
	p, err := ReadProject([]byte(strings.NewReplacer("DRIVER", "${GPUARD_COMPOSE_DRIVER:-x}", "DATA", "${DATA}", "ROOT", "${ROOT:-false}").Replace(service)))
	if err != nil {
		t.Fatal(err)
	}
	if why := p.Services[0].reasonAgainst(Found{}); why != "" {
		t.Errorf("variables: %s", why)
	}
	for values, want := range map[[2]string]string{{"/dev", "false"}: "/dev among its volumes", {"/data", "true"}: "privileged", {"/data", "false"}: ""} {
		filled, err := ReadProject([]byte(strings.NewReplacer("DRIVER", "x", "DATA", values[0], "ROOT", values[1]).Replace(service)))
		if err != nil {
			t.Fatal(err)
		}
		s := p.WithVariables(filled).Services[0]
		if why := s.reasonAgainst(Found{}); !s.Ours || want == "" && why != "" || !strings.Contains(why, want) {
			t.Errorf("%q: %q", values, why)
		}
	}
}

// TestDeviceFile: the numbers of a device file say what it opens, whatever its name.
func TestDeviceFile(t *testing.T) {
	t.Parallel()
	for numbers, want := range map[[2]uint32]string{
		{195, 3}: "/dev/nvidia3", {195, 255}: "/dev/nvidiactl", {195, 254}: "/dev/nvidia-modeset", {226, 0}: "/dev/dri/card0", {226, 129}: "/dev/dri/renderD129", {261, 1}: "/dev/accel/accel1", {1, 3}: "", {10, 229}: "",
	} {
		if got := DeviceFile(numbers[0], numbers[1]); got != want {
			t.Errorf("%v is %q, want %q", numbers, got, want)
		}
	}
}
