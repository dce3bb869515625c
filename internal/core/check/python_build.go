package check

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/compat"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/prose"
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
		case hasVendor(s, gpu.NVIDIA):
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

		if fit == nil || others == nil || isFromConda(p, "onnxruntime") {
			return nil
		}

		k, kind := others[0], "the build for the CPU"
		if k.Name != "onnxruntime" && k.Name != "ort-nightly" {
			kind = "a build for other devices than the GPUs here"
		}

		return []Finding{{Severity: Warning, Seen: k.Name + " " + k.Version + " is " + kind, Why: "models run on the CPU, also where the program asks for a GPU of this machine", Do: swapFitting(s, p, k.Name, fit[0])}}
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
		k, found := findPackage(p, "tensorflow-cpu")
		if !found || !cpuBuild(p, "tensorflow") || !hasVendor(s, gpu.NVIDIA) {
			return nil
		}

		return []Finding{{Severity: Warning, Seen: "tensorflow-cpu " + k.Version + " uses the CPU alone, as its name says", Why: "programs that use it work on the CPU", Do: swapFitting(s, p, "tensorflow-cpu", "tensorflow[and-cuda]")}}
	})}
}

// namedBuild is a package that is the build for the CPU alone by its name, and those for NVIDIA's GPUs.
type namedBuild struct {
	cpu string
	gpu []string
	// How the first is replaced, but in an environment of conda.
	do string
}

func namedBuilds() []namedBuild {
	return []namedBuild{
		{"faiss-cpu", []string{"faiss-gpu", "faiss-gpu-cu11", "faiss-gpu-cu12"}, "conda has it: conda install -c pytorch -c nvidia faiss-gpu, in an environment of its own; PyPI has builds of others, such as faiss-gpu-cu12"},
		{"paddlepaddle", []string{"paddlepaddle-gpu"}, "pip uninstall paddlepaddle, then the line for paddlepaddle-gpu of https://www.paddlepaddle.org.cn/en/install/quick"},
		{"mxnet", []string{"mxnet-cu102", "mxnet-cu110", "mxnet-cu112"}, "pip uninstall mxnet, then pip install mxnet-cu112, the last release: the project ended in 2023"},
	}
}

func buildByName() Check {
	names := prose.Texts(namedBuilds(), func(one namedBuild) string { return one.cpu })
	page := Page{
		Code: "build-by-name", Title: "A library is the build for the CPU by its name",
		Text: "`faiss-cpu`, `paddlepaddle` and `mxnet` have no code for GPUs; those for NVIDIA's GPUs are `faiss-gpu` (of conda), `paddlepaddle-gpu` and `mxnet-cu112`. That may be meant: a search in Faiss is often fast enough on the CPU.\n\n" +
			"Both builds write the same folder: uninstall the one before installing the other.",
		From: []string{"facebookresearch/faiss: INSTALL.md", "https://www.paddlepaddle.org.cn/en/install/quick", "https://mxnet.apache.org/versions/1.9.1/get_started"},
	}

	return Check{Page: page, Look: withDevices(page.Code, "no library is for the CPU by name", names, func(s hostinfo.Site, p hostinfo.Python) (found []Finding) {
		for _, one := range namedBuilds() {
			k, is := findPackage(p, one.cpu)
			hasGPU := slices.ContainsFunc(one.gpu, func(name string) bool { _, is := findPackage(p, name); return is })
			if is && !hasGPU && !isFromConda(p, one.cpu) && hasVendor(s, gpu.NVIDIA) {
				found = append(found, Finding{Severity: Info, Seen: k.Name + " " + k.Version + " uses the CPU alone, as its name says", Why: "programs that use it work on the CPU", Do: one.do})
			}
		}
		return found
	})}
}

