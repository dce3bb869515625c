package lint

import (
	"strings"

	"gpuard/internal/core/check"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/visible"
)

func lookOrder(s Step) []Finding {
	const name = "CUDA_DEVICE_ORDER"
	if s.Name != name || s.Value.Text == "PCI_BUS_ID" || s.Value.Text == "FASTEST_FIRST" {
		return nil
	}

	better, word := "", strings.ToUpper(s.Value.Text)
	switch {
	case strings.Contains(word, "PCI") || strings.Contains(word, "BUS"):
		better = "PCI_BUS_ID"
	case strings.Contains(word, "FAST"):
		better = "FASTEST_FIRST"
	}

	return []Finding{respellingFinding(s, assignmentText(s)+" is no order that CUDA knows", "CUDA knows PCI_BUS_ID and FASTEST_FIRST, written like this", "write PCI_BUS_ID or FASTEST_FIRST", better)}
}

func lookSelector(s Step) []Finding {
	if s.Name != "ONEAPI_DEVICE_SELECTOR" || s.Value.Text == "" {
		return nil
	}
	m := listVariable{vendor: gpu.Intel}.sampleMachine("")
	for _, n := range visible.SYCL(visible.Env{s.Name + "=" + s.Value.Text}, m).Notes {
		if n.Code != "selector-invalid" {
			continue
		}

		_, why, _ := strings.Cut(n.Text, ": ")

		return []Finding{respellingFinding(s, assignmentText(s)+" is no selector", why, "write backend:devices, such as level_zero:0", selectorMeant(s.Value.Text))}
	}

	return nil
}

// selectorMeant turns level_zero:gpu:0, the shape of the older variable, into what it means here.
func selectorMeant(value string) string {
	parts := strings.Split(value, ":")
	if len(parts) == 3 && parts[1] == "gpu" && isPlainNumber(parts[2]) {
		return parts[0] + ":" + parts[2]
	}
	return ""
}

func lookSameList(file File) (all []Finding) {
	for _, group := range variableGroups(file) {
		rocr, one := group["ROCR_VISIBLE_DEVICES"]
		hip, two := group["HIP_VISIBLE_DEVICES"]
		if !two {
			// HIP reads it then.
			hip, two = group["CUDA_VISIBLE_DEVICES"]
		}

		if !one || !two || !rocr.Value.Known || !hip.Value.Known {
			continue
		}

		m := listVariable{vendor: gpu.AMD}.sampleMachine("")
		outer := visible.Env{environmentEntry(rocr)}
		left, seen := len(visible.ROCR(outer, m).Visible), len(visible.HIP(append(outer, environmentEntry(hip)), m).Visible)
		wanted := strings.Count(strings.Trim(hip.Value.Text, ","), ",") + 1
		if !strings.Contains(hip.Value.Text+rocr.Value.Text, "GPU-") && hip.Value.Text != "" && hip.Value.Text != "-1" && left > 0 && seen < wanted {
			f := valueFinding(hip, assignmentText(hip)+" beside "+assignmentText(rocr)+" "+visibleCount(seen), "HIP counts within the list of ROCm, from 0", "leave "+hip.Name+" out, or count it from 0", "")
			f.At = hip.At
			if hip.Name != "HIP_VISIBLE_DEVICES" {
				// It may be for GPUs of NVIDIA.
				f.Severity = check.Warning
			}
			all = append(all, f)
		}
	}
	return all
}

// environmentEntry is a step as an environment has it.
func environmentEntry(s Step) string { return s.Name + "=" + s.Value.Text }

func visibleCount(n int) string {
	switch n {
	case 0:
		return "shows no GPU at all"
	case 1:
		return "shows one GPU alone"
	}
	return "shows fewer GPUs than it lists"
}
