package lint

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"gpuard/internal/core/check"
)

const (
	codeLate   = "late-assignment"
	codeCell   = "late-cell"
	codeForked = "set-in-forked-worker"
)

// lateAssignment is an assignment that comes too late, and what came before it.
type lateAssignment struct {
	set, before flowStep
	library     string
	severity    check.Severity
	// The driver has certainly been started by then.
	started bool
	// The process counts its device among all of the machine: in time, the list would be in its way.
	ownDevice bool
}

// severityRank orders severities: what is worse is higher.
func severityRank(s check.Severity) int {
	return slices.Index([]check.Severity{check.Info, check.Warning, check.Error}, s)
}

// findLateAssignments finds the assignments that come after a start of the driver, or after what may have started it. The import of
// PyTorch alone starts nothing: of 70 such findings that people judged, none was worth a change.
func findLateAssignments(f File) []lateAssignment {
	worst := map[Place]lateAssignment{}
	var order []Place
	use := newGPUUse(f)
	choices := sync.OnceValue(func() []deviceChoice { return deviceNumbersOf(f) })

	for _, w := range traceFlows(f) {
		torch, nvml := false, false

		// Whether the name torch is there by then. A worker has the imports of the file behind it, which are not in its flow.
		named := w.worker

		// A function that is called again says nothing new.
		judged := map[Place]bool{}

		// What may have started the driver.
		var before []lateAssignment

		for i, m := range w.moments {
			torch = torch || m.Do == Import && slices.Contains([]string{"torch", "torchvision", "torchaudio", "transformers", "diffusers", "lightning", "pytorch_lightning"}, rootModule(m.Name))
			nvml = nvml || m.Do == Import && (rootModule(m.Name) == "lightning" || rootModule(m.Name) == "pytorch_lightning") || m.Do == Set && m.Name == "PYTORCH_NVML_BASED_CUDA_CHECK" && m.Value.Text == "1"
			named = named || m.namesTorch()
			switch {
			case !named && m.Do == Call && strings.HasPrefix(m.Name, "torch.cuda.") && m.How != renamed:
				// A NameError, which something catches: nothing was started.
			case m.Do == Import && (rootModule(m.Name) == "jax" || rootModule(m.Name) == "flax"):
				before = append(before, lateAssignment{before: m, library: "import jax", severity: check.Error})
			case m.driverStarter(torch, nvml) != "":
				before = append(before, lateAssignment{before: m, library: m.driverStarter(torch, nvml), severity: check.Error})
			case torch && (m.mayStartDriver() || m.Do == Call && m.Name == "torch.cuda.device_count"):
				before = append(before, lateAssignment{before: m, library: "PyTorch", severity: check.Warning})
			case i >= w.from && m.Shell == 0 && (m.Do == Set || m.Do == Unset):
				found, ok := m.findEarlierStart(before)
				again := judged[m.At]
				judged[m.At] = true
				if !ok || again || found.library == "import jax" && f.configuresJAX() || m.restoresValue(w.moments[:i], found) || isForChild(w.moments, i) || isPutBackLater(w.moments, i) || found.hasEarlierValue(w.moments[:i]) {
					continue
				}

				found.ownDevice = strings.HasSuffix(m.Name, "VISIBLE_DEVICES") && (computesOwnDevice(w.moments) || m.Do == Set && isChosenBeyond(choices(), m.Step))
				found.severity = found.limitSeverity(w, i)
				if found.changesNothing(use) {
					found.severity = check.Info
				}
				if known, again := worst[m.At]; !again {
					order = append(order, m.At)
				} else if severityRank(known.severity) >= severityRank(found.severity) {
					continue
				}

				worst[m.At] = found
			}
		}
	}

	var all []lateAssignment

	for _, at := range order {
		all = append(all, worst[at])
	}

	return all
}

func rootModule(name string) string {
	root, _, _ := strings.Cut(name, ".")
	return root
}

// findEarlierStart compares an assignment with what came before.
func (m flowStep) findEarlierStart(before []lateAssignment) (lateAssignment, bool) {
	by, _ := variableReader(m.Name)
	var found lateAssignment

	for _, b := range before {
		if by == "" || !b.before.canReach(m) || b.library != by && (by != "driver" || b.library == "import jax") {
			continue
		}
		if by != "driver" && (b.severity != check.Error || b.before.listsDevices()) {
			continue
		}

		if b.severity == check.Error && !b.before.alwaysPrecedes(m) {
			b.severity = check.Warning
		}

		if by == "import jax" {
			// A module that is imported here and not seen may have imported it before.
			b.severity = check.Warning
		}

		b.started = b.severity == check.Error

		if found.library == "" || severityRank(b.severity) > severityRank(found.severity) {
			found = b
		}
	}

	found.set = m

	if found.onlyCounts() && !found.before.alwaysPrecedes(m) {
		return found, false
	}

	return found, found.library != ""
}

// onlyCounts reports whether the devices were counted, and nothing else was done: PyTorch asks NVML for that since 2.0, and started
// the driver before (pytorch/pytorch: torch/cuda/__init__.py, device_count).
func (l lateAssignment) onlyCounts() bool { return l.before.Name == "torch.cuda.device_count" }