func llamaBuild() Check {
	const readme = "abetlen/llama-cpp-python: README.md"
	page := Page{
		Code: "llama-cpp-build", Title: "llama-cpp-python is the build for the CPU",
		Text: "`llama-cpp-python` has one name for all its builds. `pip install llama-cpp-python` compiles it for the CPU alone; it imports without a word, and models run on the CPU whatever `n_gpu_layers` says. A build for CUDA has `libggml-cuda.so` in its folder `llama_cpp/lib`, or, in older versions, libraries that load cudart and cuBLAS. `python -c 'import llama_cpp; print(llama_cpp.llama_supports_gpu_offload())'` says the same.\n\n" +
			"The project has wheels for CUDA in indexes of their own (`cu118`, `cu121` to `cu125`, `cu130`, `cu132`), for GPUs from compute capability 6.0 on (`cu118` below 9.0, `cu130` and `cu132` from 7.5 on), on x86-64; they load cudart and cuBLAS from the system. PyPI has sources only: with both indexes pip takes those where they are newer than the wheels, and compiles for the CPU again. With a CUDA toolkit, `-C cmake.args=-DGGML_CUDA=on` compiles it for CUDA.",
		From: []string{readme, "abetlen/llama-cpp-python: CMakeLists.txt", "abetlen/llama-cpp-python: .github/workflows/build-wheels-cuda.yaml", "abetlen/llama-cpp-python issue 2068", "abetlen/llama-cpp-python issue 1872", "conda-forge/llama.cpp-feedstock: recipe/recipe.yaml"},
	}
	return Check{Page: page, Look: withDevices(page.Code, "every llama-cpp-python has code for the GPUs here", []string{"llama-cpp-python"}, func(s hostinfo.Site, p hostinfo.Python) []Finding {
		if k, found := condaCPU(p, "llama-cpp"); found {
			k.Name = "llama.cpp"
			return condaBuild(s, p, k)
		}

		k, found := findPackage(p, "llama-cpp-python")
		usesGPU := slices.ContainsFunc(p.Llama, func(name string) bool {
			return slices.ContainsFunc([]string{"libggml-cuda", "libcudart.", "libcublas.", "libcuda.", "libggml-vulkan", "libvulkan."}, func(part string) bool { return strings.HasPrefix(name, part) })
		})

		switch {
		case !found || usesGPU || isFromConda(p, "llama-cpp-python") || !hasVendor(s, gpu.NVIDIA):
			return nil
		case p.Llama == nil:
			return []Finding{{Severity: Unknown, Seen: k.Name + " " + k.Version + " has no libraries in llama_cpp/lib, so it cannot be told what it was built for"}}
		}

		return []Finding{{Severity: Warning, Seen: k.Name + " " + k.Version + " is built for the CPU alone: none of its libraries uses CUDA", Why: "models run on the CPU, without an error, whatever n_gpu_layers says", Do: installLlama(s, p)}}
	})}
}

// installLlama is the command that installs llama-cpp-python for CUDA: a wheel that this driver and all GPUs here can
// run, or else its sources.
func installLlama(s hostinfo.Site, p hostinfo.Python) string {
	const again = "--force-reinstall --no-deps --no-cache-dir "
	const fromSource = "--no-binary llama-cpp-python llama-cpp-python -C cmake.args=-DGGML_CUDA=on"
	if p.Prefix == "/usr" {
		// In an environment of its own, which has nothing of what it needs.
		return "with a CUDA toolkit: " + pipInstall(p, fromSource)
	}

	source := "with a CUDA toolkit: " + pipInstall(p, again+fromSource)
	for _, wheel := range []struct {
		cuda string
		// above are cards that it has no code for.
		lowest, above gpu.Capability
	}{
		{"12.4", gpu.Capability{Major: 6}, gpu.Capability{Major: 99}},
		{"11.8", gpu.Capability{Major: 6}, gpu.Capability{Major: 9}},
	} {
		runs, known := compat.DriverRuns(driverVersion(s), wheel.cuda)
		isOutside := func(c gpu.Capability) bool { return !c.AtLeast(wheel.lowest) || c.AtLeast(wheel.above) }
		if known && runs && !slices.ContainsFunc(capabilities(s), isOutside) {
			index := "https://abetlen.github.io/llama-cpp-python/whl/cu" + strings.ReplaceAll(wheel.cuda, ".", "")
			return fmt.Sprintf("where CUDA %s's libcudart and libcublas are on the system: %s; or %s", wheel.cuda, pipInstall(p, again+"llama-cpp-python -i "+index), source)
		}
	}

	return source
}

// swapFitting says how pip replaces a package by a build that the driver and all GPUs here can run: the newest release,
// or the last one for an older CUDA. With a driver that runs none it says so.
func swapFitting(s hostinfo.Site, p hostinfo.Python, out, requirement string) string {
	name, extra, _ := strings.Cut(requirement, "[")
	isNewest, fits := true, false
	for _, cuda := range []string{"13", "12", "11"} {
		last := compat.LastFor(name, cuda)
		if last == "" {
			continue
		}

		runs, known := compat.DriverRuns(driverVersion(s), cuda)
		needs, _ := compat.PackageNeeds(name, last)
		isTooOld := func(d gpu.Device) bool {
			return needs.Lowest != nil && d.Compute != nil && !d.Compute.AtLeast(*needs.Lowest)
		}

		if known && (!runs || slices.ContainsFunc(nvidiaDevices(s), isTooOld)) {
			isNewest = false
			continue
		}

		fits = true
		if !isNewest {
			requirement += "==" + last + ".*"
		}

		break
	}

	if !fits && !isNewest {
		return "update the NVIDIA driver first: no release of " + name + " runs with this one and these GPUs"
	}

	if extra != "" || strings.Contains(requirement, "=") {
		requirement = "'" + requirement + "'"
	}

	return pipSwap(p, out, requirement)
}
