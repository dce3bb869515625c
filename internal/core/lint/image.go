package lint

import (
	"fmt"
	"strings"

	"gpuard/internal/core/check"
)

// image returns the Set steps of ENV that an image of a Dockerfile keeps: those of the last stage and of the stages
// that it is built on, each name once.
func image(f File) []Step {
	base := map[string]string{}
	last := ""
	for _, s := range f.Steps {
		if s.Do == Setting && s.Name == "FROM" {
			last = s.In
			base[s.In] = strings.ToLower(s.Value.Text)
		}
	}
	chain := map[string]bool{}
	for stage, known := last, true; known && !chain[stage]; _, known = base[stage] {
		chain[stage] = true
		stage = base[stage]
	}
	var kept []Step
	seen := map[string]bool{}
	for i := len(f.Steps) - 1; i >= 0; i-- {
		s := f.Steps[i]
		if s.Do == Set && s.How == "ENV" && s.Shell == 0 && chain[s.In] && !seen[s.Name] {
			seen[s.Name] = true
			kept = append(kept, s)
		}
	}
	return kept
}

func fixedInImage() Rule {
	return Rule{
		Page: check.Page{
			Code:  "gpus-fixed-in-image",
			Title: "An image fixes which GPUs its containers use",
			Text: "ENV stays in the image, so every container from it gets the list, on every machine. A container counts the GPUs that it was given from 0: with `ENV CUDA_VISIBLE_DEVICES=1`, one that was given a single GPU finds none. A UUID exists on one machine only. `0` works, and hides every GPU but the first.\n\n" +
				"Leave the variable out of the image and choose when a container is started: `docker run --gpus device=1`.",
			From: []string{"https://docs.docker.com/reference/dockerfile/#env", "NVIDIA/nvidia-docker issue 907", toolkitDocs},
		},
		Severity: check.Warning,
		Bad: []Example{
			{"Dockerfile", "FROM nvidia/cuda:12.4.1-runtime-ubuntu22.04\nENV CUDA_VISIBLE_DEVICES=1\nCMD [\"python\", \"train.py\"]\n"},
			{"Containerfile", "FROM nvidia/cuda:12.4.1-runtime-ubuntu22.04 AS base\nENV PATH=/opt/bin:$PATH \\\n    NVIDIA_VISIBLE_DEVICES=2,3\nFROM base\nCMD python train.py\n"},
			{"old.dockerfile", "FROM nvidia/cuda:12.4.1-runtime-ubuntu22.04\nENV CUDA_VISIBLE_DEVICES 0\n"},
		},
		Good: []Example{
			{"Dockerfile", "FROM nvidia/cuda:12.4.1-runtime-ubuntu22.04\nENV CUDA_DEVICE_ORDER=PCI_BUS_ID\nCMD [\"python\", \"train.py\"]\n"},
			{"Containerfile", "FROM python:3.12 AS test\nENV CUDA_VISIBLE_DEVICES=1\nRUN pytest\nFROM python:3.12\nCMD [\"python\", \"train.py\"]\n"},
			{"cpu.dockerfile", "FROM python:3.12\nENV CUDA_VISIBLE_DEVICES=-1 NVIDIA_VISIBLE_DEVICES=void\n"},
		},
		Look: func(f File) []Finding {
			var all []Finding
			for _, s := range image(f) {
				v := s.Value
				if s.Name != "CUDA_VISIBLE_DEVICES" && s.Name != "HIP_VISIBLE_DEVICES" && s.Name != "ROCR_VISIBLE_DEVICES" && s.Name != "NVIDIA_VISIBLE_DEVICES" || hides(v) {
					continue
				}
				n, counted := devices(v)
				if !counted || n == 0 {
					continue
				}
				finding := Finding{Finding: check.Finding{Code: "gpus-fixed-in-image", Severity: check.Warning, Seen: "every container from this image gets " + s.Name + "=" + v.Text,
					Why: "the numbers are those of one machine, and a container counts the GPUs that it was given from 0", Do: "leave it out, and choose with docker run --gpus device=..."}, At: s.At}
				if list := numbers(v); s.Name != "NVIDIA_VISIBLE_DEVICES" && first(list, n) {
					finding.Severity = check.Info
					which := "the first one"
					if n > 1 {
						which = fmt.Sprintf("the first %d", n)
					}
					finding.Why = "GPUs after " + which + " stay unused, whatever the container was given"
				}
				all = append(all, finding)
			}
			return all
		},
	}
}

func imageTakesAll() Rule {
	return Rule{
		Page: check.Page{
			Code:  "image-takes-all-gpus",
			Title: "An image asks for all GPUs by itself",
			Text: "NVIDIA documents `ENV NVIDIA_VISIBLE_DEVICES=all` for images, and its own have it. Where the NVIDIA runtime is Docker's default and accepts the variable from unprivileged containers, which it does unless its configuration says otherwise, a container from such an image gets every GPU although nobody asked for one.\n\n" +
				"An image for shared machines is better without it: `docker run --gpus ...` sets the variable itself. `void` switches it off where a base image has it.",
			From: []string{toolkitDocs, "NVIDIA/nvidia-container-toolkit: api/config/v1/toml.go", "NVIDIA/k8s-device-plugin issue 61"},
		},
		Severity: check.Info,
		Bad: []Example{
			{"Dockerfile", "FROM ubuntu:24.04\nENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility\nCMD [\"python3\", \"train.py\"]\n"},
		},
		Good: []Example{
			{"Dockerfile", "FROM ubuntu:24.04\nENV NVIDIA_DRIVER_CAPABILITIES=compute,utility\nCMD [\"python3\", \"train.py\"]\n"},
			{"Containerfile", "FROM nvidia/cuda:12.4.1-runtime-ubuntu22.04\nENV NVIDIA_VISIBLE_DEVICES=void\nCMD [\"python3\", \"train.py\"]\n"},
		},
		Look: func(f File) []Finding {
			var all []Finding
			for _, s := range image(f) {
				if s.Name == "NVIDIA_VISIBLE_DEVICES" && s.Value.Known && s.Value.Text == "all" {
					all = append(all, Finding{Finding: check.Finding{Code: "image-takes-all-gpus", Severity: check.Info, Seen: "every container from this image asks for all GPUs",
						Why: "where the NVIDIA runtime is the default, a container gets them without --gpus", Do: "leave it out for shared machines: docker run --gpus sets it"}, At: s.At})
				}
			}
			return all
		},
	}
}

