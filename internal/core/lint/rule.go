package lint

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"gpuard/internal/core/check"
)

// Finding is one mistake in a file.
type Finding struct {
	// The finding; without a code and a severity it has those of the rule that found it.
	check.Finding
	At Place
	// What --fix does; nil when a person has to decide.
	Edits []Edit
	// The lines to write where the user has to decide; they are shown with the rest of the line.
	Write []Edit
	// The corrected command or lines, shown where the places of the edits are not known; "" when there is no single
	// way.
	Line string
	// The release of PyTorch from which on it holds, such as "2.4"; "" for all.
	Since string

	// What has to be so beside the line; "" is that of its rule.
	rests string
}

// Edit replaces the text at a place. An empty place (start is end) inserts.
type Edit struct {
	At   Place
	Text string
	// What stands there; "" is not compared.
	Was string
}

// Rule finds one kind of mistake. What it is about stands in rules/CODE.txt; several rules may have one code, for the same
// mistake in another language. It looks at a whole file, or at each of its steps. Of several findings at a place the first
// counts: services share text through anchors, and functions are followed from each caller.
type Rule struct {
	Code string
	Look func(f File) []Finding
	// The steps that Each looks at; "" is all.
	On   StepKind
	Each func(a indexedFile, i int, s Step) []Finding
	// What gives a variable a value, wherever that is written; Known where the value is.
	Value, Known func(s Step) []Finding
	// What happens in a program of Python, in its order.
	Flow func(f File, w flow, i int, m flowStep) []Finding
}

// lookAt applies a rule to a file.
func (r Rule) lookAt(a indexedFile) (all []Finding) {
	if r.Look != nil {
		return dropRepeats(r.Look(a.File))
	}
	for i, s := range a.Steps {
		if r.Each != nil && (r.On == "" || r.On == s.Do) {
			all = append(all, r.Each(a, i, s)...)
		}
	}
	if r.Value != nil {
		eachAssignment(a.File, func(s Step) { all = append(all, r.Value(s)...) })
	}
	if r.Known != nil {
		eachKnownValue(a.File, func(s Step) { all = append(all, r.Known(s)...) })
	}
	if r.Flow != nil {
		for _, w := range a.ways {
			for i := w.from; i < len(w.moments); i++ {
				all = append(all, r.Flow(a.File, w, i, w.moments[i])...)
			}
		}
	}

	return dropRepeats(all)
}

// dropRepeats drops findings at a place that has the same one already.
func dropRepeats(all []Finding) []Finding {
	if len(all) < 2 {
		return all
	}
	seen := map[Place]bool{}
	return slices.DeleteFunc(all, func(f Finding) bool {
		known := seen[f.At]
		seen[f.At] = true
		return known
	})
}

// allRules lists every rule by topic.
func allRules() []Rule { return slices.Concat(valueRules(), programRules(), settingRules()) }

// valueRules are about what is written into variables, in every format.
func valueRules() []Rule {
	return []Rule{
		maskRule(codeRange, "no runtime knows ranges"),
		maskRule(codeSeparators, "only single commas separate devices"),
		maskRule(codeQuotes, "the quotation marks are part of the value, and no device begins with one"),
		maskRule(codeDuplicate, "a device named twice ends or empties the list"),
		maskRule(codeMixed, "a list of numbers ends at the first identifier, and the other way round"),
		maskRule(codeSpaces, "this runtime does not pass over blanks"),
		maskRule(codeOrder, "CANN's list ends at a number that is not above the one before"),
		maskRule(codeNoDevice, "it is neither a number nor an identifier"),
		maskRule(codeShowsAll, "the driver ignores what it cannot read so"),
		{Code: codeMisspelt, Look: lookMisspelt},
		{Code: "variable-old-name", Look: lookOldName},
		{Code: "variable-debug", Look: lookDebug},
		{Code: "jax-both-fractions", Look: lookBothFractions},
		{Code: "jax-fraction", Look: lookFraction},
		{Code: "jax-preallocate", Look: lookPreallocate},
		{Code: "jax-allocator", Known: lookAllocator},
		{Code: "tensorflow-growth", Known: lookGrowth},
		{Code: "device-order-word", Known: lookOrder},
		{Code: "selector-invalid", Known: lookSelector},
		{Code: "mask-rocr-and-hip", Look: lookSameList},
	}
}