// restoresValue reports whether an assignment puts back what was there before the file, or cleans up after the file itself:
// that is meant for whatever comes later, and does no harm.
func (m flowStep) restoresValue(before []flowStep, found lateAssignment) bool {
	if m.How == teardown {
		return true
	}
	if m.Do == Set {
		return m.Value.From == m.Name || !m.Value.Known && keptOriginal().MatchString(m.Value.Raw)
	}
	return found.severity != check.Error || slices.ContainsFunc(before, func(b flowStep) bool { return b.Do == Set && b.Name == m.Name })
}

// renamed is the spelling of an import that gives a name of its own, and of a call by such a name.
const renamed = "as"

// namesTorch reports whether an import gives PyTorch its own name: "import torch.nn as nn" and "from torch import nn" do not.
func (s Step) namesTorch() bool {
	return s.Do == Import && rootModule(s.Name) == "torch" && s.How != renamed
}

// teardown is the spelling of an assignment in what undoes the work of a function.
const teardown = "teardown"

// hasEarlierValue reports whether the variable had the same value before the driver was started: then nothing is lost.
func (l lateAssignment) hasEarlierValue(before []flowStep) bool {
	same := false
	for _, m := range before {
		if m.At == l.before.At {
			break
		}
		if m.Name == l.set.Name && (m.Do == Set || m.Do == Unset) {
			same = m.Do == Set && m.Value.Known && l.set.Value.Known && m.Value.Text == l.set.Value.Text
		}
	}
	return same && l.set.Do == Set
}

// isUsedAfter reports whether something uses a GPU after moment i. What only asks or counts does not, and of what stands in
// another file nothing is known.
func isUsedAfter(moments []flowStep, i int) bool {
	return slices.ContainsFunc(moments[i+1:], func(m flowStep) bool {
		if m.Do != Call || asksOnly(m.Name) || !moments[i].canReach(m) {
			return false
		}

		root, rest, _ := strings.Cut(m.Name, ".")
		if m.driverStarter(true, false) != "" || m.mayStartDriver() || m.Name == ".to_device" {
			return true
		}

		// A part of a library whose every part computes on the GPU that is there.
		return rest != "" && hasWord("tensorflow keras jax flax cupy numba pycuda vllm sglang", root)
	})
}

// asksOnly reports whether a call only tells which devices there are, and what they are.
func asksOnly(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	return strings.HasPrefix(last, "get_") || strings.HasPrefix(last, "is_") || strings.HasPrefix(last, "list_") ||
		hasWord("device device_count current_device devices local_devices local_device_count default_backend mem_get_info memory_allocated memory_reserved memory_summary manual_seed manual_seed_all set_random_seed empty_cache update", last)
}

// changesNothing reports whether the program would use the same GPUs in time: it hides what it has found not to be there, or lists what is
// there anyway.
func (l lateAssignment) changesNothing(use gpuUse) bool {
	asked := asksOnly(l.before.Name) && len(l.set.path) > 0
	return l.set.Do == Set && (hidesEveryDevice(l.set.Value) && asked || strings.Contains(l.set.Value.Raw, "device_count") || use.whyNeedless(l.set.Step, l.set.Name) != "")
}

// isPutBackLater reports whether the variable is removed again after moment i, or gets its old value, and the process itself uses no GPU
// in between: then it is for whatever is started there.
func isPutBackLater(moments []flowStep, i int) bool {
	for _, m := range moments[i+1:] {
		switch {
		case moments[i].Do != Set || !moments[i].canReach(m):
		case m.driverStarter(true, false) != "" || m.mayStartDriver() || m.Name == ".to_device":
			return false
		case m.Name == moments[i].Name && (m.Do == Unset || m.Do == Set && keptOriginal().MatchString(m.Value.Raw)):
			return true
		}
	}
	return false
}

// limitSeverity is how bad an assignment at moment i of a flow is at most, by what is certain.
func (l lateAssignment) limitSeverity(w flow, i int) check.Severity {
	switch {
	case !l.started && l.library != "import jax", !l.started && w.from > 0:
		// What may have been started, and whoever calls the function, is not seen.
		return check.Info
	case l.set.At.Cell != l.before.At.Cell:
		// Cells are run in any order, and again.
		return check.Info
	case !isUsedAfter(w.moments, i):
		return check.Info
	case isJAXFraction(l.set.Name) && l.set.Value.Known && !isFractionOf(l.set.Value.Text, true):
		// What is wrong with it is said; earlier it would end the program.
		return check.Info
	case l.ownDevice:
		return check.Info
	case strings.HasPrefix(l.before.Name, "."):
		// By the name of what is moved, it has tensors.
		return lower(l.severity, check.Warning)
	}
	return l.severity
}

// isForChild reports whether a process that is started after the assignment takes it over: then it is meant for that one.
func isForChild(moments []flowStep, i int) bool {
	return slices.ContainsFunc(moments[i+1:], func(m flowStep) bool { return m.startsChild() && moments[i].canReach(m) })
}

