package lint

import (
	"slices"
	"strings"

	"gpuard/internal/core/check"
)

func maskOutside() Rule {
	return Rule{
		Page: check.Page{
			Code:  "mask-outside-container",
			Title: "A list of devices before docker run does not enter the container",
			Text: "`CUDA_VISIBLE_DEVICES=1 docker run ...` sets the variable for the docker command, which hands nothing of its environment to the container. The container sees whatever `--gpus` gives it.\n\n" +
				"Choose with docker's own option: `docker run --gpus device=1 ...`.",
			From: []string{"https://docs.docker.com/reference/cli/docker/container/run/#env", "https://docs.docker.com/reference/cli/docker/container/run/#gpus"},
		},
		Severity: check.Warning,
		Bad: []Example{
			{"run.sh", "#!/bin/bash\nCUDA_VISIBLE_DEVICES=1 docker run --gpus all image python train.py\n"},
			{"podman.sh", "#!/bin/bash\nenv CUDA_VISIBLE_DEVICES=1 podman run --device nvidia.com/gpu=all image python train.py\n"},
			{"nvidia.sh", "#!/bin/bash\nNVIDIA_VISIBLE_DEVICES=1 docker run --runtime=nvidia image python train.py\n"},
		},
		Good: []Example{
			{"run.sh", "#!/bin/bash\ndocker run --gpus device=1 image python train.py\n"},
			{"through.sh", "#!/bin/bash\nCUDA_VISIBLE_DEVICES=1 docker run --gpus all -e CUDA_VISIBLE_DEVICES image python train.py\nNVIDIA_VISIBLE_DEVICES=1 docker run --runtime=nvidia -e NVIDIA_VISIBLE_DEVICES image python train.py\n"},
			{"compose.sh", "#!/bin/bash\nCUDA_VISIBLE_DEVICES=1 docker compose up\nNV_GPU=1 nvidia-docker run image python train.py\n"},
			{"expanded.sh", "#!/bin/bash\nCUDA_VISIBLE_DEVICES=1 docker run --env-file gpus.env --gpus all image python train.py\n"},
		},
		Look: func(f File) []Finding {
			return eachContainer(f, func(_ int, r containerRun) []Finding {
				var all []Finding
				for _, s := range r.set {
					if s.Do != Set || s.Name != "CUDA_VISIBLE_DEVICES" && s.Name != "NVIDIA_VISIBLE_DEVICES" && s.Name != "HIP_VISIBLE_DEVICES" {
						continue
					}
					if _, through := r.inner(s.Name); through || r.nodes || len(lookBesideMask(File{Kind: f.Kind, Steps: []Step{r.Step}})) > 0 {
						continue
					}
					all = append(all, Finding{Finding: check.Finding{Code: "mask-outside-container", Severity: check.Warning,
						Seen: s.Name + " is set for " + r.tool + ", not for the container",
						Why:  "a container gets none of the variables of the command that starts it, so it sees every GPU that " + r.tool + " gives it",
						Do:   "choose with --gpus device=... or -e " + s.Name}, At: s.At})
				}
				return all
			})
		},
	}
}

func nvidiaOutside() Rule {
	return Rule{
		Page: check.Page{
			Code:  "nvidia-variable-outside-container",
			Title: "NVIDIA_VISIBLE_DEVICES chooses GPUs for containers, not for programs",
			Text: "NVIDIA_VISIBLE_DEVICES is read by the NVIDIA container runtime when it builds a container. CUDA does not read it: a program that is started with it sees every GPU.\n\n" +
				"For a program write CUDA_VISIBLE_DEVICES.",
			From: []string{"https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html", "https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html"},
		},
		Severity: check.Error,
		Bad: []Example{
			{"prefix.sh", "#!/bin/bash\nNVIDIA_VISIBLE_DEVICES=1 python train.py\n"},
			{"train.service", "[Service]\nEnvironment=NVIDIA_VISIBLE_DEVICES=1\nExecStart=/usr/bin/python3 /opt/train.py\n"},
			{"export.sh", "#!/bin/bash\nexport NVIDIA_VISIBLE_DEVICES=0,1\ntorchrun --nproc_per_node=2 train.py\n"},
		},
		Good: []Example{
			{"program.sh", "#!/bin/bash\nCUDA_VISIBLE_DEVICES=1 python train.py\n"},
			{"container.sh", "#!/bin/bash\nexport NVIDIA_VISIBLE_DEVICES=1\ndocker run --runtime=nvidia -e NVIDIA_VISIBLE_DEVICES image python train.py\n"},
			{"train.container", "[Container]\nImage=example/train\nPodmanArgs=--runtime nvidia\nEnvironment=NVIDIA_VISIBLE_DEVICES=1\nExec=python train.py\n"},
			{"enroot.sh", "#!/bin/bash\nexport NVIDIA_VISIBLE_DEVICES=1\nenroot start cuda python train.py\n"},
			{"both.sh", "#!/bin/bash\nexport NVIDIA_VISIBLE_DEVICES=1 CUDA_VISIBLE_DEVICES=1\npython train.py\n"},
			{"pyxis.sh", "#!/bin/bash\nexport NVIDIA_VISIBLE_DEVICES=1\nsrun --container-image=image python train.py\n"},
		},
		Look: lookNvidiaOutside,
	}
}

