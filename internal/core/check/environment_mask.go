package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/compat"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/option"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/shellquote"
	"gpuard/internal/core/visible"
)

// Sources of the rules about masks.
const (
	cudaVariables = "https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html"
	rocmIsolation = "https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html"
	condaActivate = "conda/conda: conda/activate.py"
)

// maskVariable is a variable that hides devices from the programs of one vendor's runtime.
type maskVariable struct {
	name   string
	vendor gpu.Vendor
	// An empty value hides everything.
	empty bool
}

// maskVariables lists those that count here. HIP programs read CUDA_VISIBLE_DEVICES too, but only if their own is not
// set.
func maskVariables() []maskVariable {
	return []maskVariable{
		{"CUDA_VISIBLE_DEVICES", gpu.NVIDIA, true},
		{"ROCR_VISIBLE_DEVICES", gpu.AMD, true},
		{"HIP_VISIBLE_DEVICES", gpu.AMD, true},
		{"ZE_AFFINITY_MASK", gpu.Intel, false},
		{"ASCEND_RT_VISIBLE_DEVICES", gpu.Ascend, true},
	}
}

func maskHidesAll() Check {
	page := Page{
		Code: "env-mask-hides-all", Title: "A variable hides every GPU",
		Text: option.Expand("Programs see only the devices that `CUDA_VISIBLE_DEVICES` (NVIDIA), `ROCR_VISIBLE_DEVICES` and `HIP_VISIBLE_DEVICES` (AMD), `ZE_AFFINITY_MASK` (Intel) or `ASCEND_RT_VISIBLE_DEVICES` (Ascend) lets them see. `-1`, a number that no device has at the beginning of the list, or a device named twice leaves none: the program then says that there is no GPU, or quietly works on the CPU. `nvidia-smi` does not read these variables and still shows everything.\n\n" +
			"Take the variable out of the environment (`unset CUDA_VISIBLE_DEVICES`), or name devices that are there. `{gpuard explain}` shows how each entry is read. Where a scheduler or a job script sets it, ask there for GPUs."),
		From: []string{cudaVariables, rocmIsolation},
	}
	return Check{Page: page, Stops: true, Look: func(s hostinfo.Site) []Finding {
		masks := setMasks(s)
		if s.Machine.Problem != "" || len(s.Machine.Found.Devices) == 0 {
			return findingsOfMasks(page.Code, masks)
		}

		m := s.Machine.Found
		hidden, _ := visible.HiddenDevices(s.Env, m)
		var reasons []string
		for i := range m.Devices {
			why, gone := hidden[m.Devices[i].UUID]
			if !gone {
				return okFinding(page.Code, visibleCountText(len(m.Devices)-countHiddenDevices(m, hidden), len(m.Devices), masks))
			}
			reasons = append(reasons, strings.TrimSuffix(why, " hides it"))
		}

		slices.Sort(reasons)
		reasons = slices.Compact(reasons)
		empty := !slices.ContainsFunc(namesOf(reasons), func(name string) bool {
			value, _ := s.Env.Lookup(name)
			return strings.TrimSpace(value) != ""
		})

		if empty {
			return okFinding(page.Code, "no value hides all devices (an empty one does: see "+maskEmptyCode+")")
		}

		do := unmaskAdvice(s.Env, namesOf(reasons))

		return []Finding{{page.Code, Error, fmt.Sprintf("%s hides %s", strings.Join(reasons, " and "), allGPUsText(len(m.Devices))), "programs started here find no GPU and fail, or work on the CPU", do}}
	}}
}

// unmaskAdvice says how to remove the masks. The advice keeps the mask of a Slurm job or a lease, because without it
// programs could use devices of others.
func unmaskAdvice(env visible.Env, names []string) string {
	masks := slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, "SLURM_") })
	set := func(name string) bool { value, _ := env.Lookup(name); return value != "" }
	switch {
	case isLoginMask(env, masks):
		return option.Expand("start programs by {gpuard run}, which ignores this: the rule for logins without a lease set it")
	case set("GPUARD_LEASE"):
		return option.Expand("ask the surrounding {gpuard run} for a GPU (leave out {cpu})")
	case visible.Allocation(env) == "":
		return "unset " + strings.Join(masks, " ")
	case set("SLURM_STEP_GPUS") || set("SLURM_JOB_GPUS"):
		return "find what changes " + prose.JoinWords(masks, "and") + " after Slurm set it, as a profile or the job script, and take it out there"
	}

	return "ask Slurm for a GPU, as with sbatch --gpus=1"
}

