package lint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/check"
)

func commandRules() []Rule {
	return append([]Rule{beyondLease(), gpusQuotes(), gpusZero(), gpusBesideMask(), hostIndexInside(), maskOutside(), nvidiaOutside(), cudaForContainer()}, launchRules()...)
}

// eachContainer calls look for every command that starts a container.
func eachContainer(f File, look func(i int, r containerRun) []Finding) []Finding {
	var all []Finding
	for i, s := range f.Steps {
		if s.Do != Command {
			continue
		}
		if r, ok := asContainer(s); ok {
			all = append(all, look(i, r)...)
		}
	}
	return all
}

// replace is the finding's edit of one word of a shell script; other formats have other quotes.
func replace(f File, w Word, text string) []Edit {
	if f.Kind != Shell || !w.Known {
		return nil
	}
	return []Edit{{At: w.At, Text: text}}
}

// rewritten is the same edit, to be shown.
func rewritten(f File, s Step, w Word, text string) []Edit {
	if !writable(f, s) {
		return nil
	}
	return []Edit{word(w, text)}
}

// swapped writes the command with one word changed. The word may be the end of another one: --gpus=device=0,1.
func swapped(s Step, old Word, text string) string {
	return line(s, func(w Word) string {
		if w.At.Line != old.At.Line || w.At.EndColumn != old.At.EndColumn || w.At.EndLine != old.At.EndLine || !strings.HasSuffix(w.Raw, old.Raw) {
			return ""
		}
		return strings.TrimSuffix(w.Raw, old.Raw) + text
	})
}

const dockerGPUs = "https://docs.docker.com/reference/cli/docker/container/run/#gpus"

func gpusQuotes() Rule {
	return Rule{
		Page: check.Page{
			Code:  "gpus-list-unquoted",
			Title: "docker refuses a --gpus list of devices without quotes of its own",
			Text: "docker takes the value of `--gpus` as a line of comma-separated fields. In `--gpus device=0,1` the second field is `1`, a count, and docker refuses a count beside a device; double quotes around the value do not help, because the shell takes them away.\n\n" +
				"The list needs quotes that reach docker: `--gpus '\"device=0,1\"'`. A program that starts docker without a shell passes the double quotes as part of the argument.",
			From: []string{dockerGPUs, "docker/cli: opts/gpus.go", "https://github.com/NVIDIA/nvidia-docker/issues/1257"},
		},
		Severity: check.Error,
		Bad: []Example{
			{"run.sh", "#!/bin/bash\ndocker run --rm --gpus device=0,1 nvidia/cuda:12.4.1-base-ubuntu22.04 nvidia-smi\n"},
			{"quoted.sh", "#!/bin/bash\nsudo docker run --rm --gpus=\"device=0,1\" image python train.py\n"},
			{"name.sh", "#!/bin/bash\nGPUS=0,1\ndocker run --gpus \"device=$GPUS\" image python train.py\n"},
			{"single.sh", "#!/bin/bash\ndocker container run --gpus 'device=GPU-1a2b3c4d,GPU-5e6f7a8b' image\n"},
		},
		Good: []Example{
			{"run.sh", "#!/bin/bash\ndocker run --rm --gpus '\"device=0,1\"' image nvidia-smi\ndocker run --gpus \\\"device=0,1\\\" image\n"},
			{"one.sh", "#!/bin/bash\ndocker run --gpus device=0 image\ndocker run --gpus all image\ndocker run --gpus '\"device=0,1\",\"capabilities=compute,utility\"' image\n"},
			{"name.sh", "#!/bin/bash\nGPUS=0,1\ndocker run --gpus \"\\\"device=$GPUS\\\"\" image python train.py\nONE=2\ndocker run --gpus device=$ONE image python train.py\n"},
			{"podman.sh", "#!/bin/bash\npodman run --gpus device=0,1 image python train.py\n"},
			{"inside.sh", "#!/bin/bash\ndocker run --gpus all image python tool.py --gpus device=0,1\n"},
		},
		Look: func(f File) []Finding {
			a := lookAround(f)
			return eachContainer(f, func(i int, r containerRun) []Finding {
				var all []Finding
				for _, written := range r.gpus {
					w := a.constant(i, written)
					if !w.Known || !gpuRequest(w.Text).loose || r.tool == "podman" {
						continue
					}
					right := `'"` + w.Text + `"'`
					if !written.Known {
						right = `"\"` + strings.Trim(w.Raw, `"`) + `\""`
					}
					all = append(all, Finding{Finding: check.Finding{Code: "gpus-list-unquoted", Severity: check.Error,
						Seen: "docker gets --gpus " + w.Text + ", in which what follows the comma is no device",
						Why:  "docker splits the value at commas: only the first entry is a device, and the container does not start",
						Do:   "write: --gpus " + right}, At: w.At, Line: swapped(r.Step, w, right), Edits: replace(f, written, right), Write: rewritten(f, r.Step, w, right)})
				}
				return all
			})
		},
	}
}