func lookNvidiaOutside(f File) []Finding {
	const name = "NVIDIA_VISIBLE_DEVICES"
	if f.Kind == Dockerfile || f.Kind == Compose {
		return nil // there it is for the runtime
	}
	if slices.ContainsFunc(f.Steps, func(s Step) bool { return buildsContainer(s) || s.Do == Set && s.Name == "CUDA_VISIBLE_DEVICES" }) {
		return nil
	}
	a := lookAround(f)
	var all []Finding
	said := map[Place]bool{}
	for i, s := range f.Steps {
		if s.Do != Command || f.Kind == Unit && s.In == "Container" {
			continue
		}
		p := started(s)
		if !p.usesGPUs() {
			continue
		}
		if _, both := p.given("CUDA_VISIBLE_DEVICES"); both {
			continue
		}
		set, ok := p.given(name)
		if !ok {
			if set, _ = a.inherited(i, name); set.Do != Set {
				continue
			}
		}
		if f.Kind == Workflow && set.Shell == 0 && set.How != "prefix" && set.How != "env" {
			continue // the job may run in a container
		}
		if said[set.At] || slices.Contains([]string{"all", "none", "void", ""}, set.Value.Text) {
			continue
		}
		said[set.At] = true
		value := set.Value.Raw
		if set.Value.At == set.At { // export "NAME=value"
			value = set.Value.Text
		}
		finding := Finding{Finding: check.Finding{Code: "nvidia-variable-outside-container", Severity: check.Error,
			Seen: name + " is set for " + p.name + ", which does not read it", Why: "only the container runtime reads it; the program sees every GPU",
			Do: "write CUDA_VISIBLE_DEVICES=" + value}, At: set.At, Line: "CUDA_VISIBLE_DEVICES=" + value}
		if set.How == "export" {
			finding.Line = "export " + finding.Line
		}
		if at := set.At; inShell(f, set) && set.Do == Set && set.Value.At.Line == at.Line && set.Value.At.Column == at.Column+len(name)+1 {
			at.EndLine, at.EndColumn = at.Line, at.Column+len(name)
			finding.Write = []Edit{{At: at, Was: name, Text: "CUDA_VISIBLE_DEVICES"}}
			if f.Kind == Shell {
				finding.Edits = finding.Write
			}
		}
		all = append(all, finding)
	}
	return all
}

// buildsContainer reports whether a command starts containers, or asks a batch system for one: such a program may read
// NVIDIA_VISIBLE_DEVICES.
func buildsContainer(s Step) bool {
	if s.Do != Command {
		return false
	}
	return slices.ContainsFunc(s.Words, func(w Word) bool {
		return strings.HasPrefix(w.Text, "--container-") || slices.Contains([]string{"docker", "podman", "nerdctl", "enroot", "apptainer", "singularity", "docker-compose", "nvidia-docker", "ctr", "crictl", "charliecloud", "ch-run", "shifter"}, w.Text)
	})
}

func cudaForContainer() Rule {
	return Rule{
		Page: check.Page{
			Code:  "cuda-variable-for-container",
			Title: "CUDA_VISIBLE_DEVICES does not bring a GPU into a container",
			Text: "`-e CUDA_VISIBLE_DEVICES=1` sets the variable inside, but brings in no device: without `--gpus`, `--device` or the NVIDIA runtime the container has no GPU to choose from. It works only where the NVIDIA runtime is docker's default.\n\n" +
				"Bring the GPU in with `--gpus device=1`; then no variable is needed.",
			From: []string{dockerGPUs, "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html"},
		},
		Severity: check.Info,
		Bad: []Example{
			{"run.sh", "#!/bin/bash\ndocker run --rm -e CUDA_VISIBLE_DEVICES=1 image python train.py\n"},
		},
		Good: []Example{
			{"run.sh", "#!/bin/bash\ndocker run --rm --gpus device=1 image python train.py\ndocker run --rm -e CUDA_VISIBLE_DEVICES= image python tokenize.py\ndocker run --rm --runtime=nvidia -e CUDA_VISIBLE_DEVICES=0 image python train.py\ndocker run --privileged -e CUDA_VISIBLE_DEVICES=0 image python train.py\n"},
		},
		Look: func(f File) []Finding {
			return eachContainer(f, func(_ int, r containerRun) []Finding {
				s, ok := r.inner("CUDA_VISIBLE_DEVICES")
				_, runtime := r.inner("NVIDIA_VISIBLE_DEVICES")
				if !ok || hides(s.Value) || runtime || len(r.gpus)+len(r.cdi) > 0 || r.nodes || r.runtime != "" || r.tool == "nvidia-docker" {
					return nil
				}
				return []Finding{{Finding: check.Finding{Code: "cuda-variable-for-container", Severity: check.Info,
					Seen: "CUDA_VISIBLE_DEVICES goes into a container that is given no GPU",
					Why:  "the variable chooses among the GPUs of the container and brings none in, unless the NVIDIA runtime is the default",
					Do:   "add --gpus, and leave the variable out"}, At: s.At}}
			})
		},
	}
}
