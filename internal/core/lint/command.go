package lint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/check"
)

// inContainer looks at commands that start a container.
func inContainer(look func(a indexedFile, i int, r containerRun) []Finding) func(indexedFile, int, Step) []Finding {
	return func(a indexedFile, i int, s Step) []Finding {
		r, ok := readContainerRun(s)
		if !ok {
			return nil
		}
		return look(a, i, r)
	}
}

// fixWordEdits is the finding's edit of one word of a shell script; other formats have other quotes.
func fixWordEdits(f File, w Word, text string) []Edit {
	if f.Kind != Shell || !w.Known {
		return nil
	}
	return []Edit{{At: w.At, Text: text}}
}

// shownWordEdits is the same edit, to be shown.
func shownWordEdits(f File, s Step, w Word, text string) []Edit {
	if !canEditWords(f, s) {
		return nil
	}
	return []Edit{wordEdit(w, text)}
}

// renderWithWord writes the command with one word changed. The word may be the end of another one: --gpus=device=0,1.
func renderWithWord(s Step, old Word, text string) string {
	return renderCommand(s, func(w Word) string {
		if w.At.Line != old.At.Line || w.At.EndColumn != old.At.EndColumn || w.At.EndLine != old.At.EndLine || !strings.HasSuffix(w.Raw, old.Raw) {
			return ""
		}
		return strings.TrimSuffix(w.Raw, old.Raw) + text
	})
}

func lookGPUsQuotes(a indexedFile, i int, r containerRun) (all []Finding) {
	for _, written := range r.gpus {
		w := a.resolveConstant(i, written)
		if !w.Known || !parseGPURequest(w.Text).loose || r.tool == "podman" {
			continue
		}

		finding := check.Finding{
			Seen: "docker gets --gpus " + w.Text + ", in which what follows the comma is no device",
			Why:  "docker splits the value at commas: only the first entry is a device, and the container does not start"}

		right := `'"` + w.Text + `"'`
		if n := parseGPURequest(w.Text).count; !strings.Contains(w.Text, "=") {
			right = `'"device=` + w.Text + `"'`
			finding.Seen = "docker gets --gpus " + w.Text + " and gives the container " + pluralize(n, "GPU", "GPUs") + " of its choice"
			finding.Why = "docker splits the value at commas, a number is how many GPUs the container gets, and the last one counts"
		}

		if !written.Known {
			right = `"\"` + strings.Trim(w.Raw, `"`) + `\""`
		}

		finding.Do = "write: --gpus " + right
		all = append(all, Finding{Finding: finding, At: w.At, Line: renderWithWord(r.Step, w, right), Edits: fixWordEdits(a.File, written, right), Write: shownWordEdits(a.File, r.Step, w, right)})
	}
	return all
}

func lookGPUsZero(a indexedFile, _ int, r containerRun) (all []Finding) {
	for _, w := range r.gpus {
		if !w.Known || w.Text != "0" && w.Text != "count=0" || r.tool == "podman" {
			continue
		}
		finding := Finding{Finding: check.Finding{Seen: "--gpus " + w.Text + " asks for no GPU",
			Why: "the number is how many GPUs the container gets, not which one (before docker 27.3 an image may show it all of them)",
			Do:  "write --gpus all, --gpus 1 for any one, or --gpus device=0 for the first"}, At: w.At}
		if a.Kind != Workflow {
			// Where the command is not written whole.
			finding.Line, finding.Write = renderWithWord(r.Step, w, "device=0"), shownWordEdits(a.File, r.Step, w, "device=0")
		}
		all = append(all, finding)
	}
	return all
}

