package lint

import (
	"slices"
	"strings"
)

// driverStarter names the library whose call or import starts the GPU driver in this process: from then on the variables that
// choose devices have no effect. "" is none. torch is whether the file uses PyTorch, whose methods have short names;
// nvml is whether PyTorch was told to ask NVML, which starts nothing.
func (s Step) driverStarter(torch, nvml bool) string {
	root, rest, _ := strings.Cut(s.Name, ".")
	switch {
	case s.Do == Import && (s.Name == "pycuda.autoinit" || s.Name == "pycuda.autoprimaryctx"):
		return "PyCUDA"
	case s.Do != Call:
		return ""
	case root == "torch":
		if s.torchStartsDriver(rest, nvml) {
			return "PyTorch"
		}
	case root == "":
		if torch && s.methodStartsDriver(rest) {
			return "PyTorch"
		}
	case hasWord(driverStartCalls()[root], rest):
		return productName(root)
	case root == "tensorflow" && strings.HasSuffix(rest, "config.list_physical_devices") || strings.HasSuffix(rest, "config.experimental.list_physical_devices"):
		if kind, ok := s.findArg(0, "device_type"); !ok || kind.Value.Text != "CPU" {
			return "TensorFlow"
		}
	case root == "jax" && strings.HasPrefix(rest, "random."), root == "cupy" && strings.HasPrefix(rest, "random."):
		return productName(root)
	case root == "onnxruntime" && rest == "InferenceSession":
		if s.argsContain("CUDAExecutionProvider", "TensorrtExecutionProvider", "ROCMExecutionProvider", "MIGraphXExecutionProvider") {
			return "ONNX Runtime"
		}
	case root == "transformers" && rest == "pipeline", strings.HasSuffix(rest, "from_pretrained") && root == "transformers":
		if s.putsOnGPU() {
			return "PyTorch"
		}
	case root == "accelerate" && rest == "Accelerator":
		if cpu, ok := s.findArg(-1, "cpu"); !ok || cpu.Value.Text == "False" {
			return "Accelerate"
		}
	}
	return ""
}

// driverStartCalls are calls that start the driver, whatever their arguments are. What was looked at: pytorch/pytorch,
// torch/cuda/__init__.py; tensorflow.org, "Use a GPU"; tensorflow/tensorflow issue 26460 (listing makes contexts);
// jax-ml/jax, jax/_src/xla_bridge.py; cupy/cupy, cupy/cuda; numba/numba, numba/cuda/cudadrv/driver.py. An engine of
// vLLM is not among them: its devices may be used by processes of its own only.
func driverStartCalls() map[string]string {
	return map[string]string{
		"tensorflow": `test.is_gpu_available test.gpu_device_name config.list_logical_devices config.experimental.list_logical_devices constant Variable
			Session compat.v1.Session zeros ones random.normal random.uniform convert_to_tensor matmul python.client.device_lib.list_local_devices`,
		"jax": `devices local_devices device_count local_device_count default_backend device_put numpy.array numpy.asarray numpy.zeros numpy.ones numpy.full
			numpy.empty numpy.arange numpy.linspace numpy.eye numpy.dot numpy.matmul numpy.sum numpy.stack numpy.concatenate`,
		"cupy": `array asarray zeros ones full empty arange linspace eye zeros_like ones_like dot matmul sum cuda.is_available cuda.runtime.getDeviceCount
			cuda.runtime.getDeviceProperties cuda.runtime.setDevice cuda.Stream cuda.get_device_id cuda.alloc`,
		"numba":     `cuda.select_device cuda.get_current_device cuda.to_device cuda.device_array cuda.is_available cuda.detect cuda.current_context cuda.synchronize cuda.list_devices cuda.pinned_array`,
		"pycuda":    `driver.init`,
		"deepspeed": `initialize`,
	}
}

// listsDevices reports whether the step only asks TensorFlow which cards there are: that starts the driver and leaves the rest
// of the configuration open (tensorflow.org: tf.config.list_physical_devices).
func (s Step) listsDevices() bool { return strings.HasSuffix(s.Name, "list_physical_devices") }

// isTensorFlowOp reports whether the step is an operation of TensorFlow that runs immediately, or is added to a graph that a
// session runs later, as all were in TensorFlow 1.
func (s Step) isTensorFlowOp() bool {
	root, rest, _ := strings.Cut(s.Name, ".")
	return s.Do == Call && root == "tensorflow" && hasWord("constant Variable zeros ones random.normal random.uniform convert_to_tensor matmul", rest)
}

