package container

import (
	"encoding/json"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
)

// TestReadProject: how many GPUs a service asks for, in each way that Compose knows, and what cannot be kept to a lease.
func TestReadProject(t *testing.T) {
	t.Parallel()
	reserve := func(entry string) string {
		return `{"deploy": {"resources": {"reservations": {"devices": [` + entry + `]}}}`
	}
	for text, c := range map[string]struct {
		gpus        int
		all, ours   bool
		wrong, keep string
	}{
		`{"image": "x"}`: {},
		reserve(`{"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}`) + `}`:                                                                            {gpus: 1, all: true},
		reserve(`{"driver": "nvidia", "capabilities": ["gpu"]}`) + `}`:                                                                                            {gpus: 1, all: true},
		reserve(`{"count": -1, "capabilities": ["gpu"]}`) + `}`:                                                                                                   {gpus: 1, all: true},
		reserve(`{"count": 3, "capabilities": ["gpu", "utility"]}`) + `}`:                                                                                         {gpus: 3},
		reserve(`{"device_ids": ["0", "3"], "capabilities": ["gpu"]}`) + `}`:                                                                                      {gpus: 2},
		reserve(`{"driver": "cdi", "device_ids": ["nvidia.com/gpu=0"], "capabilities": ["gpu"]}`) + `}`:                                                           {gpus: 1},
		reserve(`{"driver": "x", "count": 1, "capabilities": ["tpu"]}`) + `}`:                                                                                     {},
		reserve(`{"driver": "${GPUARD_COMPOSE_DRIVER:-start}", "device_ids": ["${GPUARD_A_1:-none-1}", "${GPUARD_A_2:-none-2}"], "capabilities": ["gpu"]}`) + `}`: {gpus: 2, ours: true},
		`{"gpus": "all"}`:                               {gpus: 1, all: true},
		`{"gpus": [{"count": 2}]}`:                      {gpus: 2},
		`{"runtime": "nvidia"}`:                         {gpus: 1, all: true},
		`{"runtime": "nvidia", "environment": ["A=b"]}`: {gpus: 1, all: true},
		`{"runtime": "nvidia", "environment": {"NVIDIA_VISIBLE_DEVICES": "1,2"}}`:                                             {gpus: 2},
		`{"runtime": "nvidia", "environment": {"NVIDIA_VISIBLE_DEVICES": "void"}}`:                                            {},
		`{"devices": ["nvidia.com/gpu=0", "nvidia.com/gpu=1", "/dev/snd:/dev/snd"]}`:                                          {gpus: 2, keep: "/dev/snd:/dev/snd"},
		`{"devices": [{"source": "nvidia.com/gpu=all"}, {"source": "/dev/fuse", "target": "/dev/fuse", "permissions": "r"}]}`: {gpus: 1, all: true, keep: "/dev/fuse:/dev/fuse:r"},
		`{"devices": ["/dev/nvidia0:/dev/nvidia0", "/dev/nvidiactl:/dev/nvidiactl"]}`:                                         {gpus: 1},
		`{"devices": ["/dev/kfd", "/dev/dri/renderD128"]}`:                                                                    {gpus: 1},
		`{"privileged": true}`:                         {wrong: "privileged: true: it can open every device"},
		`{"gpus": [{"count": 1}], "privileged": true}`: {gpus: 1, wrong: "privileged: true: it can open"},
		`{"gpus": [{"count": 1}], "volumes": [{"type": "bind", "source": "/dev", "target": "/dev"}]}`: {gpus: 1, wrong: "/dev among its volumes"},
		`{"gpus": [{"count": 1}], "volumes": ["data:/data"]}`:                                         {gpus: 1},
		`{"gpus": [{"count": 1000000}]}`:                                                              {gpus: 1000000, wrong: "it asks for 1000000 GPUs"},
		`{"gpus": [{"count": 1}], "scale": 2}`:                                                        {gpus: 1, wrong: "2 containers of it would share"},
		`{"gpus": [{"count": 1}], "deploy": {"replicas": "3"}}`:                                       {gpus: 1, wrong: "3 containers of it would share"},
		`{"gpus": [{"count": 1}], "environment": ["CUDA_VISIBLE_DEVICES=2"]}`:                         {gpus: 1, wrong: "it sets CUDA_VISIBLE_DEVICES=2"},
		`{"gpus": [{"count": 2}], "environment": {"CUDA_VISIBLE_DEVICES": 1}}`:                        {gpus: 2},
	} {
		p, err := ReadProject([]byte(`{"name": "p", "services": {"a": ` + text + `}}`))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		s := p.Services[0]
		if s.GPUs != c.gpus || s.All != c.all || s.Ours != c.ours || strings.Join(s.files, " ") != c.keep || c.wrong == "" && s.reasonAgainst(Found{}) != "" || !strings.Contains(s.reasonAgainst(Found{}), c.wrong) {
			t.Errorf("%s: %+v, want %+v", text, s, c)
		}
	}
	if _, err := ReadProject([]byte(`{"services": {"a-b": {"gpus": "all"}, "a_b": {"gpus": "all"}}}`)); err == nil {
		t.Error("two services have the same variables")
	}
}

