package lint

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"gpuard/internal/core/check"
	"gpuard/internal/core/compat"
)

// hasVendorPrefix reports whether a name may be a variable of a GPU library. Shell scripts set many others.
func hasVendorPrefix(name string) bool {
	vendor, _, more := strings.Cut(strings.ToUpper(name), "_")
	return more && slices.Contains([]string{"CUDA", "NVIDIA", "NCCL", "TORCH", "PYTORCH", "XLA", "JAX", "TF", "HIP", "ROCR", "AMD", "GPU", "ZE", "ONEAPI", "SYCL", "HCQ", "ASCEND"}, vendor)
}

func lookMisspelt(file File) (all []Finding) {
	has := sync.OnceValue(func() besides { return newBesides(file) })
	read := sync.OnceValue(func() map[string]bool { return readNames(file) })
	given := sync.OnceValue(func() int { return readBatchRequest(file).gpus })
	choices := sync.OnceValue(func() []deviceChoice { return deviceNumbersOf(file) })
	use := newGPUUse(file)
	eachAssignment(file, func(s Step) {
		if !hasVendorPrefix(s.Name) {
			return
		}
		if meant, ok := compat.SuggestName(s.Name); ok {
			needless := use.whyNeedless(s, meant.Name)
			if has().hasSameValue(s, meant.Name) || needless == usesNoGPU {
				// Nothing would change.
				return
			}

			f := valueFinding(s, s.Name+" is no variable that anything reads", "it looks like "+meant.Name+": "+meant.What, "write "+meant.Name, "")
			f.At = s.At
			switch {
			case meant.Name == nvidiaVisibleDevices && s.Value.Text == "all" && s.Value.Known:
				f.Severity, f.Do = check.Info, "leave it out, where the image or an option gives all GPUs already"
			case s.Shell == 0 && givesOwn(s.Value) || hasWord("SLURM_LOCALID LOCAL_RANK", s.Value.From) && givesEachTask(file):
				f.Severity, f.Do = check.Info, leftToBatch
			case read()[s.Name]:
				f.Severity, f.Seen = check.Info, "only this file reads "+s.Name
			case isChosenBeyond(choices(), s), use.isHandedOn(s):
				f.Severity, f.Do = check.Info, "leave it out: the program chooses its GPU by number, and would not find that one in a list of its own"
			case needless != "":
				f.Severity, f.Why = check.Info, f.Why+"; "+needless
			case s.Shell == 0 && s.Value.Known && isBeyond(given(), s.Value.Text):
				f.Severity, f.Do = check.Info, leftToBatch
			case use.isToldMore(s):
				f.Severity, f.Do = check.Info, "leave it out, or write "+meant.Name+" and start no more processes than it has devices"
			case isSetAfterStart(file, s):
				f.Severity, f.Why = check.Info, f.Why+"; the driver is started before, so the right name would change nothing here either"
			}
			all = append(all, f)
		}
	})
	return all
}

// givesOwn reports whether a value is the list that the batch system gives a job, by its numbers on the machine or as it is there.
func givesOwn(v Value) bool {
	return hasWord("SLURM_JOB_GPUS SLURM_STEP_GPUS GPU_DEVICE_ORDINAL CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES", v.From)
}

// givesEachTask reports whether the batch system gives each task GPUs of its own: that it counts from 0.
func givesEachTask(file File) bool {
	return slices.ContainsFunc(file.Steps, func(s Step) bool {
		return s.Do == Setting && hasWord("sbatch.gpus-per-task sbatch.gpu-bind", s.Name)
	})
}

// besides are the assignments of a file by what they count for: all that comes, or one command.
type besides struct {
	lasting map[string][]string
	// Each block of a page is copied by itself.
	isPage bool
	// All variables of a command, by the place of each of them.
	together map[Place][]Step
}

func newBesides(file File) besides {
	b := besides{lasting: map[string][]string{}, isPage: file.Kind == Markdown, together: map[Place][]Step{}}
	for _, s := range file.Steps {
		if s.Do == Set {
			key := b.assignmentKey(s, s.Name)
			b.lasting[key] = append(b.lasting[key], s.Value.Raw)
		}
		own := commandVariables(s)
		for _, w := range own {
			b.together[w.At] = own
		}
	}
	return b
}

// assignmentKey is what assignments of a name are found by: in a page those of one block alone.
func (b besides) assignmentKey(s Step, name string) string {
	if b.isPage {
		return fmt.Sprint(s.Shell, " ", name)
	}
	return name
}

// hasSameValue reports whether a variable has, where a step sets another one, the same value already.
func (b besides) hasSameValue(s Step, name string) bool {
	return slices.Contains(b.lasting[b.assignmentKey(s, name)], s.Value.Raw) ||
		slices.ContainsFunc(b.together[s.At], func(w Step) bool { return w.Name == name && w.Value.Raw == s.Value.Raw })
}