// isLoginMask reports whether the masks are those that the login rule set.
func isLoginMask(env visible.Env, masks []string) bool {
	without, _, _ := env.LiftLogin()
	return !slices.ContainsFunc(masks, func(name string) bool { _, still := without.Lookup(name); return still })
}

// findingsOfMasks judges masks where the devices cannot be counted: -1 can be judged without them.
func findingsOfMasks(code string, masks []string) []Finding {
	for _, m := range masks {
		if name, value, _ := strings.Cut(m, "="); value == "-1" || value == "NoDevFiles" {
			return []Finding{{code, Info, m + " hides every GPU of programs that read it", "no device can be counted here, so this may be on purpose", "unset " + name}}
		}
	}
	return okFinding(code, "no variable hides everything")
}

const maskEmptyCode = "env-mask-empty"

func maskEmpty() Check {
	page := Page{
		Code: maskEmptyCode, Title: "A mask is set but empty, which hides every GPU",
		Text: option.Expand("`CUDA_VISIBLE_DEVICES=` is not the same as no such variable: an empty list names no device, so programs see none. AMD's `ROCR_VISIBLE_DEVICES` is read alike, and `HIP_VISIBLE_DEVICES` too, but HIP 5.2 takes an empty one for not set and shows every GPU (`-1` shows none with every version); Intel's `ZE_AFFINITY_MASK` hides nothing when it is empty.\n\n" +
			"It often comes from conda: a variable that was stored with `conda env config vars set` is not taken away by `conda deactivate` in bash and zsh but left behind empty (from conda 25.7 on), when it had no value before. `unset CUDA_VISIBLE_DEVICES` mends the shell; to prevent it, set the variable by a script in `etc/conda/activate.d` and unset it in `etc/conda/deactivate.d`, or leave the choice to `{gpuard run}`."),
		From: []string{cudaVariables, condaActivate},
	}
	return Check{Page: page, Stops: true, Look: func(s hostinfo.Site) []Finding {
		var empty []string
		conda := false

		for _, v := range maskVariables() {
			if value, set := s.Env.Lookup(v.name); set && v.empty && strings.TrimSpace(value) == "" {
				empty = append(empty, v.name)
			}
		}

		for _, name := range []string{"CONDA_EXE", "CONDA_SHLVL", "MAMBA_EXE"} {
			_, set := s.Env.Lookup(name)
			conda = conda || set
		}

		if len(empty) == 0 {
			return okFinding(page.Code, "no mask is set but empty")
		}

		verb := " is"
		if len(empty) > 1 {
			verb = " are"
		}

		// There are no devices to hide, or they are unknown.
		severity, why := Info, "an empty list names no device: programs that read it see no GPU"
		switch hides := countHiddenBy(s, empty); {
		case hides > 0 && hidesAllDevices(s):
			severity = Error
		case hides > 0:
			severity = Warning
		}

		if conda {
			why += "; conda deactivate leaves variables of conda env config vars so"
		}

		return []Finding{{page.Code, severity, prose.JoinWords(empty, "and") + verb + " set to the empty string", why, unmaskAdvice(s.Env, empty)}}
	}}
}

