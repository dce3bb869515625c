package lint

import (
	"slices"
	"strings"

	"gpuard/internal/core/check"
)

func lookMaskOutside(a indexedFile, _ int, r containerRun) (all []Finding) {
	for _, s := range r.set {
		if s.Do != Set || s.Name != "CUDA_VISIBLE_DEVICES" && s.Name != "NVIDIA_VISIBLE_DEVICES" && s.Name != "HIP_VISIBLE_DEVICES" {
			continue
		}
		if _, through := r.containerVariable(s.Name); through || r.nodes || len(lookBesideMask(a, 0, r)) > 0 {
			continue
		}
		all = append(all, Finding{Finding: check.Finding{
			Seen: s.Name + " is set for " + r.tool + ", not for the container",
			Why:  "a container gets none of the variables of the command that starts it, so it sees every GPU that " + r.tool + " gives it",
			Do:   "choose with --gpus device=... or -e " + s.Name}, At: s.At})
	}
	return all
}

func lookNvidiaOutside(f File) (all []Finding) {
	const name = "NVIDIA_VISIBLE_DEVICES"
	if slices.Contains([]Kind{Dockerfile, Compose, Kubernetes, GitLab}, f.Kind) {
		// There it is for the runtime.
		return nil
	}
	if slices.ContainsFunc(f.Steps, func(s Step) bool { return buildsContainer(s) || s.Do == Set && s.Name == "CUDA_VISIBLE_DEVICES" }) {
		return nil
	}

	a := indexVariables(f)
	for i, s := range f.Steps {
		if s.Do != Command || f.Kind == Unit && s.In == "Container" {
			continue
		}

		p := programOf(s)
		if !p.usesGPUs() {
			continue
		}
		if _, both := p.ownVariable("CUDA_VISIBLE_DEVICES"); both {
			continue
		}

		set, ok := p.ownVariable(name)
		if !ok {
			set, _ = a.outerSetting(i, name)
			if set.Do != Set {
				continue
			}
		}

		if f.Kind == Workflow && set.Shell == 0 && set.How != "prefix" && set.How != "env" {
			// The job may run in a container.
			continue
		}
		if slices.Contains([]string{"all", "none", "void", ""}, set.Value.Text) {
			continue
		}

		value := set.Value.Raw
		if set.Value.At == set.At {
			// Export "NAME=value".
			value = set.Value.Text
		}

		finding := Finding{Finding: check.Finding{
			Seen: name + " is set for " + p.name + ", which does not read it", Why: "only the container runtime reads it; the program sees every GPU",
			Do: "write CUDA_VISIBLE_DEVICES=" + value}, At: set.At, Line: "CUDA_VISIBLE_DEVICES=" + value}

		if set.How == "export" {
			finding.Line = "export " + finding.Line
		}

		if at := set.At; isFromShell(f, set) && set.Do == Set && set.Value.At.Line == at.Line && set.Value.At.Column == at.Column+len(name)+1 {
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

func lookCUDAForContainer(a indexedFile, _ int, r containerRun) []Finding {
	s, ok := r.containerVariable("CUDA_VISIBLE_DEVICES")
	_, runtime := r.containerVariable("NVIDIA_VISIBLE_DEVICES")
	if !ok || hidesEveryDevice(s.Value) || runtime || len(r.gpus)+len(r.cdi) > 0 || r.nodes || r.runtime != "" || r.tool == "nvidia-docker" {
		return nil
	}

	return []Finding{{Finding: check.Finding{
		Seen: "CUDA_VISIBLE_DEVICES goes into a container that is given no GPU",
		Why:  "the variable chooses among the GPUs of the container and brings none in, unless the NVIDIA runtime is the default",
		Do:   "add --gpus, and leave the variable out"}, At: s.At}}
}
