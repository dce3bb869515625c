package check

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/compat"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/shellquote"
	"gpuard/internal/core/visible"
)

const ncclVariables = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"

func oldNames() Check {
	page := Page{
		Code: "env-old-name", Title: "A variable has a newer name, or no program reads it any more",
		Text: "Libraries rename their settings: PyTorch's own settings of NCCL begin with `TORCH_NCCL_` now, `PYTORCH_CUDA_ALLOC_CONF` became `PYTORCH_ALLOC_CONF`, JAX wants `XLA_CLIENT_MEM_FRACTION`. Most old names still work for a while, and a library that does not know the new one needs the old; a name that was removed does nothing at all.\n\n" +
			"Where only newer versions are in use, write the new name. Where a setting was removed, take it out of profiles and job scripts: it promises something that does not happen.",
		From: []string{"NVIDIA/nccl: docs/userguide/source/env.rst", "pytorch/pytorch: torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp", "https://docs.jax.dev/en/latest/201/gpu-memory.html"},
	}
	return Check{Page: page, Look: func(s hostinfo.Site) []Finding {
		var found []Finding
		for name, value := range s.Env.All() {
			n, old := compat.DeprecatedName(name, value)
			if newer, _ := s.Env.Lookup(n.Instead); old && (n.Kind == compat.Gone || newer == "") {
				// Both names may be set, for several versions.
				found = append(found, oldNameFinding(page.Code, n, name+" is set", value))
			}
		}
		if found == nil {
			return okFinding(page.Code, "no variable with an old name is set")
		}

		return found
	}}
}

// oldNameFinding is the finding of an obsolete name; where begins its Seen.
func oldNameFinding(code string, n compat.Name, where, value string) Finding {
	severity, why := Info, n.What
	if n.Warns {
		severity = Warning
	}

	if n.Since != "" {
		why = "since " + n.Since + ": " + why
	}

	seen := where + ", an old name"
	if n.Kind == compat.Gone {
		seen = where + ", which current versions do not read"
	}

	do := "unset " + n.Name
	if n.Instead != "" && n.Kind == compat.Old {
		do = fmt.Sprintf("where no older version is in use: unset %s; export %s=%s", n.Name, n.Instead, shellquote.Sh(value))
	} else if n.Instead != "" {
		do += "; see " + n.Instead
	}

	return Finding{code, severity, seen, why, do}
}

func debugNames() Check {
	page := Page{
		Code: "env-debug-left-on", Title: "A setting for finding errors was left on",
		Text: "Some variables are made for the search for an error and make every run slower, chattier or fragile: `NCCL_P2P_DISABLE` and `NCCL_SHM_DISABLE` take the fast ways between GPUs away, `CUDA_LAUNCH_BLOCKING` lets processor and GPU never work at the same time. NCCL's documentation says of its own that they must not be kept in scripts, since they can cost speed or lead to crashes and hangs with a later version.\n\n" +
			"Take the variable out of the profile or job script that sets it. Where it works around a real fault (GPUs whose direct way is broken by PCI access control, for example), keep it and say so in a comment.",
		From: []string{"NVIDIA/nccl: docs/userguide/source/env.rst", cudaVariables, "https://docs.pytorch.org/docs/stable/cuda_environment_variables.html"},
	}
	return Check{Page: page, Look: func(s hostinfo.Site) []Finding {
		var found []Finding
		for name, value := range s.Env.All() {
			if n, on := compat.DebugOnly(name, value); on {
				found = append(found, Finding{page.Code, debugSeverity(n, s), name + "=" + shellquote.Sh(value), n.What, "unset " + name})
			}
		}
		if found == nil {
			return okFinding(page.Code, "no setting for finding errors is on")
		}

		return found
	}}
}

