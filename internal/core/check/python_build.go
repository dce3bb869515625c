package check

import (
	"slices"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
)

func onnxBuild() Check {
	page := Page{
		Code: "onnxruntime-build", Title: "ONNX Runtime is the build for the CPU",
		Text: "The package `onnxruntime` has no code for GPUs. It imports without a word, `onnxruntime.get_available_providers()` has no `CUDAExecutionProvider`, and models run on the CPU also where the program asks for that provider. The builds for GPUs are packages of their own: `onnxruntime-gpu` for NVIDIA, `onnxruntime-migraphx` for AMD. conda has one package with two builds, whose names end in `_cpu` and `_cuda`.\n\n" +
			"Uninstall `onnxruntime` first: all builds write the same folder.",
		From: []string{"https://onnxruntime.ai/docs/install/", onnxNeeds},
	}
	return Check{Page: page, Look: withDevices(page.Code, "every ONNX Runtime has code for the GPUs here", onnxFamily(), func(s hostinfo.Site, p hostinfo.Python) []Finding {
		if k, found := condaCPU(p, "onnxruntime"); found {
			return condaBuild(s, p, k)
		}
		var fit []string
		switch {
		case has(s, gpu.NVIDIA):
			fit = []string{"onnxruntime-gpu", "ort-nightly-gpu", "onnxruntime-training"}
		case slices.ContainsFunc(s.Machine.Found.Devices, ownMemory):
			fit = []string{"onnxruntime-migraphx", "onnxruntime-rocm", "onnxruntime-training"}
		}
		var others []hostinfo.Package
		for _, k := range p.Packages {
			if slices.Contains(fit, k.Name) {
				return nil
			}
			if slices.Contains(onnxFamily(), k.Name) {
				others = append(others, k)
			}
		}
		if fit == nil || others == nil || byConda(p, "onnxruntime") {
			return nil
		}
		k, kind := others[0], "the build for the CPU"
		if k.Name != "onnxruntime" && k.Name != "ort-nightly" {
			kind = "a build for other devices than the GPUs here"
		}
		return []Finding{{Severity: Warning, Seen: k.Name + " " + k.Version + " is " + kind, Why: "models run on the CPU, also where the program asks for a GPU of this machine", Do: swap(p, k.Name, fit[0])}}
	})}
}

func tensorflowBuild() Check {
	page := Page{
		Code: "tensorflow-build", Title: "TensorFlow is the build for the CPU",
		Text: "The package `tensorflow-cpu` has no code for GPUs: `tf.config.list_physical_devices('GPU')` is empty. That may be meant. The same holds for builds of conda that begin with `cpu`, `mkl` or `eigen`; conda chooses them where it sees no driver, as on a login node.\n\nFor NVIDIA GPUs install `tensorflow[and-cuda]`, and uninstall `tensorflow-cpu` first: both write the same folder.",
		From: []string{"https://www.tensorflow.org/install/pip"},
	}
	return Check{Page: page, Look: withDevices(page.Code, "no TensorFlow is for the CPU by name", []string{"tensorflow", "tensorflow-cpu"}, func(s hostinfo.Site, p hostinfo.Python) []Finding {
		if k, found := condaCPU(p, "tensorflow", "tensorflow-base"); found {
			return condaBuild(s, p, k)
		}
		k, found := installed(p, "tensorflow-cpu")
		if !found || !cpuBuild(p, "tensorflow") || !has(s, gpu.NVIDIA) {
			return nil
		}
		return []Finding{{Severity: Warning, Seen: "tensorflow-cpu " + k.Version + " uses the CPU alone, as its name says", Why: "programs that use it work on the CPU", Do: swap(p, "tensorflow-cpu", "'tensorflow[and-cuda]'")}}
	})}
}
