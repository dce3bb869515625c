package lint

import (
	"strings"

	"gpuard/internal/core/check"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/visible"
)

func otherValueRules() []Rule { return []Rule{orderRule(), selectorRule(), sameListRule()} }

func orderRule() Rule {
	const name = "CUDA_DEVICE_ORDER"
	r := Rule{
		Page: check.Page{
			Code: "device-order-word", Title: "An order of devices that CUDA does not know",
			Text: "`CUDA_DEVICE_ORDER` takes two words: `FASTEST_FIRST`, which is what counts without it, and `PCI_BUS_ID`, the order of nvidia-smi. With another word, also an empty one, CUDA does not start: the program sees no GPU.",
			From: []string{cudaGuide},
		},
		Severity: check.Error,
		Bad:      []Example{{"train.sh", "export CUDA_DEVICE_ORDER=PCI_BUS\nexport CUDA_VISIBLE_DEVICES=1\npython train.py\n"}, {"train.sh", "export CUDA_DEVICE_ORDER=pci_bus_id\npython train.py\n"}},
		Good:     []Example{{"train.sh", "export CUDA_DEVICE_ORDER=PCI_BUS_ID\nexport CUDA_VISIBLE_DEVICES=1\npython train.py\n"}, {"train.sh", "export CUDA_DEVICE_ORDER=FASTEST_FIRST\npython train.py\n"}},
	}
	r.Look = func(file File) (all []Finding) {
		eachSet(file, func(s Step) {
			if s.Name != name || s.Value.Text == "PCI_BUS_ID" || s.Value.Text == "FASTEST_FIRST" {
				return
			}
			better, word := "", strings.ToUpper(s.Value.Text)
			switch {
			case strings.Contains(word, "PCI") || strings.Contains(word, "BUS"):
				better = "PCI_BUS_ID"
			case strings.Contains(word, "FAST"):
				better = "FASTEST_FIRST"
			}
			do := "write PCI_BUS_ID or FASTEST_FIRST"
			if better != "" {
				do = "write " + name + "=" + better
			}
			all = append(all, valued(r, r.Severity, s, assigned(s)+" is no order that CUDA knows", "CUDA knows PCI_BUS_ID and FASTEST_FIRST, written like this", do, better))
		})
		return all
	}
	return r
}

func selectorRule() Rule {
	r := Rule{
		Page: check.Page{
			Code: "selector-invalid", Title: "A device selector that SYCL cannot read",
			Text: "`ONEAPI_DEVICE_SELECTOR` is a list of `backend:devices` terms with `;` between them, such as `level_zero:0,1` or `*:gpu`. The shape of the older `SYCL_DEVICE_FILTER`, `level_zero:gpu:0`, has a colon too many, and the program ends with an error.",
			From: []string{"intel/llvm: sycl/doc/EnvironmentVariables.md", "IntelPython/dpctl: issue 1406"},
		},
		Severity: check.Error,
		Bad:      []Example{{"run.sh", "export ONEAPI_DEVICE_SELECTOR=level_zero:gpu:0\n./solver\n"}, {"run.sh", "ONEAPI_DEVICE_SELECTOR=gpu ./solver\n"}},
		Good:     []Example{{"run.sh", "export ONEAPI_DEVICE_SELECTOR=level_zero:0\n./solver\n"}, {"run.sh", "ONEAPI_DEVICE_SELECTOR='*:gpu;!cuda:*' ./solver\n"}},
	}
	r.Look = func(file File) (all []Finding) {
		eachSet(file, func(s Step) {
			if s.Name != "ONEAPI_DEVICE_SELECTOR" || s.Value.Text == "" {
				return
			}
			m := list{vendor: gpu.Intel}.machine("")
			for _, n := range visible.SYCL(visible.Env{s.Name + "=" + s.Value.Text}, m).Notes {
				if n.Code != "selector-invalid" {
					continue
				}
				better := selectorMeant(s.Value.Text)
				do := "write backend:devices, such as level_zero:0"
				if better != "" {
					do = "write " + s.Name + "=" + better
				}
				_, why, _ := strings.Cut(n.Text, ": ")
				all = append(all, valued(r, r.Severity, s, assigned(s)+" is no selector", why, do, better))
				return
			}
		})
		return all
	}
	return r
}

// selectorMeant turns level_zero:gpu:0, the shape of the older variable, into what it means here.
func selectorMeant(value string) string {
	parts := strings.Split(value, ":")
	if len(parts) == 3 && parts[1] == "gpu" && plainNumber(parts[2]) {
		return parts[0] + ":" + parts[2]
	}
	return ""
}

func sameListRule() Rule {
	r := Rule{
		Page: check.Page{
			Code: "mask-rocr-and-hip", Title: "The same list for ROCm and for HIP",
			Text: "`HIP_VISIBLE_DEVICES` counts within what `ROCR_VISIBLE_DEVICES` leaves. With `2,3` in both, ROCm leaves two GPUs, which HIP numbers 0 and 1, and HIP then looks for the numbers 2 and 3 among them and finds none.\n\n" +
				"Set one of them: `ROCR_VISIBLE_DEVICES` counts for every program on AMD GPUs. PyTorch on ROCm reads `CUDA_VISIBLE_DEVICES` too where `HIP_VISIBLE_DEVICES` is not set.",
			From: []string{rocrSource, hipSource},
		},
		Severity: check.Error,
		Bad:      []Example{{"train.sh", "export ROCR_VISIBLE_DEVICES=2,3\nexport HIP_VISIBLE_DEVICES=2,3\npython train.py\n"}},
		Good:     []Example{{"train.sh", "export ROCR_VISIBLE_DEVICES=2,3\nexport HIP_VISIBLE_DEVICES=0,1\npython train.py\n"}, {"train.sh", "export ROCR_VISIBLE_DEVICES=0,1\nexport HIP_VISIBLE_DEVICES=0,1\npython train.py\n"}},
	}
	r.Look = func(file File) (all []Finding) {
		for _, group := range together(file) {
			rocr, one := group["ROCR_VISIBLE_DEVICES"]
			hip, two := group["HIP_VISIBLE_DEVICES"]
			if !one || !two || !rocr.Value.Known || !hip.Value.Known {
				continue
			}
			m := list{vendor: gpu.AMD}.machine("")
			outer := visible.Env{asEnvironment(rocr)}
			left, seen := len(visible.ROCR(outer, m).Visible), len(visible.HIP(append(outer, asEnvironment(hip)), m).Visible)
			wanted := strings.Count(strings.Trim(hip.Value.Text, ","), ",") + 1
			if !strings.Contains(hip.Value.Text+rocr.Value.Text, "GPU-") && hip.Value.Text != "" && hip.Value.Text != "-1" && left > 0 && seen < wanted {
				f := valued(r, r.Severity, hip, assigned(hip)+" beside "+assigned(rocr)+" "+visibleCount(seen), "HIP counts within the list of ROCm, from 0", "leave HIP_VISIBLE_DEVICES out, or count it from 0", "")
				f.At = hip.At
				all = append(all, f)
			}
		}
		return all
	}
	return r
}

// asEnvironment is a step as an environment has it.
func asEnvironment(s Step) string { return s.Name + "=" + s.Value.Text }

func visibleCount(n int) string {
	switch n {
	case 0:
		return "shows no GPU at all"
	case 1:
		return "shows one GPU alone"
	}
	return "shows fewer GPUs than it lists"
}