// debugSeverity is how much a setting for debugging matters here. Links between GPUs do not matter to programs that see
// one GPU. The driver allows no peer-to-peer access between GeForce cards of the 40 series, so launchers set
// NCCL_P2P_DISABLE for them (huggingface/accelerate: src/accelerate/commands/launch.py). AMD's RCCL reads the variables
// of NCCL.
func debugSeverity(n compat.Name, s hostinfo.Site) Severity {
	direct := strings.HasPrefix(n.Name, "NCCL_P2P_")
	switch {
	case !n.Warns, s.Machine.Problem != "" && hasNoCard(s):
		return Info
	case s.Machine.Problem != "" || !direct && n.Name != "NCCL_SHM_DISABLE":
		return Warning
	}

	nvidia, amd := visibleDevices(s, gpu.NVIDIA), visibleDevices(s, gpu.AMD)
	apart := !slices.ContainsFunc(nvidia, func(d gpu.Device) bool { return !strings.Contains(d.Name, "GeForce RTX 40") })
	if len(amd) < 2 && (len(nvidia) < 2 || direct && apart) {
		return Info
	}

	return Warning
}

// visibleDevices lists the devices of a vendor that the caller's variables do not hide.
func visibleDevices(s hostinfo.Site, vendor gpu.Vendor) []gpu.Device {
	hidden, _ := visible.HiddenDevices(s.Env, s.Machine.Found)
	return slices.DeleteFunc(devicesOfVendor(s, vendor), func(d gpu.Device) bool { return hidden[d.UUID] != "" })
}

func jaxFractions() Check {
	page := Page{
		Code: "env-jax-fractions", Title: "Both names of JAX's memory fraction are set",
		Text: "JAX takes its share of GPU memory from `XLA_CLIENT_MEM_FRACTION`; `XLA_PYTHON_CLIENT_MEM_FRACTION` is the older name. With both set it does not choose but ends with a ValueError as soon as it wants a GPU.\n\nKeep one: the new name, or the old one where an older jaxlib is in use that knows no other.",
		From: []string{"jax-ml/jax: jaxlib/xla_client.py", "https://docs.jax.dev/en/latest/201/gpu-memory.html"},
	}
	return Check{Page: page, Look: func(s hostinfo.Site) []Finding {
		newer, a := s.Env.Lookup("XLA_CLIENT_MEM_FRACTION")
		older, b := s.Env.Lookup("XLA_PYTHON_CLIENT_MEM_FRACTION")
		if newer == "" || older == "" {
			if a || b {
				return okFinding(page.Code, "one name of JAX's memory fraction is set")
			}
			return okFinding(page.Code, "JAX's memory fraction is not set")
		}

		return []Finding{{
			page.Code, Error, fmt.Sprintf("XLA_CLIENT_MEM_FRACTION=%s and XLA_PYTHON_CLIENT_MEM_FRACTION=%s are both set", newer, older),
			"JAX refuses to use a GPU with both", "unset XLA_PYTHON_CLIENT_MEM_FRACTION",
		}}
	}}
}

func jaxValues() Check {
	page := Page{
		Code: "env-jax-value", Title: "A setting of JAX has a value that does not do what it says",
		Text: "JAX stops taking 75 % of the GPU's memory at its start only for `XLA_PYTHON_CLIENT_PREALLOCATE=false`, `False` or `0`; `no`, `off` and `FALSE` are passed over without a word. An unknown `XLA_PYTHON_CLIENT_ALLOCATOR` is an error when JAX first wants a GPU.\n\n" +
			"Write `false`, and one of `default`, `platform`, `bfc`, `cuda_async`, `vmm`, `address`.",
		From: []string{"jax-ml/jax: jaxlib/xla_client.py", "https://docs.jax.dev/en/latest/201/gpu-memory.html"},
	}
	return Check{Page: page, Look: func(s hostinfo.Site) []Finding {
		preallocate, _ := s.Env.Lookup("XLA_PYTHON_CLIENT_PREALLOCATE")
		allocator, _ := s.Env.Lookup("XLA_PYTHON_CLIENT_ALLOCATOR")
		var found []Finding
		if slices.Contains([]string{"no", "off", "f", "n", "false"}, strings.ToLower(strings.TrimSpace(preallocate))) && preallocate != "false" && preallocate != "False" {
			found = append(found, Finding{page.Code, Warning, "XLA_PYTHON_CLIENT_PREALLOCATE=" + shellquote.Sh(preallocate), "JAX knows only false, False and 0 for no, and still takes 75 % of the memory at the start", "export XLA_PYTHON_CLIENT_PREALLOCATE=false"})
		}

		if allocator != "" && !slices.Contains([]string{"default", "platform", "bfc", "cuda_async", "vmm", "address"}, strings.ToLower(allocator)) {
			found = append(found, Finding{page.Code, Error, "XLA_PYTHON_CLIENT_ALLOCATOR=" + shellquote.Sh(allocator) + " is no allocator of JAX", "JAX ends with an error when it wants a GPU", "unset XLA_PYTHON_CLIENT_ALLOCATOR"})
		}

		if found == nil {
			return okFinding(page.Code, "JAX understands its settings, or has none")
		}

		return found
	}}
}

