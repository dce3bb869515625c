package check

import (
	"slices"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
)

func onnxBuild() Check {
	page := Page{
		Code: "onnxruntime-build", Title: "ONNX Runtime is the build for the CPU",
		Text: "The package `onnxruntime` has no code for GPUs. It imports without a word, `onnxruntime.get_available_providers()` has no `CUDAExecutionProvider`, and models run on the CPU also where the program asks for that provider. The builds for GPUs are packages of their own: `onnxruntime-gpu` for NVIDIA, `onnxruntime-migraphx` for AMD.\n\n" +
			"Uninstall `onnxruntime` first: all builds write the same folder.",
		From: []string{"https://onnxruntime.ai/docs/install/", onnxNeeds},
	}
	return Check{Page: page, Look: withDevices(page.Code, "every ONNX Runtime has code for the GPUs here", onnxFamily(), func(s hostinfo.Site, p hostinfo.Python) []Finding {
		k, found := installed(p, "onnxruntime")
		if !found || !cpuBuild(p, "onnxruntime") {
			return nil
		}
		build := "onnxruntime-gpu"
		switch {
		case has(s, gpu.NVIDIA):
		case slices.ContainsFunc(s.Machine.Found.Devices, ownMemory):
			build = "onnxruntime-migraphx"
		default:
			return nil
		}
		return []Finding{{Severity: Warning, Seen: "onnxruntime " + k.Version + " is the build for the CPU", Why: "models run on the CPU, also where the program asks for a GPU", Do: swap(p, "onnxruntime", build)}}
	})}
}

func tensorflowBuild() Check {
	page := Page{
		Code: "tensorflow-build", Title: "TensorFlow is the build for the CPU",
		Text: "The package `tensorflow-cpu` has no code for GPUs: `tf.config.list_physical_devices('GPU')` is empty. That may be meant.\n\nFor NVIDIA GPUs install `tensorflow[and-cuda]`, and uninstall `tensorflow-cpu` first: both write the same folder.",
		From: []string{"https://www.tensorflow.org/install/pip"},
	}
	return Check{Page: page, Look: withDevices(page.Code, "no TensorFlow is for the CPU by name", []string{"tensorflow", "tensorflow-cpu"}, func(s hostinfo.Site, p hostinfo.Python) []Finding {
		k, found := installed(p, "tensorflow-cpu")
		if !found || !cpuBuild(p, "tensorflow") || !has(s, gpu.NVIDIA) {
			return nil
		}
		return []Finding{{Severity: Info, Seen: "tensorflow-cpu " + k.Version + " uses the CPU alone, as its name says", Do: swap(p, "tensorflow-cpu", "'tensorflow[and-cuda]'")}}
	})}
}
