package container

import (
	_ "embed"
	"slices"
	"strings"
	"testing"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/shellquote"
)

//go:embed testdata/lines.txt
var lines string

// minLines is how many lines the corpus has at least.
const minLines = 210

func lease(t testing.TB, f Facts, n int) Form {
	t.Helper()
	m, err := gpu.InventMachine("demo:4xA100-80GB")
	if err != nil {
		t.Fatal(err)
	}
	for i := range m.Devices {
		m.Devices[i].Minor = new(i)
	}
	form, err := ChooseForm(f, m.Devices[:n])
	if err != nil {
		t.Fatal(err)
	}
	return form
}

// typed splits a line as a shell does; what a shell would expand stays as it is written.
func typed(t testing.TB, line string) []string {
	t.Helper()
	words, err := shellquote.Split(strings.NewReplacer(`$`, `\$`, "`", "\\`").Replace(line), func(string, bool) error { return nil })
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return words
}

// TestLines: of what people type, everything reaches the engine, in order, as one word each; only the devices are added.
func TestLines(t *testing.T) {
	t.Parallel()
	form := lease(t, Facts{Engine: "docker", Toolkit: true}, 2)
	n := each(t, lines, func(line string, words []string) {
		c, err := ReadCall(words)
		if err != nil || c.Verb != "run" && c.Verb != "create" {
			t.Errorf("%s: %q %v", line, c.Verb, err)
			return
		}
		c = c.WithFound(onMachine())
		argv, notes, err := c.With(form, "--label", "gpuard.lease=k3f9")
		notes = slices.DeleteFunc(notes, func(note string) bool { return strings.HasPrefix(note, "after a boot") })
		if err != nil || len(notes) > 0 {
			t.Errorf("%s: %q %v", line, notes, err)
			return
		}
		if rest := slices.Concat(argv[:len(argv)-len(c.inside)-len(form.Words)-2], c.inside); !slices.Equal(rest, words) || c.Before[len(c.Before)-1] != c.Verb {
			t.Errorf("%s:\nreaches the engine as %q", line, argv)
		}
	})
	if n < minLines {
		t.Errorf("only %d lines", n)
	}
}