func ncclFiles() Check {
	page := Page{
		Code: "nccl-file", Title: "NCCL takes settings from a file",
		Text: "NCCL reads `/etc/nccl.conf` and, for the user, the file that `NCCL_CONF_FILE` names (since 2.23) or else `~/.nccl.conf`. What the environment sets wins over both, and the user's file over the machine's. A setting for debugging that was forgotten there slows every job of the machine down, and nothing in the job's own environment shows it.\n\n" +
			"Take settings for debugging out of the file, and name it without `~`, which NCCL does not understand.",
		From: []string{ncclVariables, "NVIDIA/nccl: src/misc/param.cc"},
	}
	return Check{Page: page, Look: func(s hostinfo.Site) []Finding {
		if s.NCCL.Problem != "" {
			return unknownFinding(page.Code, "NCCL's files", s.NCCL.Problem, "")
		}

		var found []Finding
		for _, f := range s.NCCL.Found {
			found = append(found, ncclFile(page.Code, f, s)...)
		}

		if found == nil {
			return okFinding(page.Code, "there is no file of NCCL settings")
		}

		return found
	}}
}

func ncclFile(code string, f hostinfo.NCCLFile, s hostinfo.Site) []Finding {
	var found []Finding
	if f.Problem != "" {
		do := "make it readable, or take NCCL_CONF_FILE out of the environment"
		if named, _ := s.Env.Lookup("NCCL_CONF_FILE"); named != f.Path {
			do = "mend or remove " + f.Path
		} else if strings.HasPrefix(f.Path, "~") {
			do = "write the whole path into NCCL_CONF_FILE, without ~"
		}
		return []Finding{{code, Warning, "cannot use " + f.Path + ": " + f.Problem, "NCCL passes over it without a word, so its settings do not count", do}}
	}

	for _, pair := range f.Settings {
		name, value, _ := strings.Cut(pair, "=")
		if _, over := s.Env.Lookup(name); over {
			// The environment wins, and has its own checks.
			continue
		}
		if n, on := compat.DebugOnly(name, value); on {
			found = append(found, Finding{code, debugSeverity(n, s), f.Path + " sets " + pair, n.What, "take " + name + " out of " + f.Path})
		} else if n, old := compat.DeprecatedName(name, value); old {
			o := oldNameFinding(code, n, f.Path+" sets "+name, value)
			o.Do = strings.Replace(o.Do, "unset "+name, "take "+name+" out of "+f.Path, 1)
			found = append(found, o)
		}
	}

	if found == nil && len(f.Settings) > 0 {
		return []Finding{{code, Info, fmt.Sprintf("%s sets %s", f.Path, firstSettings(f.Settings)), "these count in every job that uses NCCL, though no environment shows them", ""}}
	}

	return found
}

// firstSettings names the first few settings, each cut to fit a sentence.
func firstSettings(settings []string) string {
	const most = 8
	shown := prose.Texts(settings[:min(most, len(settings))], prose.Brief)

	if more := len(settings) - most; more > 0 {
		shown = append(shown, fmt.Sprintf("and %d more", more))
	}

	return strings.Join(shown, ", ")
}
