package lint

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"gpuard/internal/core/check"
	"gpuard/internal/core/option"
	"gpuard/internal/core/prose"
)

func lookOverride(a indexedFile, i int, s Step) (all []Finding) {
	if name := path.Base(a.Path); strings.HasPrefix(name, "test_") || strings.HasSuffix(name, "_test.py") || name == "conftest.py" {
		return nil
	}
	if s.Do != Override || otherAccelerator().MatchString(s.Value.Raw) || strings.HasSuffix(strings.TrimSpace(s.Value.Raw), "True") || isPutBack(a.Steps[i:], s.Name) {
		return nil
	}
	if s.Name == "torch.cuda.is_available" || s.Name == "torch.cuda.device_count" {
		all = append(all, Finding{Finding: check.Finding{Seen: s.Name + " is given another value",
			Why: "code that does not call it still uses the GPU",
			Do:  option.Expand("hide the devices instead: CUDA_VISIBLE_DEVICES=-1 before the program starts, or {gpuard run} {cpu}")}, At: s.At})
	}

	return all
}

// otherAccelerator is a function for the devices of another vendor, which takes the place of the one of CUDA so that a
// program for CUDA runs there.
var otherAccelerator = lazyRegexp(`(^|[^a-z])(xpu|npu|mps|mlu|musa|hpu|gcu|sdaa)`)

// isPutBack reports whether one of the steps gives the name back what it was before.
func isPutBack(steps []Step, name string) bool {
	return slices.ContainsFunc(steps, func(s Step) bool {
		return s.Do == Override && s.Name == name && keptOriginal().MatchString(s.Value.Raw)
	})
}

var keptOriginal = lazyRegexp(`(?i)^[\w.]*(orig|old|saved|real|before|backup|prev)\w*$`)

func lookSetDeviceCPU(a indexedFile, _ int, s Step) (all []Finding) {
	if a, ok := s.findArg(0, "device"); ok && s.Do == Call && s.Name == "torch.cuda.set_device" && a.Value.Known && (a.Value.Text == "cpu" || strings.HasPrefix(a.Value.Text, "cpu:")) {
		all = append(all, Finding{Finding: check.Finding{Seen: "torch.cuda.set_device is given the CPU",
			Why: "it takes CUDA devices only and ends with a ValueError",
			Do:  "use torch.device(\"cpu\") for the model and the data, or hide the devices: CUDA_VISIBLE_DEVICES=-1"}, At: s.At})
	}

	return all
}

func lookIndexInPython(f File, w flow, i int, m flowStep) (all []Finding) {
	for _, c := range m.deviceChoices() {
		if c.index < 0 || m.followsDeviceCount() || m.Name == ".to" && !strings.Contains(c.value.Raw, "cuda") && !f.importsTorch() {
			// Other libraries have such a method too.
			continue
		}

		set, entries, ok := visibleListAt(w.moments, i)
		if !ok || c.index < len(entries) {
			continue
		}

		do := "use cuda:0"
		if len(entries) > 1 {
			do = fmt.Sprintf("use a number from 0 to %d", len(entries)-1)
		}

		all = append(all, Finding{Finding: check.Finding{
			Seen: fmt.Sprintf("%s names device %d, and CUDA_VISIBLE_DEVICES=%s of line %d leaves %s", m.displayCall(c.value), c.index, set.Value.Text, set.At.Line, prose.CountNoun(len(entries), "device")),
			Why:  "visible devices are numbered from 0 in the order of the list", Do: do}, rests: onRun, At: c.value.At})
	}
	return all
}

func (f File) importsTorch() bool {
	return slices.ContainsFunc(f.Steps, func(s Step) bool { return s.Do == Import && rootModule(s.Name) == "torch" })
}

// nameWithoutMark is the name that a value is made of, without the mark of how often it was given another value.
func nameWithoutMark(from string) string {
	name, _, _ := strings.Cut(from, "#")
	return name
}

// displayCall is a call with the one argument that matters.
func (s Step) displayCall(v Value) string {
	if strings.Contains(v.Raw, "\n") || len(v.Raw) > 40 {
		return s.displayName()
	}
	return strings.TrimSuffix(s.displayName(), ")") + v.Raw + ")"
}

// maskFromValue is the assignment of a list that is one computed value alone.
func maskFromValue(masks []flowStep, from string) (flowStep, bool) {
	i := slices.IndexFunc(masks, func(m flowStep) bool {
		return m.Do == Set && !m.Value.Known && m.Value.From == from && m.How != "os.environ.setdefault"
	})
	if i < 0 {
		return flowStep{}, false
	}
	return masks[i], true
}

func lookRankInPython(f File) (all []Finding) {
	// The finding of a mask, and the other lines that choose by its value.
	first, further := map[Place]int{}, map[int][]int{}
	for _, w := range traceFlows(f) {
		// The last assignment: several for "a if test else b".
		var masks []flowStep
		for i, m := range w.moments {
			if (m.Do == Set || m.Do == Unset) && m.Name == "CUDA_VISIBLE_DEVICES" && m.Shell == 0 {
				masks = slices.DeleteFunc(masks, func(before flowStep) bool { return before.At != m.At })
				masks = append(masks, m)
			}
			for _, c := range m.deviceChoices() {
				mask, found := maskFromValue(masks, c.value.From)
				if i < w.from || c.index >= 0 || !found || !mask.canReach(m) || len(masks) == 1 && !mask.alwaysPrecedes(m) {
					continue
				}
				if one, known := first[mask.At]; known {
					if c.value.At.Line != all[one].At.Line {
						further[one] = append(further[one], c.value.At.Line)
					}
					continue
				}
				first[mask.At] = len(all)

				var severity check.Severity
				if from := nameWithoutMark(c.value.From); from != strings.ToUpper(from) || len(masks) > 1 {
					// It may always be 0, or the program may have started the driver before this.
					severity = check.Info
				}

				all = append(all, Finding{Finding: check.Finding{Severity: severity,
					Seen: fmt.Sprintf("%s chooses a device by %s, and line %d makes that one the only visible device", m.displayCall(c.value), nameWithoutMark(c.value.From), mask.At.Line),
					Why:  "behind a mask of one device its number is 0, so this works only where " + nameWithoutMark(c.value.From) + " is 0",
					Do:   "use device 0 here, or leave CUDA_VISIBLE_DEVICES alone"}, At: c.value.At})
			}
		}
	}
	for i, lines := range further {
		slices.Sort(lines)
		all[i].Seen += "; the same in " + lineNumbers(slices.Compact(lines))
	}
	return all
}