// programRules are about what a script does, and in which order.
func programRules() []Rule {
	return []Rule{
		{Code: codeLate, Look: lookLateAssignment},
		{Code: codeCell, Look: lookLateCell},
		{Code: codeForked, Look: lookSetInForkedWorker},
		{Code: "is-available-override", On: Override, Each: lookOverride},
		{Code: "set-device-cpu", On: Call, Each: lookSetDeviceCPU},
		{Code: "environ-not-text", Value: lookEnvironText},
		{Code: "environment-replaced", Each: lookEnvironmentAlone},
		{Code: "mask-in-ray-task", Look: lookRayMask},
		{Code: "export-lost-with-step", Look: lookExportLostInPython},
		{Code: "tensorflow-started", Look: lookTensorFlowLate},
		{Code: "tensorflow-1-name", Look: lookTensorFlowOld},

		// shell scripts
		{Code: "variable-not-exported", Look: lookNotExported},
		{Code: "variable-lost-in-subshell", On: Set, Each: lookLostInSubshell},
		{Code: "sudo-drops-variable", On: Command, Each: lookSudo},
		{Code: "prefix-on-first-command", On: Command, Each: lookPrefix},
		{Code: "foreign-assignment", On: Command, Each: lookForeign},
		{Code: "hook-not-read-by-fish", Look: lookFish},
		{Code: "list-cut-at-blank", On: Command, Each: lookListCutAtBlank},
		{Code: "backslash-before-blank", Look: lookBackslash},
		{Code: "no-break-space", Each: lookNoBreakSpace},

		// containers
		{Code: "container-beyond-lease", On: Command, Each: lookBeyondLease},
		{Code: "gpus-list-unquoted", On: Command, Each: inContainer(lookGPUsQuotes)},
		{Code: "gpus-zero", On: Command, Each: inContainer(lookGPUsZero)},
		{Code: "gpus-beside-mask", On: Command, Each: inContainer(lookBesideMask)},
		{Code: "gpus-beside-mask", Look: lookBesideMaskOfService},
		{Code: "host-index-in-container", On: Command, Each: inContainer(lookHostIndex)},
		{Code: "host-index-in-container", Look: lookHostIndexOfService},
		{Code: "mask-outside-container", On: Command, Each: inContainer(lookMaskOutside)},
		{Code: "nvidia-variable-outside-container", Look: lookNvidiaOutside},
		{Code: "cuda-variable-for-container", On: Command, Each: inContainer(lookCUDAForContainer)},

		// programs that are started
		{Code: "more-processes-than-gpus", Look: lookProcesses},
		{Code: "deepspeed-ignores-mask", On: Command, Each: lookDeepspeed},
		{Code: "mask-replaced-by-option", On: Command, Each: lookMaskByOption},
		{Code: "variable-not-handed-on", On: Command, Each: lookNotHandedOn},
		{Code: "mask-beyond-batch-job", Look: lookBeyondJob},
		{Code: "task-number-too-early", Look: lookTaskNumber},
		{Code: "master-port-fixed", Look: lookPort},
		{Code: "port-too-large", Look: lookPortTooLarge},
		{Code: "rank-with-own-mask", On: Command, Each: lookRankOwnMask},
		{Code: "device-beyond-mask", On: Command, Each: lookDeviceBeyondMask},
		{Code: "fractions-over-one", Look: lookFractions},
		{Code: "conda-variable-stays-empty", Look: condaMaskInFile},
		{Code: "conda-variable-stays-empty", On: Command, Each: lookCondaMask},
		{Code: "conda-hook-not-undone", Look: lookCondaHook},
	}
}