func lookBesideMask(_ indexedFile, _ int, r containerRun) []Finding {
	if len(r.gpus) != 1 || !r.gpus[0].Known {
		return nil
	}

	request := parseGPURequest(r.gpus[0].Text)
	if len(request.devices) > 0 || request.count == 0 {
		return nil
	}

	mask, ok := r.containerVariable("NVIDIA_VISIBLE_DEVICES")
	if ok && mask.Value.Known && !slices.Contains([]string{"all", "none", "void", ""}, mask.Value.Text) {
		if n, known := countDevices(mask.Value); request.count > 0 && known && n == request.count && countsFromZero(deviceNumbers(mask.Value), n) {
			return nil
		}
	} else if mask, ok = r.ownVariable("CUDA_VISIBLE_DEVICES"); !ok || request.count < 0 || hidesEveryDevice(mask.Value) || countsFromZero(deviceNumbers(mask.Value), request.count) {
		return nil
	}

	list := strings.Trim(mask.Value.Raw, `"'`)
	right := `'"device=` + list + `"'`
	do := "write: --gpus " + right
	if _, plain := countDevices(mask.Value); !plain {
		// A range, or whatever it is.
		do = "name each device: --gpus '\"device=2,3\"' for the third and the fourth"
	} else if !strings.Contains(list, ",") {
		do = "write: --gpus device=" + list
	}

	what := "all GPUs"
	if request.count > 0 {
		what = "the first GPU"
		if request.count > 1 {
			what = "the first " + strconv.Itoa(request.count) + " GPUs"
		}
	}

	return []Finding{{Finding: check.Finding{
		Seen: fmt.Sprintf("--gpus %s gives the container %s, not those of %s=%s", r.gpus[0].Text, what, mask.Name, list),
		Why:  "docker chooses by --gpus alone", Do: do}, At: mask.At}}
}

// countsFromZero reports whether the list is exactly 0, 1, ... n-1.
func countsFromZero(list []int, n int) bool {
	if len(list) != n {
		return false
	}
	for i, number := range list {
		if number != i {
			return false
		}
	}
	return true
}

func lookHostIndex(a indexedFile, i int, r containerRun) (all []Finding) {
	own := a.Steps[i].Words[:max(0, len(a.Steps[i].Words)-len(r.inside))]
	if slices.ContainsFunc(own, func(w Word) bool { return w.Text == "--privileged" || w.Text == "--privileged=true" }) {
		// It has every GPU, by their numbers on the machine (NVIDIA/nvidia-container-toolkit issue 73).
		return nil
	}
	n, known := r.countGPUs()
	sets := append(slices.Clone(r.env), programOf(Step{Words: r.inside}).set...)
	if script, ok := ShellText(Step{Do: Command, Words: r.inside}); ok {
		sets = append(sets, assignmentsAtStart(script)...)
	}

	for _, s := range sets {
		if s.Name != "CUDA_VISIBLE_DEVICES" && s.Name != "HIP_VISIBLE_DEVICES" {
			continue
		}

		s.Value = a.passThroughValue(i, s.Value)
		bad := known && slices.ContainsFunc(deviceNumbers(s.Value), func(i int) bool { return i >= n })
		same := s.Value.From != "" && len(r.gpus) == 1 && r.gpus[0].From == s.Value.From
		if !bad && !same {
			continue
		}

		finding := Finding{Finding: check.Finding{
			Seen: fmt.Sprintf("%s=%s goes into a container whose GPUs are numbered from 0 to %d", s.Name, s.Value.Text, n-1),
			Why:  "the container counts only its own GPUs; a number that does not exist there hides that GPU and all behind it",
			Do:   fmt.Sprintf("leave %s out, or name devices from 0 to %d", s.Name, n-1)}, At: s.At}

		if same && !bad {
			finding.Severity = check.Warning
			finding.Seen = s.Name + " gets the host's device numbers, " + s.Value.Text + ", as --gpus does"
		}

		all = append(all, finding)
	}

	return all
}

// passThroughValue is the value that command i hands on of the variable that it names: -e CUDA_VISIBLE_DEVICES.
func (a indexedFile) passThroughValue(i int, v Value) Value {
	if set, sure := a.outerSetting(i, v.From); sure && v.From != "" && v.Text == "$"+v.From && set.Do == Set && set.Exported && set.Value.Known {
		v.Text, v.Known = set.Value.Text, true
	}
	return v
}

// assignmentsAtStart finds assignments at the beginning of a script in a word, without its places.
func assignmentsAtStart(script Step) []Step {
	var all []Step
	for w := range strings.FieldsSeq(script.Value.Text) {
		s, ok := parseAssignment(Word{Text: strings.Trim(w, `;&"'`), Known: script.Value.Known && !strings.Contains(w, "$"), At: script.At}, "prefix")
		if !ok && w != "export" && w != "env" {
			break
		}
		if ok {
			all = append(all, s)
		}
	}
	return all
}
