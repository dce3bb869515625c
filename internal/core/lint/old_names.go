package lint

import (
	"path"
	"slices"
	"strings"

	"gpuard/internal/core/check"
)

func lookOldPyTorchName(f File) []Finding {
	checked := map[string]bool{}
	for _, s := range f.Steps {
		if s.Do == Version && rootModule(s.Name) == "torch" {
			// The function has a name for each version.
			checked[s.In] = true
		}
	}

	old := func(s Step) bool {
		return s.Do == Call && !s.Maybe && !checked[s.In] && hasWord("torch.cuda.amp.autocast torch.cuda.amp.GradScaler torch.cuda.amp.custom_fwd torch.cuda.amp.custom_bwd", s.Name)
	}

	settles := func(s Step) bool {
		isNew := strings.HasPrefix(s.Name, "torch.amp") && (s.Do == Call || s.Do == Import)
		// Handed on, as by partial(torch.amp.autocast, …), beside a look at the version.
		handed := slices.ContainsFunc(s.Args, func(a Arg) bool { return strings.HasPrefix(a.Ref, "torch.amp.") })
		return isNew || handed || s.Do == Import && strings.HasPrefix(s.Name, "torch._six")
	}

	i := slices.IndexFunc(f.Steps, old)
	if i < 0 || slices.ContainsFunc(f.Steps, settles) {
		return nil
	}

	name := f.Steps[i].Name
	do := "from PyTorch 2.4 on write torch.amp." + strings.TrimPrefix(name, "torch.cuda.amp.")
	if strings.Contains(name, "custom_") {
		do += `, with device_type="cuda"`
	} else {
		do += `, with "cuda" as the first argument and what it gets today by name`
	}

	return []Finding{{Finding: check.Finding{Seen: name + " is an old name", Why: "PyTorch 2.4 and later print a FutureWarning", Do: do}, Since: "2.4", At: f.Steps[i].At}}
}

// olderGPU is how batch jobs call GPUs of a compute capability below 8.0.
var olderGPU = lazyRegexp(`(?i)\b(k[248]0|m[46]0|p100|p40|v100|t4|titan\w*|gtx\w*|rtx_?20\d\d\w*)\b`)

func lookOldProfiler(a indexedFile, _ int, s Step) (all []Finding) {
	if s.Do != Command || len(s.Words) < 2 || path.Base(s.Words[0].Text) != "nvprof" || hasWord("--version --help -h -V", s.Words[1].Text) {
		return nil
	}

	asksForOlder := slices.ContainsFunc(a.Steps, func(s Step) bool {
		return s.Do == Setting && containsAny(s.Name, "gres", "gpus", "constraint", "partition") && olderGPU().MatchString(s.Value.Text)
	})
	if asksForOlder {
		return nil
	}

	return []Finding{{Finding: check.Finding{Seen: "nvprof supports no GPU of compute capability 8.0 or higher",
		Why: "on an A100, an RTX 30 and later its profile has no kernels", Do: "use nsys profile, or ncu for single kernels"}, At: s.At}}
}
