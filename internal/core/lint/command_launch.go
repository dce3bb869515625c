package lint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/check"
)

func lookProcesses(f File) []Finding {
	a := lookAround(f)
	most, option, batch := allotted(f)
	var all []Finding
	for i, s := range f.Steps {
		if s.Do != Command {
			continue
		}
		l, ok := asLaunch(s)
		if !ok || l.kind == "deepspeed" || l.onCPU() {
			continue
		}
		l.procs = a.constant(i, l.procs)
		n, ok := l.processes()
		if !ok {
			continue
		}
		seen, limit := "", 0
		if list, given := l.visible(a, i); given {
			if count, known := devices(list); known && count > 0 {
				limit, seen = count, "the list of devices, "+list.Text
			}
		}
		if batch && !slices.ContainsFunc(l.Words, func(w Word) bool {
			return strings.HasPrefix(w.Text, "--gres") || strings.HasPrefix(w.Text, "--gpus")
		}) && (limit == 0 || most < limit) {
			limit, seen = most, "the batch job, "+option
		}
		if limit == 0 || n <= limit {
			continue
		}
		all = append(all, Finding{Finding: check.Finding{
			Seen: fmt.Sprintf("%d processes are started, and %s, has %d", n, seen, limit), Why: "each process takes the GPU of its own number, and those beyond the last one fail",
			Do: fmt.Sprintf("start %d, or make more GPUs visible", limit)}, At: l.procs.At})
	}
	return all
}

// visible is the list of devices that the program gets. accelerate makes its own of --gpu_ids.
func (l launch) visible(a around, i int) (Value, bool) {
	if l.kind == "accelerate" {
		if ids, ok := option(l.own, "gpu-ids"); ok {
			return ids, ids.Text != "all"
		}
	}
	for _, name := range masks() {
		if v, ok := a.effective(i, l.program, name); ok {
			return v, true
		}
	}
	return Value{}, false
}

func lookDeepspeed(f File) []Finding {
	a := lookAround(f)
	var all []Finding
	for i, s := range f.Steps {
		if s.Do != Command {
			continue
		}
		l, ok := asLaunch(s)
		if !ok || l.kind != "deepspeed" || l.hosts {
			continue
		}
		mask, given := a.effective(i, l.program, "CUDA_VISIBLE_DEVICES")
		list := numbers(mask)
		if !given || !mask.Known || hides(mask) {
			continue
		}
		for _, name := range []string{"num-gpus", "include", "i", "exclude", "e"} {
			v, ok := option(l.own, name)
			if !ok || !v.Known {
				continue
			}
			n, _ := strconv.Atoi(v.Text)
			_, included, _ := strings.Cut(v.Text, ":")
			if name == "num-gpus" && first(list, n) || included == mask.Text {
				continue
			}
			all = append(all, Finding{Finding: check.Finding{
				Seen: "deepspeed ignores CUDA_VISIBLE_DEVICES=" + mask.Text + " because of " + dashes(name) + strings.ReplaceAll(name, "-", "_") + " " + v.Text,
				Why:  "its own options choose among all GPUs of the machine", Do: "write: deepspeed --include localhost:" + mask.Text}, At: v.At})
			break
		}
	}
	return all
}

func dashes(option string) string {
	if len(option) == 1 {
		return "-"
	}
	return "--"
}

func lookCondaMask(f File) []Finding {
	all := condaMaskInFile(f)
	for _, s := range f.Steps {
		texts := []string{}
		for _, w := range s.Words {
			texts = append(texts, w.Text)
		}
		if s.Do != Command || !strings.Contains(strings.Join(texts, " "), "env config vars set") {
			continue
		}
		for _, w := range s.Words {
			set, ok := assignment(w, "conda")
			if !ok || !slices.Contains(masks(), set.Name) {
				continue
			}
			all = append(all, Finding{Finding: check.Finding{
				Seen: set.Name + " becomes a variable of the conda environment", Why: "after conda deactivate the shell has it as an empty string, which hides every GPU",
				Do: "set it where a program is started"}, At: set.At})
		}
	}
	return all
}