// TestStarts: which services a line starts, with those that they need; exact words of the person reach Compose.
func TestStarts(t *testing.T) {
	t.Parallel()
	const ours = `"deploy": {"resources": {"reservations": {"devices": [{"driver": "${GPUARD_COMPOSE_DRIVER:-x}", "device_ids": ["${GPUARD_X_1}"]}]}}}`
	p, err := ReadProject([]byte(`{"name": "p", "services": {"web": {` + ours + `, "depends_on": {"db": {}}}, "db": {"depends_on": ["model"]}, "model": {` + ours + `}, "other": {` + ours + `}, "late": {"gpus": [{"count": 1}]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"docker compose up web":                                              "model web",
		"docker compose up -d --no-deps web":                                 "web",
		"docker compose -f a.yaml --profile x up -t 3 other db":              "model other",
		"docker compose up --scale web=1 web":                                "model web",
		"docker compose up --scale web=2 web":                                "cannot start 2 containers of service web",
		"docker compose up --scale=web=2 web":                                "cannot start 2 containers of service web",
		"docker compose up":                                                  "cannot lease for service late",
		"docker compose up none":                                             "cannot start service none",
		"docker compose run --rm -e A=b web python other.py":                 "model web",
		"docker compose run --no-deps -T web sh -c 'echo other'":             "web",
		"docker compose run --no-TTY --labels a=b --volumes ./x:/x -P other": "other",
		"docker compose up --y -V --dry-run other":                           "other",
		"docker --context a compose run -it other":                           "other",
	} {
		c, err := ReadCall(strings.Fields(line))
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		list, err := c.LeasingServices(p)
		var names []string
		for _, s := range list {
			names = append(names, s.Name)
		}
		if got := strings.Join(names, " "); err == nil && got != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s starts %q, %v; want %s", line, got, err, want)
		}
	}
	if _, err := ReadCall(strings.Fields("docker compose run --rm")); err == nil || err.Error() != "there is no service" {
		t.Errorf("a run without a service: %v", err)
	}
}

// TestValues: each service gets its own GPUs, in the form that the engine can take.
func TestValues(t *testing.T) {
	t.Parallel()
	devices := []gpu.Device{{Vendor: gpu.NVIDIA, UUID: "GPU-a"}, {Vendor: gpu.NVIDIA, UUID: "GPU-b", Index: 1}, {Vendor: gpu.NVIDIA, UUID: "GPU-c", Index: 2}}
	list := []Service{{Name: "my-web", GPUs: 2}, {Name: "train", GPUs: 1}}
	for name, c := range map[string]struct {
		facts Facts
		want  string
	}{
		"request": {Facts{Engine: "docker", Toolkit: true}, "GPUARD_COMPOSE_DRIVER=nvidia GPUARD_COMPOSE_LEASE=l GPUARD_MY_WEB_1=GPU-a GPUARD_MY_WEB_2=GPU-b GPUARD_MY_WEB_VISIBLE=GPU-a,GPU-b GPUARD_MY_WEB_DEVICES=GPU-a,GPU-b GPUARD_TRAIN_1=GPU-c GPUARD_TRAIN_VISIBLE=GPU-c GPUARD_TRAIN_DEVICES=GPU-c"},
		"cdi":     {Facts{Engine: "docker", CDI: true, Names: []string{"nvidia.com/gpu=GPU-a", "nvidia.com/gpu=1", "nvidia.com/gpu=2"}}, "GPUARD_COMPOSE_DRIVER=cdi GPUARD_COMPOSE_LEASE=l GPUARD_MY_WEB_1=nvidia.com/gpu=GPU-a GPUARD_MY_WEB_2=nvidia.com/gpu=1 GPUARD_MY_WEB_VISIBLE=void GPUARD_MY_WEB_DEVICES=GPU-a,GPU-b GPUARD_TRAIN_1=nvidia.com/gpu=2 GPUARD_TRAIN_VISIBLE=void GPUARD_TRAIN_DEVICES=GPU-c"},
	} {
		form, err := ChooseForm(c.facts, devices)
		if err != nil {
			t.Fatal(err)
		}
		env, err := ServiceVariables(form, "l", list)
		if got := strings.Join(env, " "); err != nil || got != c.want {
			t.Errorf("%s: %v\n%s, want\n%s", name, err, got, c.want)
		}
		if form, err = ChooseForm(c.facts, devices[:2]); err == nil {
			_, err = ServiceVariables(form, "l", list)
		}
		if err == nil {
			t.Errorf("%s: two GPUs are enough for three", name)
		}
	}
	if _, err := ServiceVariables(Form{Kind: "nodes"}, "l", list); err == nil {
		t.Error("Compose takes device files")
	}
}

// TestOverrideReadBack: what is written says the same as what was asked for.
func TestOverrideReadBack(t *testing.T) {
	t.Parallel()
	p, err := ReadProject([]byte(`{"services": {"a": {"gpus": [{"count": 2}], "runtime": "nvidia", "devices": ["nvidia.com/gpu=0", "/dev/fuse"]}, "b": {}}}`))
	if err != nil {
		t.Fatal(err)
	}
	text, err := p.OverrideText("gpuard docker -- compose up")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"gpus: !reset null", "runtime: !reset null", `devices: !override ["/dev/fuse"]`, `device_ids: ["${GPUARD_A_1:-none-1}", "${GPUARD_A_2:-none-2}", "${GPUARD_A_3:-none-3}"]`, "  \"b\":\n    environment:\n      NVIDIA_VISIBLE_DEVICES: void\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	p.Services[0].wrong = "it is"
	if _, err := p.OverrideText(""); err == nil || !strings.Contains(err.Error(), "cannot keep service a to its GPUs: it is") {
		t.Error(err)
	}
}

// FuzzProject: no answer makes ReadProject or Override panic, and an override is never without the services with GPUs.
func FuzzProject(f *testing.F) {
	f.Add([]byte(`{"name": "p", "services": {"a": {"gpus": [{"count": "2"}], "environment": ["A"], "depends_on": ["b"]}, "b": {"devices": [{"source": 1}]}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := ReadProject(text)
		if err != nil || !json.Valid(text) {
			return
		}
		override, err := p.OverrideText("gpuard docker -- compose up")
		for _, s := range p.Services {
			if err == nil && s.GPUs > 0 && !strings.Contains(override, s.variableName("1")) {
				t.Errorf("service %q is not in\n%s", s.Name, override)
			}
		}
	})
}