// readNames are the variables that a file itself reads, in its commands and values.
func readNames(file File) map[string]bool {
	all := map[string]bool{}
	add := func(v Value) {
		all[v.From] = true
		for _, found := range expanded().FindAllStringSubmatch(v.Raw, -1) {
			all[found[1]] = true
		}
	}

	for _, s := range file.Steps {
		for _, a := range s.Args {
			all[a.Value.From] = true
		}
		if s.Do == Read {
			all[s.Name] = true
		}
		for _, set := range slices.Concat(commandVariables(s), []Step{s}) {
			if set.Do == Set && set.Value.From != set.Name {
				add(set.Value)
			}
		}
		if len(s.Words) > 0 && hasWord("[ [[ test echo printf", s.Words[0].Text) {
			continue
		}
		for _, w := range s.Words {
			if !w.Known {
				add(w)
			}
		}
	}

	return all
}

var expanded = lazyRegexp(`\$\{?([A-Za-z_]\w*)`)

// deviceNumbersOf are the devices that a program chooses by number, and the values that it chooses by.
func deviceNumbersOf(file File) (all []deviceChoice) {
	for _, s := range file.Steps {
		all = append(all, s.deviceChoices()...)
	}
	return all
}

// isChosenBeyond reports whether all choices are of devices that a list would not have, or are made by the very value of it: the
// program works because nothing reads that list.
func isChosenBeyond(choices []deviceChoice, set Step) bool {
	n, counted := countDevices(set.Value)
	return len(choices) > 0 && !slices.ContainsFunc(choices, func(c deviceChoice) bool {
		beyond := counted && n > 0 && c.index >= n
		return !beyond && (set.Value.Known || set.Value.From == "" || c.value.From != set.Value.From)
	})
}

// isSetAfterStart reports whether a variable of Python is set behind what starts the driver, on a way through the file.
func isSetAfterStart(file File, set Step) bool {
	return slices.ContainsFunc(traceFlows(file), func(w flow) bool {
		i := slices.IndexFunc(w.moments, func(m flowStep) bool { return m.Do == Set && m.At == set.At })
		return i >= 0 && slices.ContainsFunc(w.moments[:i], func(m flowStep) bool {
			return m.Do == Call && m.driverStarter(true, false) != "" && m.canReach(w.moments[i])
		})
	})
}

func lookOldName(file File) (all []Finding) {
	has := map[string]bool{}
	eachAssignment(file, func(s Step) { has[s.Name] = true })
	eachAssignment(file, func(s Step) {
		if !hasVendorPrefix(s.Name) {
			return
		}

		old, is := compat.DeprecatedName(s.Name, s.Value.Text)
		if !is || old.Either || old.Instead != "" && has[old.Instead] {
			return
		}

		seen, do := s.Name+" is an old name", "leave it out"
		if old.Kind == compat.Gone {
			seen = s.Name + " is not read any more"
		}

		if old.OfValue() {
			seen = assignmentText(s) + " is an old way"
		}

		if old.Since != "" {
			seen += " since " + old.Since
		}

		if old.Instead != "" {
			do = "write " + old.Instead
		}

		f := valueFinding(s, seen, old.What, do, "")
		f.At = s.At
		f.Since = knownSince(old)

		all = append(all, f)
	})

	return all
}

// knownSince is the first PyTorch that has the NCCL which reads the new name, or reads it itself: older ones know the old name
// alone. Which NCCL comes with which PyTorch: pytorch/pytorch, .github/scripts/generate_binary_build_matrix.py.
func knownSince(old compat.Name) string {
	switch {
	case strings.HasPrefix(old.Instead, "TORCH_NCCL_"):
		return "2.2"
	case strings.HasSuffix(old.Instead, "_CTAS"):
		return "2.1"
	case old.Kind == compat.Gone && strings.HasPrefix(old.Since, "NCCL "):
		return "1.7"
	}
	return ""
}

func lookDebug(file File) (all []Finding) {
	pipeline := file.Kind == Workflow || file.Kind == GitLab
	if isRepeatable(file) || file.Kind == Markdown || pipeline || isTest(file.Path) || strings.Contains(strings.ToLower(path.Base(file.Path)), "debug") {
		// On purpose: a page that says what it is for, a test, the machines of a pipeline.
		return nil
	}
	eachKnownValue(file, func(s Step) {
		if !hasVendorPrefix(s.Name) {
			return
		}
		if s.Maybe {
			// By request, as with --debug.
			return
		}

		name, debug := compat.DebugOnly(s.Name, s.Value.Text)
		if !debug || !name.Warns || hasWord("NCCL_P2P_DISABLE NCCL_P2P_LEVEL NCCL_SHM_DISABLE", s.Name) {
			// Whether cards can reach each other, and whether they hang when they try, the machine knows and no file:
			// of seven such settings that people judged four were for cards that cannot. doctor looks at the machine.
			return
		}

		f := valueFinding(s, fmt.Sprintf("%s is for the search for errors", assignmentText(s)), name.What, "leave "+s.Name+" out when the error is found", "")
		f.At = s.At
		all = append(all, f)
	})
	return all
}

// isRepeatable reports whether a file asks for the same result each time, which such variables are part of
// (docs.pytorch.org, "Reproducibility").
func isRepeatable(file File) bool {
	found := false
	eachAssignment(file, func(s Step) {
		found = found || hasWord("CUBLAS_WORKSPACE_CONFIG TORCH_COMPILE_DISABLE", s.Name) || strings.Contains(strings.ToLower(s.In), "determinis")
	})
	return found
}