// TestBeyondLease: what asks for GPUs that are not of the lease is left out and said, or refused.
func TestBeyondLease(t *testing.T) {
	t.Parallel()
	cdi := Facts{Engine: "docker", CDI: true, Names: []string{"nvidia.com/gpu=0", "nvidia.com/gpu=1"}}
	for _, c := range []struct {
		line, left, note, refused string
		facts                     Facts
	}{
		{line: "docker run --gpus all image", left: "image", note: "--gpus all is left out: the lease's GPUs take its place"},
		{line: `docker run --gpus '"device=1,2"' image cmd`, left: "image cmd", note: `--gpus "device=1,2" is left out`},
		{line: "docker run --gpus=2 -it image", left: "-it image", note: "--gpus=2 is left out"},
		{line: "docker run --device nvidia.com/gpu=all image", left: "image", note: "--device nvidia.com/gpu=all is left out"},
		{line: "podman run --device=nvidia.com/gpu=3 image", left: "image", note: "--device=nvidia.com/gpu=3 is left out"},
		{line: "docker run -e NVIDIA_VISIBLE_DEVICES=all image", left: "image", note: "-e NVIDIA_VISIBLE_DEVICES=all is left out: the lease decides"},
		{line: "docker run -eNVIDIA_VISIBLE_DEVICES=all image", left: "image", note: "-eNVIDIA_VISIBLE_DEVICES=all is left out"},
		{line: "docker run -ite NVIDIA_VISIBLE_DEVICES=all image", left: "-it image", note: "-e NVIDIA_VISIBLE_DEVICES=all is left out"},
		{line: "docker run -e CUDA_VISIBLE_DEVICES image", left: "image", note: "numbers of this machine mean nothing in the container"},
		{line: "docker run -e CUDA_VISIBLE_DEVICES=3 image", left: "image", note: "the container has 2 of the GPUs, and numbers begin at 0 there"},
		{line: "docker run -e CUDA_VISIBLE_DEVICES=1,0 image", left: "-e CUDA_VISIBLE_DEVICES=1,0 image"},
		{line: "docker run --runtime=nvidia image", left: "--runtime=nvidia image"},
		{line: "docker run --device /dev/nvidia0 image", left: "image", note: "--device /dev/nvidia0 is left out: it is of the lease"},
		{line: "docker run --device /dev/nvidiactl --device /dev/nvidia-uvm image", left: "--device /dev/nvidiactl --device /dev/nvidia-uvm image"},
		{line: "docker run --privileged=false image", left: "--privileged=false image"},
		{line: "docker run --privileged image", refused: "--privileged: it can open every device of the machine; leave it out, or start the container without gpuard"},
		{line: "docker run --device /dev/nvidia3 image", refused: "--device /dev/nvidia3: it is not of the lease"},
		{line: "docker run --device=/dev/nvidia3:/dev/nvidia0 image", refused: "it is not of the lease"},
		{line: "docker run --device /dev/dri image", refused: "it is not of the lease"},
		{line: "docker run -v /dev:/dev image", refused: "-v /dev:/dev: it shows the container devices that are not of the lease"},
		{line: "docker run -itv /dev/../dev/:/host image", refused: "-v /dev/../dev/:/host: it shows"},
		{line: "docker run --volume=/dev/nvidia3:/dev/nvidia0 image", refused: "it shows the container devices"},
		{line: "docker run --mount type=bind,source=/dev,target=/dev image", refused: "it shows the container devices"},
		{line: "docker run --mount type=bind,src=/dev/dri,dst=/x image", refused: "it shows the container devices"},
		{line: "docker run -l gpuard.lease=zzzz --label a=b image", left: "--label a=b image", note: "-l gpuard.lease=zzzz is left out: gpuard writes such labels"},
		{line: "docker run --restart=always image", left: "--restart=always image", note: "after a boot of the machine the engine starts the container without gpuard"},
		{line: "docker run -v /dev/null:/var/run/nvidia-container-devices/all image", refused: "it chooses devices that are not of the lease"},
		{line: "docker run --mount type=bind,src=/dev/null,dst=/var/run/nvidia-container-devices/0 image", refused: "it chooses devices that are not of the lease"},
		{line: "docker run -v /:/host image", refused: "it shows the container the whole machine"},
		{line: "docker run --privileged=FALSE --privileged=f image", left: "--privileged=FALSE --privileged=f image"},
		{line: "docker run -it=false --device nvidia.com/mig=0 --device runtime.nvidia.com/gpu=all image", left: "-it=false image", note: "--device nvidia.com/mig=0 is left out"},
		{line: "podman run --device=nvidia.com/gpu=0,nvidia.com/gpu=1 image", left: "image", note: "--device=nvidia.com/gpu=0,nvidia.com/gpu=1 is left out"},
		{line: "docker run -e HABANA_VISIBLE_DEVICES=all -e DOCKER_RESOURCE_GPU=all image", left: "image", note: "-e DOCKER_RESOURCE_GPU=all is left out: the lease decides"},
		{line: "docker run -e NVIDIA_MIG_CONFIG_DEVICES=all image", left: "image", note: "the lease decides"},
		{line: "docker run --device-cgroup-rule 'c 195:* rwm' image", refused: "it lets the container open GPUs"},
		{line: "docker run --device-cgroup-rule='a *:* rwm' image", refused: "it lets the container open GPUs"},
		{line: "docker run --device-cgroup-rule='c 13:* rwm' image", left: "'--device-cgroup-rule=c 13:* rwm' image"},
	} {
		if c.facts.Engine == "" {
			c.facts = cdi
		}
		form := lease(t, c.facts, 2)
		call, err := ReadCall(typed(t, c.line))
		if err != nil {
			t.Errorf("%s: %v", c.line, err)
			continue
		}
		argv, notes, err := call.With(form)
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: %v, want %s", c.line, err, c.refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.line, err)
			continue
		}
		if left := shellquote.JoinQuoted(shellquote.Sh, slices.Concat(argv[2:len(argv)-len(call.inside)-len(form.Words)], call.inside)...); left != c.left {
			t.Errorf("%s: left is %s, want %s", c.line, left, c.left)
		}
		if said := strings.Join(notes, "; "); c.note != "" && !strings.Contains(said, c.note) || c.note == "" && len(notes) > len(form.Notes) {
			t.Errorf("%s: said %q, want %q", c.line, said, c.note)
		}
	}
}