// computesOwnDevice reports whether the process computes the number of its device, before or after: it may mean one among all.
func computesOwnDevice(moments []flowStep) bool {
	return slices.ContainsFunc(moments, func(m flowStep) bool {
		device, given := m.findArg(0, "device")
		return m.Do == Call && m.Name == "torch.cuda.set_device" && given && !device.Value.Known
	})
}

// configuresJAX reports whether the file tells JAX its devices, so that the variable need not.
func (f File) configuresJAX() bool {
	return slices.ContainsFunc(f.Steps, func(s Step) bool { return s.Name == "jax.config.update" && s.argsContain("jax_platform") })
}

// mayStartDriver reports whether a call of a library may start the driver, by what it is given or what is installed.
func (s Step) mayStartDriver() bool {
	if s.Do != Call {
		return false
	}

	root, rest, _ := strings.Cut(s.Name, ".")
	_, mapped := s.findArg(1, "map_location")
	switch root {
	case "":
		to, _ := s.findArg(0, "device")
		return rest == "to" && !to.Value.Known || rest == "from_pretrained" && s.argsContain("device")
	case "torch":
		backend, _ := s.findArg(0, "backend")
		return rest == "load" && !mapped || rest == "hub.load" || rest == "distributed.init_process_group" && backend.Value.Text != "gloo" || strings.HasPrefix(rest, "cuda.") && !hasWord("device_count manual_seed manual_seed_all empty_cache is_initialized memory_allocated amp.GradScaler amp.autocast nccl.version", strings.TrimPrefix(rest, "cuda."))
	case "transformers", "diffusers":
		return rest == "pipeline" || strings.HasSuffix(rest, "from_pretrained") && s.argsContain("device", "auto")
	case "vllm", "sglang", "sentence_transformers", "deepspeed":
		last := rest[strings.LastIndexByte(rest, '.')+1:]

		// What loads a model, and not one of its helpers.
		return root == "deepspeed" || containsAny(last, "Engine", "LLM", "Runtime", "Transformer", "Encoder")
	}

	return false
}

func lookLateAssignment(f File) []Finding {
	if isTest(f.Path) {
		// What a test sets is often what it tests, and a fixture puts it back.
		return nil
	}
	return lateFindings(f, codeLate)
}

func lookLateCell(f File) []Finding { return lateFindings(f, codeCell) }

func lateFindings(f File, code string) (all []Finding) {
	for _, l := range findLateAssignments(f) {
		apart := l.set.At.Cell != l.before.At.Cell
		isDefault := strings.HasPrefix(l.set.Name, "JAX_PLATFORM") && hasWord("gpu cuda rocm", l.set.Value.Text)
		if apart != (code == codeCell) || isDefault {
			// JAX takes the GPU by itself, where there is one.
			continue
		}

		_, what := variableReader(l.set.Name)
		where := fmt.Sprintf("in line %d", l.before.At.Line)
		do := "set " + l.set.Name + " before the imports, or before the program starts"
		if apart {
			where = fmt.Sprintf("in cell %d", l.before.At.Cell)
			do = "set " + l.set.Name + " in the first cell and restart the kernel"
		}
		if l.ownDevice {
			do = "leave it out: the program chooses its device by a number of its own"
		}

		var seen, why string

		switch {
		case l.library == "import jax":
			seen = fmt.Sprintf("%s is set after %s %s", l.set.Name, l.before.displayName(), where)
			why = "JAX reads it while it is imported, and not again"
			do = "set it before the import, or write: jax.config.update(\"" + strings.ToLower(l.set.Name) + "\", " + l.set.Value.Raw + ")"
		case l.onlyCounts():
			seen = fmt.Sprintf("%s is set after %s %s", l.set.Name, l.before.displayName(), where)
			why = "PyTorch before 2.0 starts the driver to count, and the driver does not look again " + what
		case !l.started:
			seen = fmt.Sprintf("%s is set after %s %s, which may have started the driver", l.set.Name, l.before.displayName(), where)
			why = "once the driver has started, it does not look again " + what
		default:
			seen = fmt.Sprintf("%s is set after %s %s, which started the driver", l.set.Name, l.before.displayName(), where)
			why = "the driver has read it by then: this assignment does not change " + what
		}

		if l.started && l.library != "PyTorch" && l.set.Name != "CUDA_VISIBLE_DEVICES" && what == "how memory is taken" {
			seen = fmt.Sprintf("%s is set after %s %s, which started %s", l.set.Name, l.before.displayName(), where, l.library)
			why = l.library + " has read it by then: this assignment does not change " + what
		}

		if l.set.Do == Unset {
			seen = strings.Replace(seen, " is set ", " is removed ", 1)
		}

		all = append(all, Finding{Finding: check.Finding{Code: code, Severity: l.severity, Seen: seen, Why: why, Do: do}, At: l.set.At})
	}
	return all
}

// displayName is how a step is named in a sentence.
func (s Step) displayName() string {
	if s.Do == Import {
		return "import " + s.Name
	}
	return s.Name + "()"
}