// settingRules are about files of settings, old names, and the mistakes of command lines in Python.
func settingRules() []Rule {
	return []Rule{
		{Code: "count-beside-device-ids", Look: inRequest(lookCountBesideIDs)},
		{Code: "unit-hides-devices", Look: lookHiddenDevices},
		{Code: "capabilities-missing", Look: inRequest(lookNoCapabilities)},
		{Code: "gpu-request-misplaced", On: Setting, Each: lookMisplacedRequest},
		{Code: "device-ids-not-strings", Look: inRequest(lookIDsNotStrings)},
		{Code: "gpus-chosen-by-image", Look: lookRuntimeAlone},
		{Code: "gpus-fixed-in-image", Look: lookFixedInImage},
		{Code: "image-takes-all-gpus", Look: lookImageTakesAll},
		{Code: "export-lost-with-step", Look: lookExportLost},

		// settings
		{Code: "assignment-as-program", Look: lookAssignment},
		{Code: "assignment-as-program", On: Command, Each: lookWrapperAssignment},
		{Code: "environment-cut-at-blank", On: Setting, Each: lookCutAtBlank},
		{Code: "list-cut-at-comma", On: Set, Each: lookCutAtComma},
		{Code: "list-cut-at-comma", Look: lookExportCut},
		{Code: "variable-not-expanded", Look: lookDollarKept},
		{Code: "onnxruntime-twice", Look: lookONNX},
		{Code: "cudatoolkit-beside-pytorch", Look: lookCudaTwice},
		{Code: "mkl-beside-pytorch", Look: lookMKLTooNew},

		// old names
		{Code: "pytorch-old-name", Look: lookOldPyTorchName},
		{Code: "nvprof-new-gpu", On: Command, Each: lookOldProfiler},

		// mistakes of command lines, in Python
		{Code: "device-beyond-mask", Flow: lookIndexInPython},
		{Code: "rank-with-own-mask", Look: lookRankInPython},
		{Code: "more-processes-than-gpus", Flow: lookProcessesInPython},
		{Code: "master-port-fixed", Look: lookPortInPython},
		{Code: "fractions-over-one", Look: lookFractionsInPython},

		// dropSilenced, which alone reads comments, finds these.
		{Code: codeSilence},
	}
}

// ApplyRules applies every rule to a file, those in preview where that is asked for. Findings are in the order of their
// places.
func ApplyRules(f File, preview bool) (all []Finding) {
	f.Steps = f.reachedSteps()
	f.replaced = replacedWords(f)
	f.ways = traceFlows(f)
	for _, s := range f.Steps {
		if s.Idle || s.Caught {
			f.guarded = append(f.guarded, s)
		}
	}
	a := indexVariables(f)
	for _, r := range allRules() {
		found := r.lookAt(a)
		if len(found) == 0 {
			continue
		}

		about := describeCode(r.Code)
		if about.Preview && !preview {
			continue
		}

		for _, one := range found {
			one.Code = cmp.Or(one.Code, about.Code)
			one.Severity = cmp.Or(one.Severity, about.alone)
			one.rests = cmp.Or(one.rests, about.Rests)
			one.Severity = f.bound(one, about)
			if f.breaksQuotes(one) {
				one.Edits = nil
			}

			if (f.Copied || f.PutAway) && (f.Kind == Markdown || !about.LimitSeverity(one.Severity, f.Kind).Bad()) {
				// A remark is not worth a change to a copy of another's program, or to what is not used any more; nor is a page of them.
				continue
			}
			if f.PutAway {
				one.Severity = check.Info
			}

			all = append(all, one)
		}
	}

	all = dropUnread(all)
	f.lowerRewritten(all)
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.At.Cell, b.At.Cell), cmp.Compare(a.At.Line, b.At.Line), cmp.Compare(a.At.Column, b.At.Column), cmp.Compare(a.Code, b.Code))
	})

	return all
}

// reachedSteps are the steps before a script ends for certain, by an exit at the margin: people keep old commands behind it.
func (f File) reachedSteps() []Step {
	if f.Kind != Shell {
		return f.Steps
	}
	end := slices.IndexFunc(f.Steps, func(s Step) bool {
		isPlain := s.Do == Command && s.Join == "" && !s.Maybe && !s.Beside && s.In == "" && s.Process == "" && s.Shell == 0 && s.At.Column == 1 && len(s.Words) > 0
		return isPlain && (s.Words[0].Text == "exit" || s.Words[0].Text == "exec" && len(s.Words) > 1)
	})
	if end < 0 {
		return f.Steps
	}
	return f.Steps[:end+1]
}