func exportLost() Rule {
	return Rule{
		Page: check.Page{
			Code:  "export-lost-with-step",
			Title: "export sets a GPU variable in a shell that ends immediately",
			Text: "Each RUN of a Dockerfile, each run of a workflow, and each line after `!` in a notebook has a shell of its own. What it exports is gone when it ends, so `RUN export CUDA_VISIBLE_DEVICES=1` and `!export CUDA_VISIBLE_DEVICES=1` alone change nothing.\n\n" +
				"In a Dockerfile write `ENV NAME=value`, though devices are better chosen when a container is started. In a workflow write `env:`, or append to the file that GitHub names: `echo \"NAME=value\" >> \"$GITHUB_ENV\"`. In a notebook write `%env NAME=value`, before a library starts the GPU.",
			From: []string{"https://docs.docker.com/reference/dockerfile/#run", "https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands#setting-an-environment-variable"},
		},
		Severity: check.Warning,
		Bad: []Example{
			{"Dockerfile", "FROM python:3.12\nRUN export CUDA_VISIBLE_DEVICES=1\nCMD [\"python\", \"train.py\"]\n"},
			{".github/workflows/train.yml", "on: push\njobs:\n  train:\n    runs-on: [self-hosted, gpu]\n    steps:\n      - run: export CUDA_VISIBLE_DEVICES=1\n      - run: python train.py\n"},
			{"train.ipynb", `{"cells": [{"cell_type": "code", "source": ["!export CUDA_VISIBLE_DEVICES=\"\"\n", "import torch"]}], "metadata": {"language_info": {"name": "python"}}, "nbformat": 4}`},
			{"cell.ipynb", `{"cells": [{"cell_type": "code", "source": ["%%bash\n", "export CUDA_VISIBLE_DEVICES=1"]}], "metadata": {"language_info": {"name": "python"}}, "nbformat": 4}`},
		},
		Good: []Example{
			{"Dockerfile", "FROM python:3.12\nRUN export NCCL_DEBUG=INFO && make test\nCMD export CUDA_VISIBLE_DEVICES=0 && exec python train.py\n"},
			{".github/workflows/train.yml", "on: push\njobs:\n  train:\n    runs-on: [self-hosted, gpu]\n    steps:\n      - run: echo \"CUDA_VISIBLE_DEVICES=1\" >> \"$GITHUB_ENV\"\n      - run: |\n          export CUDA_VISIBLE_DEVICES=1\n          python train.py\n"},
			{"train.ipynb", `{"cells": [{"cell_type": "code", "source": ["%env CUDA_VISIBLE_DEVICES=1\n", "!export NCCL_DEBUG=WARN; python train.py"]}], "metadata": {"language_info": {"name": "python"}}, "nbformat": 4}`},
		},
		Look: func(f File) []Finding {
			if f.Kind != Dockerfile && f.Kind != Workflow && f.Kind != Notebook {
				return nil
			}
			var all []Finding
			for _, script := range Scripts(f) {
				for i, s := range script.Steps {
					if s.Do != Set || !s.Exported || s.How == "prefix" || !isGPUVariable(s.Name) && s.Name != "NVIDIA_VISIBLE_DEVICES" || used(script.Steps[i+1:]) {
						continue
					}
					finding := Finding{Finding: check.Finding{Code: "export-lost-with-step", Severity: check.Warning, Seen: s.Name + " is exported at the end of a shell",
						Why: "no program runs behind it in this shell, and the next one starts without it"}, At: s.At}
					raw := s.Value.Raw
					if strings.Contains(raw, s.Name+"=") { // the whole word is quoted
						raw = `"` + s.Value.Text + `"`
					}
					finding.Line = "ENV " + s.Name + "=" + raw
					switch f.Kind {
					case Notebook:
						finding.Line = "%env " + s.Name + "=" + s.Value.Text
					case Workflow:
						finding.Line = `echo "` + s.Name + "=" + s.Value.Text + `" >> "$GITHUB_ENV"`
					}
					finding.Do = "write: " + finding.Line
					if at := s.At; f.Kind == Workflow && s.How == "export" && at.Column > len("export ") {
						at.Column -= len("export ")
						finding.Write = []Edit{{At: at, Was: "export " + s.Name + "=" + s.Value.Raw, Text: finding.Line}}
					}
					all = append(all, finding)
				}
			}
			return all
		},
	}
}

// used reports whether a step after an export can read it.
func used(steps []Step) bool {
	for _, s := range steps {
		if s.Do == Command || s.Do == Define || s.Do == Script {
			return true
		}
	}
	return false
}
