package lint

import (
	"slices"
	"strings"

	"gpuard/internal/core/check"
)

// exportAlone is a computed text for a shell that only exports.
var exportAlone = lazyRegexp(`^\s*export\s+(\w+)=[^;&|\n]*;?\s*$`)

// lookExportLostInPython finds os.system("export …"): the shell that is started for it ends at once.
func lookExportLostInPython(f File) (all []Finding) {
	if f.Kind != Python && f.Kind != Notebook {
		return nil
	}

	use := newGPUUse(f)
	for _, s := range f.Steps {
		if s.Do != Command || s.Shell != 0 || len(s.Words) == 0 {
			continue
		}

		name, text := "", ""
		if alone := exportAlone().FindStringSubmatch(s.Words[0].Text); len(s.Words) == 1 && alone != nil {
			name = alone[1]
			_, text, _ = strings.Cut(s.Words[0].Text, "=")
		}

		if len(s.Words) == 2 && s.Words[0].Text == "export" {
			name, text, _ = strings.Cut(s.Words[1].Text, "=")
		}

		if isKnownGPUVariable(name) {
			all = append(all, lostExportFinding(use, Step{Name: name, At: s.At, Value: Value{Text: text, Known: s.Words[len(s.Words)-1].Known}}))
		}
	}

	if f.Kind == Notebook {
		return all
	}

	for _, script := range Scripts(f) {
		for i, s := range script.Steps {
			if s.Do == Set && !s.Apart && (s.How == "export" || s.How == "assignment") && isKnownGPUVariable(s.Name) && !hasProgramReader(script.Steps[i+1:]) {
				all = append(all, lostExportFinding(use, Step{Name: s.Name, At: s.At, Value: s.Value}))
			}
		}
	}

	return all
}

// hasProgramReader is used, where what only shows a variable does not count.
func hasProgramReader(steps []Step) bool {
	return hasReader(slices.DeleteFunc(slices.Clone(steps), func(s Step) bool {
		return s.Do == Command && len(s.Words) > 0 && isOneOf(s.Words[0].Text, "echo", "printf", "printenv", "env", "true", "exit")
	}))
}

// lostExportFinding is about what a program of Python sets for a shell alone.
func lostExportFinding(use gpuUse, set Step) Finding {
	severity, why := check.Severity(""), "neither this program nor what it starts later gets the variable"
	needless := use.whyNeedless(set, set.Name)
	switch {
	case isSetInPython(use.file, set.Name):
		severity = check.Info
	case needless != "":
		severity, why = check.Info, why+"; "+needless
	}

	return Finding{Finding: check.Finding{Severity: severity, Seen: set.Name + " is set in a shell that ends at once", Why: why,
		Do: `write: os.environ["` + set.Name + `"] = …, before the library is imported`}, At: set.At}
}

// lookEnvironmentAlone finds a child whose whole environment is a list of devices.
func lookEnvironmentAlone(_ indexedFile, _ int, s Step) []Finding {
	i := slices.IndexFunc(s.With, func(w Step) bool { return isKnownGPUVariable(w.Name) })
	if s.How != "env= alone" || i < 0 || slices.ContainsFunc(s.With, func(w Step) bool { return w.Name == "PATH" }) {
		return nil
	}

	finding := Finding{Finding: check.Finding{Seen: "the program gets " + s.With[i].Name + " and nothing else of the environment",
		Why: "env replaces the whole environment: the child has no PATH, HOME or LD_LIBRARY_PATH",
		Do:  "write: env={**os.environ, \"" + s.With[i].Name + "\": " + s.With[i].Value.Raw + "}"}, At: s.At}

	if s.Do == Command && len(s.Words) > 0 && (strings.HasPrefix(s.Words[0].Text, "/") || s.Words[0].Raw == "sys.executable") {
		finding.Severity = check.Info
		finding.Why = "env replaces the whole environment: the child has no HOME or LD_LIBRARY_PATH"
	}

	return []Finding{finding}
}

var rayGPUs = lazyRegexp(`num_gpus\s*=\s*(0?\.[0-9]*[1-9]|[1-9])`)

// lookRayMask finds a task or actor of Ray that overwrites the list that Ray gave it.
func lookRayMask(f File) (all []Finding) {
	if slices.ContainsFunc(f.Steps, func(s Step) bool {
		return strings.HasPrefix(s.Name, "RAY_EXPERIMENTAL_NOSET") || s.argsContain("RAY_EXPERIMENTAL_NOSET")
	}) {
		return nil
	}

	tasks := f.rayTasks()
	for _, w := range traceFlows(f) {
		for i, s := range w.moments {
			own := w.moments[min(w.from, len(w.moments)-1)].In
			class, _, _ := strings.Cut(own, ".")
			if i < w.from || !tasks[own] && !tasks[class] || s.Do != Set || s.Shell != 0 || s.Name != "CUDA_VISIBLE_DEVICES" || s.How == "os.environ.setdefault" {
				continue
			}
			if s.Value.Known && hidesEveryDevice(s.Value) || !s.Value.Known && !f.isParameter(s.In, rootModule(nameWithoutMark(s.Value.From))) {
				continue
			}

			all = append(all, Finding{Finding: check.Finding{Seen: s.Name + " is set in a task that Ray gives GPUs to",
				Why: "Ray has set it to the GPUs that it reserved for this task: with another list two tasks may share a GPU",
				Do:  "leave it out; to choose devices yourself, start Ray with RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES=1"}, At: s.At})
		}
	}

	return all
}

// rayTasks are the functions of tasks and actors that ask for GPUs: in the decorator, or where they are started.
func (f File) rayTasks() map[string]bool {
	tasks := map[string]bool{}
	later := false
	for _, s := range f.Steps {
		gpus, given := s.findArg(-1, "num_gpus")
		if s.Do != Call || !given || !rayGPUs().MatchString("num_gpus="+gpus.Value.Text) {
			continue
		}
		later = later || s.Name == ".options"

		for _, a := range s.Args {
			if s.Name == "ray.remote" && a.Ref != "" {
				tasks[a.Ref] = true
			}
		}
	}

	for _, s := range f.Steps {
		if s.Do == Define && slices.ContainsFunc(s.Args, func(a Arg) bool {
			return a.Name == "@" && a.Ref == "ray.remote" && (later || rayGPUs().MatchString(a.Value.Raw))
		}) {
			tasks[s.Name] = true
		}
	}

	return tasks
}

// isParameter reports whether a function of the file has such a parameter.
func (f File) isParameter(function, name string) bool {
	return slices.ContainsFunc(f.Steps, func(s Step) bool {
		return s.Do == Define && s.Name == function && slices.ContainsFunc(s.Args, func(a Arg) bool { return a.Name == name })
	})
}