// TestROCm: the line of AMD's pages, which gives a container all GPUs, starts it with those of the lease. One other GPU by name
// is refused.
func TestROCm(t *testing.T) {
	t.Parallel()
	amd := gpu.Device{Index: 1, UUID: "GPU-amd", Vendor: gpu.AMD, Minor: new(129)}
	nodes, err := ChooseForm(Facts{Engine: "docker", Files: SharedFiles(gpu.AMD)}, []gpu.Device{amd})
	if err != nil {
		t.Fatal(err)
	}
	cdi, err := ChooseForm(Facts{Engine: "docker", CDI: true, Names: []string{"amd.com/gpu=1"}}, []gpu.Device{amd})
	if err != nil || cdi.Kind != "cdi" {
		t.Fatal(cdi.Kind, err)
	}
	const place = " is left out: the lease's GPUs take its place"
	for line, want := range map[string]string{
		"docker run --device=/dev/kfd --device=/dev/dri --group-add video image":                      "--device=/dev/kfd" + place + "; --device=/dev/dri" + place,
		"docker run --device /dev/kfd:/dev/kfd --device /dev/dri/:/dev/dri:rwm --group-add=109 image": "--device /dev/kfd:/dev/kfd" + place + "; --device /dev/dri/:/dev/dri:rwm" + place,
		"podman run --device /dev/kfd,/dev/dri image":                                                 "--device /dev/kfd,/dev/dri" + place,
		"docker run --device /dev/kfd --device /dev/dri/renderD129 image":                             "--device /dev/kfd" + place + "; --device /dev/dri/renderD129 is left out: it is of the lease",
		"docker run --device /dev/dri/renderD128 image":                                               "",
		"docker run --device /dev/dri/card0 image":                                                    "",
		"docker run --device /dev/dri/by-path image":                                                  "",
		"docker run --device /dev image":                                                              "",
		"docker run -v /dev/dri:/dev/dri image":                                                       "",
		"docker run --device /dev/snd,/dev/dri image":                                                 "",
	} {
		for _, form := range []Form{nodes, cdi} {
			call, err := ReadCall(typed(t, line))
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			argv, notes, err := call.With(form)
			if said := strings.Join(notes, "; "); said != want || (err != nil) != (want == "") {
				t.Errorf("%s, by %s: %q %v, want %q", line, form.Kind, said, err, want)
			}
			if at := slices.Index(argv, "/dev/kfd"); at >= 0 && slices.Contains(argv[at+1:], "/dev/kfd") {
				t.Errorf("%s: %q has a device twice", line, argv)
			}
			if err := call.CheckStart(); want != "" && err != nil {
				t.Errorf("%s is refused before there is a lease: %v", line, err)
			}
		}
	}
	call, _ := ReadCall(typed(t, "docker run --device /dev/dri image"))
	if _, _, err := call.With(lease(t, Facts{Engine: "docker", Toolkit: true}, 1)); err == nil {
		t.Error("a lease of NVIDIA's GPUs takes the place of /dev/dri")
	}
}

// TestChoose: the form follows what the engine can take.
func TestChoose(t *testing.T) {
	t.Parallel()
	files := append(SharedFiles(gpu.NVIDIA), SharedFiles(gpu.AMD)...)
	m, err := gpu.InventMachine("demo:2xA100-80GB")
	if err != nil {
		t.Fatal(err)
	}
	a, b := m.Devices[0], m.Devices[1]
	a.Minor, b.Minor = new(4), new(5)
	both := string(a.UUID) + "," + string(b.UUID)
	amd := gpu.Device{Index: 1, UUID: "GPU-amd", Vendor: gpu.AMD, Minor: new(129)}
	mig := gpu.Device{Index: 0, UUID: "MIG-1", Vendor: gpu.NVIDIA, Minor: new(0)}
	uuid := "nvidia.com/gpu=" + string(a.UUID)
	for name, c := range map[string]struct {
		facts   Facts
		devices []gpu.Device
		want    string
		refused bool
	}{
		"CDI by UUID":                {Facts{Engine: "docker", CDI: true, Names: []string{uuid, "nvidia.com/gpu=0"}, Toolkit: true}, []gpu.Device{a}, "--device " + uuid + " --env NVIDIA_VISIBLE_DEVICES=void", false},
		"CDI by index":               {Facts{Engine: "podman", CDI: true, Names: []string{"nvidia.com/gpu=0", "nvidia.com/gpu=1"}}, []gpu.Device{b, a}, "--device nvidia.com/gpu=1 --device nvidia.com/gpu=0 --env NVIDIA_VISIBLE_DEVICES=void", false},
		"CDI lists one of two":       {Facts{Engine: "docker", CDI: true, Names: []string{uuid}, Toolkit: true}, []gpu.Device{a, b}, `--gpus "device=` + both + `"`, false},
		"the engine has CDI off":     {Facts{Engine: "docker", Names: []string{uuid}, Toolkit: true}, []gpu.Device{a}, `--gpus "device=` + string(a.UUID) + `"`, false},
		"nothing but files":          {Facts{Engine: "docker"}, []gpu.Device{a}, "--device /dev/nvidiactl --device /dev/nvidia-uvm --device /dev/nvidia-uvm-tools --device /dev/nvidia4 --env NVIDIA_VISIBLE_DEVICES=void", false},
		"podman has no request":      {Facts{Engine: "podman", Toolkit: true, SELinux: true}, []gpu.Device{b}, "--device /dev/nvidiactl --device /dev/nvidia-uvm --device /dev/nvidia-uvm-tools --device /dev/nvidia5 --env NVIDIA_VISIBLE_DEVICES=void --security-opt=label=disable", false},
		"AMD":                        {Facts{Engine: "docker", Toolkit: true}, []gpu.Device{amd}, "--device /dev/kfd --device /dev/dri/renderD129 --group-add video --env NVIDIA_VISIBLE_DEVICES=void", false},
		"AMD, rootless":              {Facts{Engine: "podman", Rootless: true}, []gpu.Device{amd}, "--device /dev/kfd --device /dev/dri/renderD129 --group-add keep-groups --env NVIDIA_VISIBLE_DEVICES=void", false},
		"a slice by CDI":             {Facts{Engine: "podman", CDI: true, Names: []string{"nvidia.com/gpu=MIG-1"}}, []gpu.Device{mig}, "--device nvidia.com/gpu=MIG-1 --env NVIDIA_VISIBLE_DEVICES=void", false},
		"a slice by request":         {Facts{Engine: "docker", Toolkit: true}, []gpu.Device{mig}, `--gpus "device=MIG-1"`, false},
		"a slice is not GPU 0":       {Facts{Engine: "podman", CDI: true, Names: []string{"nvidia.com/gpu=0"}}, []gpu.Device{mig}, "", true},
		"a number that is not known": {Facts{Engine: "podman"}, []gpu.Device{{UUID: "GPU-1", Vendor: gpu.NVIDIA}}, "", true},
	} {
		c.facts.Files = files
		form, err := ChooseForm(c.facts, c.devices)
		if (err != nil) != c.refused || err == nil && strings.Join(form.Words, " ") != c.want {
			t.Errorf("%s: %q %v, want %s", name, form.Words, err, c.want)
		}
	}
}