func maskList() Check {
	page := Page{
		Code: "env-mask-list", Title: "A mask says something else than was meant",
		Text: option.Expand("The lists are read by the drivers, each in its own way, and none complains: an entry that is no device ends the list, and the entries after it are lost; ranges such as `0-3` are not known; a word of containers (`all`, `none`) is no device; quotation marks that reach the program are part of the value; numbers and identifiers do not mix.\n\n" +
			"Write numbers or identifiers with commas between them and nothing else: `CUDA_VISIBLE_DEVICES=0,1,2,3`. `{gpuard explain}` shows entry by entry what is made of it."),
		From: []string{cudaVariables, "pytorch/pytorch: test/test_cuda_nvml_based_avail.py", "ROCm/ROCR-Runtime: runtime/hsa-runtime/core/runtime/amd_filter_device.cpp", "intel/compute-runtime: shared/source/execution_environment/execution_environment.cpp"},
	}
	return Check{Page: page, Look: func(s hostinfo.Site) []Finding {
		if s.Machine.Problem != "" || len(s.Machine.Found.Devices) == 0 {
			switch {
			case len(setMasks(s)) == 0:
				return okFinding(page.Code, "no mask is set")
			case hasNoCard(s) || s.Machine.Problem == "":
				return okFinding(page.Code, "there is no GPU to choose from")
			}
			return unknownFinding(page.Code, "what the masks choose from", problemOnly(s.Machine.Problem), "")
		}

		_, notes := visible.HiddenDevices(s.Env, s.Machine.Found)
		var found []Finding
		for _, n := range notes {
			do := option.Sprintf("write a plain list, as in %s=0,1; {gpuard explain} shows how it is read", plainMask(n.Text))
			switch {
			case n.Widens():
				found = append(found, Finding{page.Code, Error, n.Text, "programs see GPUs that the value does not name, other people's too", do})
			case n.IsMisread():
				found = append(found, Finding{page.Code, Warning, n.Text, "programs see other devices than the value suggests", do})
			}
		}

		if len(found) == 0 {
			return okFinding(page.Code, cmp.Or(strings.Join(setMasks(s), ", "), "no mask is set"))
		}

		return found
	}}
}

// plainMask is the variable that a note begins with, if that takes a list.
func plainMask(text string) string {
	for _, m := range maskVariables() {
		if strings.HasPrefix(text, m.name) {
			return m.name
		}
	}
	return "CUDA_VISIBLE_DEVICES"
}

func misspeltMask() Check {
	page := Page{
		Code: "env-mask-misspelt", Title: "A variable is almost one that chooses devices",
		Text: "Nothing reads `CUDA_VISIBLE_DEVICE` or `CUDA_DEVICES_ORDER`: the program takes every GPU, or the first one. No program checks variables, so such a slip stays unseen until two jobs use one GPU.\n\nWrite the name that was meant, and take the other out.",
		From: []string{cudaVariables},
	}
	return Check{Page: page, Look: func(s hostinfo.Site) []Finding {
		var found []Finding
		for name, value := range s.Env.All() {
			meant, isSlip := compat.SuggestName(name)
			if _, right := s.Env.Lookup(meant.Name); isSlip && right {
				found = append(found, Finding{page.Code, Info, name + " is set beside " + meant.Name, "nothing reads the first; the second counts", "unset " + name})
			} else if isSlip {
				found = append(found, Finding{page.Code, Warning, name + " is set, which nothing reads", "it hides nothing: programs use whatever devices they find", fmt.Sprintf("unset %s; export %s=%s", name, meant.Name, shellquote.Sh(value))})
			}
		}
		if found == nil {
			return okFinding(page.Code, "no variable looks like a misspelt mask")
		}

		return found
	}}
}