// replacedWords are the words that xargs and parallel replace in what they start: "%" of "xargs -I % sh -c '…'".
func replacedWords(f File) (all []string) {
	for _, s := range f.Steps {
		if s.Do != Command || !slices.ContainsFunc(s.Words, func(w Word) bool { return strings.HasSuffix(w.Text, "xargs") || strings.HasSuffix(w.Text, "parallel") }) {
			continue
		}
		for i, w := range s.Words {
			word, is := strings.CutPrefix(w.Text, "-I")
			if is && word == "" && i+1 < len(s.Words) {
				word = s.Words[i+1].Text
			}
			if is && word != "" && i > 0 && (hasWord("xargs parallel", path.Base(s.Words[i-1].Text)) || isPlainNumber(s.Words[i-1].Text) || strings.HasPrefix(s.Words[i-1].Text, "-")) {
				all = append(all, word)
			}
		}
	}
	return all
}

// lowerRewritten makes remarks of what is said of a list that the file makes another list of, or deals out to its programs: these get
// another list than the one that is looked at.
func (f File) lowerRewritten(all []Finding) {
	isMask := func(found Finding) bool { return strings.HasPrefix(found.Code, "mask-") && found.Severity.Bad() }
	if !slices.ContainsFunc(all, isMask) {
		return
	}

	set := map[Place]int{}
	rewrites := map[string][]int{}
	var programs []int
	for i, s := range f.Steps {
		if s.Do == Set {
			set[Place{Cell: s.At.Cell, Line: s.At.Line}] = i
		}
		if s.Do == Command && programOf(s).usesGPUs() {
			programs = append(programs, i)
		}
		for _, name := range rewrittenBy(s) {
			rewrites[name] = append(rewrites[name], i)
		}
	}

	for i, found := range all {
		n, isSet := set[Place{Cell: found.At.Cell, Line: found.At.Line}]
		if !isMask(found) || !isSet {
			continue
		}
		later := rewrites[f.Steps[n].Name]
		next, _ := slices.BinarySearch(later, n+1)
		program, _ := slices.BinarySearch(programs, n+1)
		if next < len(later) && (program == len(programs) || programs[program] >= later[next]) {
			all[i].Severity = check.Info
		}
	}
}

// rewrittenBy are the variables that a step removes, or gives, or one program, a value that is computed.
func rewrittenBy(s Step) (names []string) {
	if s.Do == Unset || s.Do == Set && !s.Value.Known {
		names = append(names, s.Name)
	}
	for _, w := range commandVariables(s) {
		if w.Do == Set && !w.Value.Known && w.Value.From != w.Name {
			names = append(names, w.Name)
		}
	}
	return names
}

// dropUnread drops what is said of a list that is set too late: nothing reads it.
func dropUnread(all []Finding) []Finding {
	late := map[Place]bool{}
	for _, f := range all {
		if f.Code == codeLate {
			late[Place{Cell: f.At.Cell, Line: f.At.Line}] = true
		}
	}
	return slices.DeleteFunc(all, func(f Finding) bool {
		return strings.HasPrefix(f.Code, "mask-") && late[Place{Cell: f.At.Cell, Line: f.At.Line}]
	})
}

// breaksQuotes reports whether an edit writes quotes, or what a shell expands, into a script that stands in quotes.
func (f File) breaksQuotes(one Finding) bool {
	return slices.ContainsFunc(one.Edits, func(e Edit) bool {
		return strings.ContainsAny(e.Text, "\"'$`\\") && slices.ContainsFunc(f.quoted, func(at Place) bool {
			return at.Cell == e.At.Cell && at.Line <= e.At.Line && e.At.EndLine <= max(at.Line, at.EndLine)
		})
	})
}