// TestVerbs: which commands start a process in a container, and which options have no end.
func TestVerbs(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"docker ps": "", "docker": "", "docker --context x run image": "run", "podman container exec -it a sh": "exec", "docker start a b": "start", "docker compose -f a.yml up -d": "compose up",
		"docker compose --profile gpu run web": "compose run", "docker compose ps": "", "docker restart a": "restart", "docker logs run": "", "docker build . -t run": "",
	} {
		if c, err := ReadCall(strings.Fields(line)); err != nil || c.Verb != want {
			t.Errorf("%s: %q %v", line, c.Verb, err)
		}
	}
	for _, line := range []string{"docker run", "docker run -it", "docker run --name", "docker run --rm --", "docker run -v"} {
		if _, err := ReadCall(strings.Fields(line)); err == nil {
			t.Errorf("%s is no error", line)
		}
	}
	for _, line := range []string{"docker run --help", "python train.py"} {
		if _, err := ReadCall(strings.Fields(line)); (err == nil) != strings.HasSuffix(line, "--help") {
			t.Errorf("%s: %v", line, err)
		}
	}
	c, _ := ReadCall(strings.Fields("docker start -a --detach-keys x one two"))
	if !slices.Equal(c.Containers(), []string{"one", "two"}) {
		t.Errorf("%q", c.Containers())
	}
}

// FuzzRun: no word of a command line is lost, changed or moved except options about GPUs, and the devices are added once.
func FuzzRun(f *testing.F) {
	for line := range strings.Lines(lines) {
		f.Add(strings.TrimSpace(line))
	}
	f.Add("docker run --gpus all -e NVIDIA_VISIBLE_DEVICES=all image")
	f.Fuzz(func(t *testing.T, line string) {
		words := strings.Fields(line)
		if len(words) == 0 {
			return
		}
		c, err := ReadCall(words)
		if err != nil || c.Verb != "run" && c.Verb != "create" {
			return
		}
		form := lease(t, Facts{Engine: "docker", Toolkit: true}, 1)
		argv, notes, err := c.With(form)
		if err != nil {
			return
		}
		at, end := len(c.Before), len(argv)-len(c.inside)-len(form.Words)
		rest := slices.Concat(argv[at:end], c.inside)
		if !slices.Equal(argv[:at], words[:at]) || !slices.Equal(argv[end:end+len(form.Words)], form.Words) {
			t.Fatalf("%q", argv)
		}
		if len(notes) == 0 && !slices.Equal(rest, words[at:]) {
			t.Fatalf("%q became %q", words[at:], rest)
		}
		if !slices.Equal(rest[len(rest)-len(c.inside):], words[len(words)-len(c.inside):]) {
			t.Fatalf("image and command of %q became %q", words, rest)
		}
	})
}