func containerMask() Check {
	page := Page{
		Code: "env-container-mask", Title: "NVIDIA_VISIBLE_DEVICES is set where it counts for nothing",
		Text: option.Expand("`NVIDIA_VISIBLE_DEVICES` tells NVIDIA's container runtime which GPUs a container gets. Programs do not read it: outside of containers it hides nothing, and a program takes every GPU it finds. `CUDA_VISIBLE_DEVICES` is the variable for programs.\n\n" +
			"Set `CUDA_VISIBLE_DEVICES`, or let `{gpuard run}` choose; what is meant for a container goes to it: `docker run -e NVIDIA_VISIBLE_DEVICES=…`."),
		From: []string{toolkitSpecialized, cudaVariables},
	}
	return Check{Page: page, Look: func(s hostinfo.Site) []Finding {
		value, set := s.Env.Lookup("NVIDIA_VISIBLE_DEVICES")
		lease, _ := s.Env.Lookup("GPUARD_LEASE")
		_, masked := s.Env.Lookup("CUDA_VISIBLE_DEVICES")
		switch {
		case !set || slices.Contains([]string{"", "all", "void"}, value):
			return okFinding(page.Code, "NVIDIA_VISIBLE_DEVICES names no device")
		case s.Container != "" || lease != "":
			return okFinding(page.Code, "NVIDIA_VISIBLE_DEVICES was set for a container, or by gpuard")
		case masked:
			return okFinding(page.Code, "CUDA_VISIBLE_DEVICES is set beside NVIDIA_VISIBLE_DEVICES")
		case s.Machine.Problem != "" && hasNoCard(s):
			return okFinding(page.Code, "there is no GPU to hide")
		case s.Machine.Problem != "":
			return unknownFinding(page.Code, "whether NVIDIA_VISIBLE_DEVICES counts here", problemOnly(s.Machine.Problem), "")
		case len(onlyNVIDIA(s)) <= len(strings.Split(value, ",")):
			return okFinding(page.Code, "programs see no more GPUs than NVIDIA_VISIBLE_DEVICES names")
		}

		instead := "export CUDA_VISIBLE_DEVICES=" + shellquote.Sh(value) + ", where programs were meant"
		switch known := func(e string) bool { return isDeviceName(e) || strings.HasPrefix(e, "MIG-") }; {
		case value == "none":
			instead = "export CUDA_VISIBLE_DEVICES=-1, where programs were meant"
		case slices.ContainsFunc(strings.Split(value, ","), func(e string) bool { return !known(strings.TrimSpace(e)) }):
			instead = "where programs were meant, name the GPUs in CUDA_VISIBLE_DEVICES (nvidia-smi -L lists their identifiers)"
		}

		return []Finding{{page.Code, Warning, "NVIDIA_VISIBLE_DEVICES=" + shellquote.Sh(value) + " is set, and CUDA_VISIBLE_DEVICES is not", "only container runtimes read it: programs started here see every GPU", instead}}
	}}
}

func deviceOrder() Check {
	page := Page{
		Code: "env-device-order", Title: "GPU numbers mean different cards to CUDA and to nvidia-smi",
		Text: option.Expand("CUDA numbers the fastest card first unless `CUDA_DEVICE_ORDER=PCI_BUS_ID` is set; `nvidia-smi`, NVML and most monitoring count by PCI address. On a machine with different models, `CUDA_VISIBLE_DEVICES=0` can therefore be another card than GPU 0 of `nvidia-smi`.\n\n" +
			"Any other word than `PCI_BUS_ID` and `FASTEST_FIRST`, also an empty one, keeps CUDA from starting.\n\nSet `CUDA_DEVICE_ORDER=PCI_BUS_ID` for all users (in `/etc/environment` or `/etc/profile.d`), or name cards by identifier (`nvidia-smi -L`). What `{gpuard run}` starts always has it."),
		From: []string{cudaVariables},
	}
	return Check{Page: page, Stops: true, Look: func(s hostinfo.Site) []Finding {
		order, set := s.Env.Lookup("CUDA_DEVICE_ORDER")
		models := modelsOf(s.Machine.Found, gpu.NVIDIA)
		mask, masked := s.Env.Lookup("CUDA_VISIBLE_DEVICES")
		byNumber := masked && mask != "" && mask != "-1" && !strings.HasPrefix(mask, "GPU-") && !strings.HasPrefix(mask, "MIG-")
		const do = "export CUDA_DEVICE_ORDER=PCI_BUS_ID"

		switch {
		case set && order != "PCI_BUS_ID" && order != "FASTEST_FIRST":
			f := Finding{page.Code, Error, "CUDA_DEVICE_ORDER=" + shellquote.Sh(order) + " is no order that CUDA knows", "only PCI_BUS_ID and FASTEST_FIRST are: with any other value, also an empty one, CUDA does not start", do}
			if slices.ContainsFunc(s.Machine.Found.Devices, func(d gpu.Device) bool { return d.Vendor != gpu.NVIDIA }) || !hasVendor(s, gpu.NVIDIA) {
				// Other programs do start.
				f.Severity = Warning
			}
			return []Finding{f}
		case s.Machine.Problem != "" && (s.Cards.Problem != "" || onBus(s, 0x10de) > 1):
			return unknownFinding(page.Code, "whether the GPUs are of one model", problemOnly(s.Machine.Problem), "")
		case !hasVendor(s, gpu.NVIDIA):
			return okFinding(page.Code, "there is no GPU of NVIDIA's to number")
		case len(models) < 2:
			return okFinding(page.Code, "the GPUs are of one model, so that numbers mean the same to all users")
		case order == "PCI_BUS_ID":
			return okFinding(page.Code, "CUDA_DEVICE_ORDER=PCI_BUS_ID")
		}

		seen := "different models (" + strings.Join(models, ", ") + ") and CUDA_DEVICE_ORDER is not PCI_BUS_ID"
		if byNumber {
			return []Finding{{page.Code, Warning, seen + ", with CUDA_VISIBLE_DEVICES=" + mask, "CUDA counts the fastest card first, so these numbers may be other cards than nvidia-smi shows", do}}
		}

		return []Finding{{page.Code, Info, seen, "CUDA counts the fastest card first, nvidia-smi counts by PCI address: a number can mean two cards", do}}
	}}
}