func gpusZero() Rule {
	return Rule{
		Page: check.Page{
			Code:  "gpus-zero",
			Title: "docker run --gpus 0 asks for no GPU",
			Text: "A bare number after `--gpus` is how many GPUs the container gets, not which one. `--gpus 0` asks for none; what the container then sees depends on the version of docker and on the variables of the image.\n\n" +
				"The first GPU is `--gpus device=0`; no GPU is no `--gpus` at all.",
			From: []string{dockerGPUs, "docker/cli: opts/gpus.go", "moby/moby: daemon/nvidia_linux.go", "https://github.com/NVIDIA/nvidia-docker/issues/1506"},
		},
		Severity: check.Error,
		Bad: []Example{
			{"run.sh", "#!/bin/bash\ndocker run --gpus 0 image python train.py\n"},
			{"count.sh", "#!/bin/bash\ndocker run --gpus=count=0 image python train.py\n"},
		},
		Good: []Example{{"run.sh", "#!/bin/bash\ndocker run --gpus device=0 image python train.py\ndocker run --gpus 1 image python train.py\n"}},
		Look: func(f File) []Finding {
			return eachContainer(f, func(_ int, r containerRun) []Finding {
				var all []Finding
				for _, w := range r.gpus {
					if !w.Known || w.Text != "0" && w.Text != "count=0" || r.tool == "podman" {
						continue
					}
					all = append(all, Finding{Finding: check.Finding{Code: "gpus-zero", Severity: check.Error, Seen: "--gpus " + w.Text + " asks for no GPU",
						Why: "the number is how many GPUs the container gets, not which one", Do: "for the first GPU write: --gpus device=0"},
						At: w.At, Line: swapped(r.Step, w, "device=0"), Write: rewritten(f, r.Step, w, "device=0")})
				}
				return all
			})
		},
	}
}

func gpusBesideMask() Rule {
	return Rule{
		Page: check.Page{
			Code:  "gpus-beside-mask",
			Title: "--gpus and a list of devices contradict each other",
			Text: "`--gpus 2` gives the container the first two GPUs of the machine, whatever a list beside it says: docker writes NVIDIA_VISIBLE_DEVICES itself, and does not read CUDA_VISIBLE_DEVICES of the host.\n\n" +
				"Say which devices in one place: `--gpus '\"device=2,3\"'`.",
			From: []string{dockerGPUs, "moby/moby: daemon/nvidia_linux.go", "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html"},
		},
		Severity: check.Warning,
		Bad: []Example{
			{"run.sh", "#!/bin/bash\ndocker run --gpus 2 -e NVIDIA_VISIBLE_DEVICES=2,3 image python train.py\n"},
			{"all.sh", "#!/bin/bash\ndocker run --gpus all --env=NVIDIA_VISIBLE_DEVICES=1 image python train.py\n"},
			{"prefix.sh", "#!/bin/bash\nCUDA_VISIBLE_DEVICES=3 docker run --gpus 1 image python train.py\n"},
			example("compose.yaml", "    gpus: all\n    environment:\n      - NVIDIA_VISIBLE_DEVICES=2,3\n"),
			example("standard.compose.yaml", "    deploy: {resources: {reservations: {devices: [{capabilities: [gpu], count: 1}]}}}\n    environment:\n      NVIDIA_VISIBLE_DEVICES: ${GPU:-1}\n"),
		},
		Good: []Example{
			{"run.sh", "#!/bin/bash\ndocker run --gpus '\"device=2,3\"' image python train.py\ndocker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=all image\n"},
			{"runtime.sh", "#!/bin/bash\ndocker run --runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=2,3 image python train.py\ndocker run --gpus all -e NVIDIA_VISIBLE_DEVICES=all image\n"},
			{"within.sh", "#!/bin/bash\ndocker run --gpus 2 -e CUDA_VISIBLE_DEVICES=1 image python train.py\n"},
			example("compose.yaml", "    gpus: all\n    environment:\n      - NVIDIA_VISIBLE_DEVICES=all\n      - NVIDIA_DRIVER_CAPABILITIES=compute,utility\n"),
			example("same.compose.yaml", "    environment: {NVIDIA_VISIBLE_DEVICES: \"${GPUS:-all}\"}\n    gpus:\n      - device_ids: [\"${GPUS}\"]\n"),
		},
		Look: func(f File) []Finding { return append(lookBesideMask(f), requestBesideMask(f)...) },
	}
}