// usesTensorFlowGraphs reports whether a file draws graphs of TensorFlow for a session.
func (f File) usesTensorFlowGraphs() bool {
	return slices.ContainsFunc(f.Steps, func(s Step) bool {
		name := strings.TrimPrefix(strings.TrimPrefix(s.Name, "tensorflow."), "compat.v1.")
		return s.Do == Call && s.Name != name && hasWord("placeholder Session InteractiveSession disable_eager_execution disable_v2_behavior", name)
	})
}

// hasWord reports whether a word is in a list of words. It is called for every step, so it does not split the list unless
// the word is in it.
func hasWord(list, word string) bool {
	if word == "" || !strings.Contains(list, word) {
		return false
	}
	for w := range strings.FieldsSeq(list) {
		if w == word {
			return true
		}
	}
	return false
}

func productName(root string) string {
	return map[string]string{"tensorflow": "TensorFlow", "jax": "JAX", "cupy": "CuPy", "numba": "Numba", "pycuda": "PyCUDA", "deepspeed": "DeepSpeed"}[root]
}

// torchStartsDriver is about a function of torch: is_available() calls cuInit unless PYTORCH_NVML_BASED_CUDA_CHECK is 1;
// device_count() asks NVML; seeds wait for the start (pytorch/pytorch: torch/cuda/__init__.py, torch/cuda/random.py).
func (s Step) torchStartsDriver(rest string, nvml bool) bool {
	name, cuda := strings.CutPrefix(rest, "cuda.")
	switch {
	case cuda && name == "is_available":
		return !nvml
	case cuda && hasWord("init current_device set_device get_device_name get_device_capability get_device_properties mem_get_info synchronize current_stream default_stream Stream is_bf16_supported can_device_access_peer cudart ipc_collect device set_per_process_memory_fraction current_blas_handle", name):
		return true
	case cuda:
		return strings.HasSuffix(name, "Tensor")
	case hasWord("device autocast set_default_device get_device_module", rest), strings.HasPrefix(rest, "amp."), strings.HasPrefix(rest, "distributed"), strings.HasPrefix(rest, "utils."), strings.HasPrefix(rest, "profiler"), strings.HasPrefix(rest, "multiprocessing"):
		return false
	}
	return s.putsOnGPU()
}

// putsOnGPU reports whether an argument puts something onto a GPU.
func (s Step) putsOnGPU() bool {
	return slices.ContainsFunc(s.Args, func(a Arg) bool {
		if !slices.Contains([]string{"device", "map_location", "device_map"}, a.Name) || !a.Value.Known {
			return false
		}
		return strings.HasPrefix(a.Value.Text, "cuda") || a.Name == "device_map" && a.Value.Text == "auto" || a.Name == "device" && parseDecimal(a.Value.Text) >= 0
	})
}

// methodStartsDriver is about a method of something unknown in a file that uses PyTorch.
func (s Step) methodStartsDriver(name string) bool {
	switch name {
	case "cuda":
		return true
	case "from_pretrained":
		return s.putsOnGPU()
	case "to":
		to, ok := s.findArg(0, "device")
		return ok && to.Value.Known && (strings.HasPrefix(to.Value.Text, "cuda") || parseDecimal(to.Value.Text) >= 0)
	}
	return false
}

func (s Step) argsContain(texts ...string) bool {
	return slices.ContainsFunc(s.Args, func(a Arg) bool {
		return slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(a.Value.Raw, t) })
	})
}

// parseDecimal is a plain decimal number, or -1.
func parseDecimal(text string) int {
	n := 0
	if text == "" || len(text) > 4 {
		return -1
	}

	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return -1
		}
		n = 10*n + int(c-'0')
	}

	return n
}

// variableReader says what the variable chooses, and when a library stops looking at it: "driver" with the driver's start, or
// the library that reads it. "" is a variable that is read later, or about which nothing is known.
func variableReader(variable string) (by, what string) {
	switch variable {
	case "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER":
		return "driver", "which devices there are and in which order"
	case "ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR", "ASCEND_RT_VISIBLE_DEVICES":
		return "driver", "which devices there are"
	case "XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_ALLOCATOR":
		return "JAX", "how memory is taken"
	case "JAX_PLATFORMS", "JAX_PLATFORM_NAME":
		return "import jax", "which devices it uses"
	case "TF_FORCE_GPU_ALLOW_GROWTH", "TF_GPU_ALLOCATOR":
		return "TensorFlow", "how memory is taken"
	}
	return "", ""
}