// onBus counts the cards of a vendor on the PCI bus.
func onBus(s hostinfo.Site, vendor uint16) (n int) {
	for _, c := range s.Cards.Found {
		if c.Vendor == vendor {
			n++
		}
	}
	return n
}

// problemOnly drops what to do about a problem, which another check says.
func problemOnly(problem string) string {
	text, _, _ := strings.Cut(problem, "; ")
	return text
}

// setMasks lists the masks that are set to something, as NAME=value.
func setMasks(s hostinfo.Site) []string {
	var masks []string
	for _, v := range maskVariables() {
		if value, _ := s.Env.Lookup(v.name); strings.TrimSpace(value) != "" {
			masks = append(masks, v.name+"="+value)
		}
	}
	return masks
}

// hidesAllDevices reports whether the caller's variables hide every device.
func hidesAllDevices(s hostinfo.Site) bool {
	hidden, _ := visible.HiddenDevices(s.Env, s.Machine.Found)
	return len(s.Machine.Found.Devices) > 0 && countHiddenDevices(s.Machine.Found, hidden) == len(s.Machine.Found.Devices)
}

// countHiddenBy counts the devices that one of these variables hides.
func countHiddenBy(s hostinfo.Site, names []string) (n int) {
	hidden, _ := visible.HiddenDevices(s.Env, s.Machine.Found)
	for i := range s.Machine.Found.Devices {
		name, _, _ := strings.Cut(hidden[s.Machine.Found.Devices[i].UUID], "=")
		if slices.Contains(names, name) {
			n++
		}
	}
	return n
}

func countHiddenDevices(m gpu.Machine, hidden map[gpu.UUID]string) (n int) {
	for i := range m.Devices {
		if _, gone := hidden[m.Devices[i].UUID]; gone {
			n++
		}
	}
	return n
}

func visibleCountText(left, all int, masks []string) string {
	if len(masks) == 0 {
		return "no variable hides a device"
	}
	return fmt.Sprintf("%s leaves %d of %d devices", strings.Join(masks, ", "), left, all)
}

func allGPUsText(n int) string {
	switch n {
	case 1:
		return "the one GPU of this machine"
	case 2:
		return "both GPUs of this machine"
	}
	return fmt.Sprintf("all %d GPUs of this machine", n)
}

// modelsOf names the different models of a vendor, sorted.
func modelsOf(m gpu.Machine, vendor gpu.Vendor) []string {
	var models []string
	for i := range m.Devices {
		if d := &m.Devices[i]; d.Vendor == vendor && d.Name != "" {
			models = append(models, d.Name)
		}
	}
	slices.Sort(models)

	return slices.Compact(models)
}

// namesOf are the names of NAME=value texts.
func namesOf(pairs []string) []string {
	var names []string
	for _, p := range pairs {
		name, _, _ := strings.Cut(p, "=")
		names = append(names, name)
	}
	return slices.Compact(names)
}