func lookBesideMask(f File) []Finding {
	return eachContainer(f, func(_ int, r containerRun) []Finding {
		if len(r.gpus) != 1 || !r.gpus[0].Known {
			return nil
		}
		request := gpuRequest(r.gpus[0].Text)
		if len(request.devices) > 0 || request.count == 0 {
			return nil
		}
		mask, ok := r.inner("NVIDIA_VISIBLE_DEVICES")
		if ok && mask.Value.Known && !slices.Contains([]string{"all", "none", "void", ""}, mask.Value.Text) {
			if n, known := devices(mask.Value); request.count > 0 && known && n == request.count && first(numbers(mask.Value), n) {
				return nil
			}
		} else if mask, ok = r.given("CUDA_VISIBLE_DEVICES"); !ok || request.count < 0 || hides(mask.Value) || first(numbers(mask.Value), request.count) {
			return nil
		}
		list := strings.Trim(mask.Value.Raw, `"'`)
		right := `'"device=` + list + `"'`
		do := "write: --gpus " + right
		if _, plain := devices(mask.Value); !plain {
			do = "name each device: --gpus '\"device=2,3\"' for the third and the fourth" // a range, or whatever it is
		} else if !strings.Contains(list, ",") {
			do = "write: --gpus device=" + list
		}
		what := "all GPUs"
		if request.count > 0 {
			what = "the first GPU"
			if request.count > 1 {
				what = "the first " + strconv.Itoa(request.count) + " GPUs"
			}
		}
		return []Finding{{Finding: check.Finding{Code: "gpus-beside-mask", Severity: check.Warning,
			Seen: fmt.Sprintf("--gpus %s gives the container %s, not those of %s=%s", r.gpus[0].Text, what, mask.Name, list),
			Why:  "docker chooses by --gpus alone", Do: do}, At: mask.At}}
	})
}

// first reports whether the list is exactly 0, 1, ... n-1.
func first(list []int, n int) bool {
	if len(list) != n {
		return false
	}
	for i, number := range list {
		if number != i {
			return false
		}
	}
	return true
}

func hostIndexInside() Rule {
	return Rule{
		Page: check.Page{
			Code:  "host-index-in-container",
			Title: "A container gets the host's device numbers, but counts its own from 0",
			Text: "A container sees only the GPUs that were given to it, and CUDA numbers them from 0. With `--gpus '\"device=2,3\"' -e CUDA_VISIBLE_DEVICES=2,3` the number 2 does not exist inside, and CUDA ends the list there: the program finds no GPU.\n\n" +
				"Leave CUDA_VISIBLE_DEVICES out, or count from 0: `0,1`. UUIDs are the same inside and outside.",
			From: []string{"https://github.com/NVIDIA/nvidia-docker/issues/907", "https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html"},
		},
		Severity: check.Error,
		Bad: []Example{
			{"run.sh", "#!/bin/bash\ndocker run --gpus '\"device=2,3\"' -e CUDA_VISIBLE_DEVICES=2,3 image python train.py\n"},
			{"count.sh", "#!/bin/bash\ndocker run --gpus 1 --env CUDA_VISIBLE_DEVICES=1 image python train.py\n"},
			{"cdi.sh", "#!/bin/bash\npodman run --device nvidia.com/gpu=3 -eCUDA_VISIBLE_DEVICES=3 image python train.py\n"},
			{"runtime.sh", "#!/bin/bash\ndocker run --runtime nvidia -e NVIDIA_VISIBLE_DEVICES=1 -e CUDA_VISIBLE_DEVICES=1 image python train.py\n"},
			{"same.sh", "#!/bin/bash\nexport DEVICE=1\ndocker run --gpus \"device=$DEVICE\" -e CUDA_VISIBLE_DEVICES=\"$DEVICE\" image python train.py\n"},
			example("compose.yaml", "    environment:\n      CUDA_VISIBLE_DEVICES: 2,3\n    deploy:\n      resources:\n        reservations:\n          devices:\n            - device_ids: [\"2\", \"3\"]\n              capabilities: [gpu]\n"),
			example("runtime.compose.yaml", "    runtime: nvidia\n    environment:\n      - NVIDIA_VISIBLE_DEVICES=1\n      - CUDA_VISIBLE_DEVICES=1\n"),
			{"train.container", "[Container]\nImage=example/train\nAddDevice=nvidia.com/gpu=2\nEnvironment=CUDA_VISIBLE_DEVICES=2\n"},
			example("host.compose.yaml", "    gpus:\n      - count: 1\n    environment:\n      - CUDA_VISIBLE_DEVICES\n"),
			{"handed.sh", "#!/bin/bash\nexport CUDA_VISIBLE_DEVICES=2,3\ndocker run --gpus '\"device=2,3\"' -e CUDA_VISIBLE_DEVICES image python train.py\n"},
			{"env.sh", "#!/bin/bash\ndocker run --gpus device=3 image env CUDA_VISIBLE_DEVICES=3 python train.py\n"},
			{"within.sh", "#!/bin/bash\ndocker run --gpus device=3 image bash -c 'CUDA_VISIBLE_DEVICES=3 python train.py'\n"},
		},
		Good: []Example{
			{"run.sh", "#!/bin/bash\ndocker run --gpus '\"device=2,3\"' -e CUDA_VISIBLE_DEVICES=0,1 image python train.py\ndocker run --gpus '\"device=2,3\"' image python train.py\n"},
			{"all.sh", "#!/bin/bash\ndocker run --gpus all -e CUDA_VISIBLE_DEVICES=2,3 image python train.py\npodman run --device nvidia.com/gpu=all -e CUDA_VISIBLE_DEVICES=2 image python train.py\n"},
			{"uuid.sh", "#!/bin/bash\ndocker run --gpus device=GPU-1a2b3c4d -e CUDA_VISIBLE_DEVICES=GPU-1a2b3c4d image python train.py\n"},
			example("compose.yaml", "    environment:\n      CUDA_VISIBLE_DEVICES: 0,1\n    gpus:\n      - device_ids: [\"2\", \"3\"]\n"),
			{"train.container", "[Container]\nImage=example/train\nAddDevice=nvidia.com/gpu=2\nAddDevice=nvidia.com/gpu=3\nEnvironment=CUDA_VISIBLE_DEVICES=1\n"},
			example("extends.compose.yaml", "    extends: {file: base.yaml, service: gpu}\n    environment: [CUDA_VISIBLE_DEVICES=1]\n    gpus: [{count: 1}]\n"),
			example("all.compose.yaml", "    gpus: all\n    environment:\n      - CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-3}\n"),
			{"handed.sh", "#!/bin/bash\nexport CUDA_VISIBLE_DEVICES=0,1\ndocker run --gpus 2 -e CUDA_VISIBLE_DEVICES image env CUDA_VISIBLE_DEVICES=1 python train.py\n"},
			{"hidden.sh", "#!/bin/bash\ndocker run --gpus 1 -e CUDA_VISIBLE_DEVICES=-1 image python tokenize.py\n"},
		},
		Look: func(f File) []Finding { return append(lookHostIndex(f), hostIndexInServices(f)...) },
	}
}

func lookHostIndex(f File) []Finding {
	a := lookAround(f)
	return eachContainer(f, func(i int, r containerRun) []Finding {
		n, known := r.share()
		sets := append(slices.Clone(r.env), started(Step{Words: r.inside}).set...)
		if script, ok := ShellText(Step{Do: Command, Words: r.inside}); ok {
			sets = append(sets, prefixes(script)...)
		}
		var all []Finding
		for _, s := range sets {
			if s.Name != "CUDA_VISIBLE_DEVICES" && s.Name != "HIP_VISIBLE_DEVICES" {
				continue
			}
			s.Value = a.handed(i, s.Value)
			bad := known && slices.ContainsFunc(numbers(s.Value), func(i int) bool { return i >= n })
			same := s.Value.From != "" && len(r.gpus) == 1 && r.gpus[0].From == s.Value.From
			if !bad && !same {
				continue
			}
			finding := Finding{Finding: check.Finding{Code: "host-index-in-container", Severity: check.Error,
				Seen: fmt.Sprintf("%s=%s goes into a container whose GPUs are numbered from 0 to %d", s.Name, s.Value.Text, n-1),
				Why:  "the container counts only its own GPUs; a number that does not exist there hides that GPU and all behind it",
				Do:   "leave " + s.Name + " out, or count from 0"}, At: s.At}
			if same && !bad {
				finding.Severity = check.Warning
				finding.Seen = s.Name + " gets the host's device numbers, " + s.Value.Text + ", as --gpus does"
			}
			all = append(all, finding)
		}
		return all
	})
}

// handed is the value that command i hands on of the variable that it names: -e CUDA_VISIBLE_DEVICES.
func (a around) handed(i int, v Value) Value {
	if set, sure := a.inherited(i, v.From); sure && v.From != "" && v.Text == "$"+v.From && set.Do == Set && set.Exported && set.Value.Known {
		v.Text, v.Known = set.Value.Text, true
	}
	return v
}

// prefixes finds assignments at the beginning of a script in a word, without its places.
func prefixes(script Step) []Step {
	var all []Step
	for w := range strings.FieldsSeq(script.Value.Text) {
		s, ok := assignment(Word{Text: strings.Trim(w, `;&"'`), Known: script.Value.Known && !strings.Contains(w, "$"), At: script.At}, "prefix")
		if !ok && w != "export" && w != "env" {
			break
		}
		if ok {
			all = append(all, s)
		}
	}
	return all
}
