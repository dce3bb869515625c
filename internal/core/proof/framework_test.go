package proof

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRecognize(t *testing.T) {
	for _, c := range []struct {
		exe, libraries string
		want           []string
	}{
		{"/usr/bin/python3.11", "/usr/lib/libc.so.6 /usr/lib/python3/dist-packages/torch/lib/libtorch_python.so /usr/lib/libtorch_cpu.so", []string{"pytorch"}},
		{"/usr/bin/python3.11", "/usr/lib/x86_64-linux-gnu/libtorch.so.1.13", []string{"pytorch"}},
		{"/usr/bin/python3.11", "/v/tensorflow/python/_pywrap_tensorflow_internal.so /v/tensorflow/libtensorflow_cc.so.2", []string{"tensorflow"}},
		{"/usr/bin/python3.11", "/v/jaxlib/xla_extension.so", []string{"jax"}},
		{"/usr/bin/python3.11", "/v/jaxlib/_jax.so", []string{"jax"}},
		{"/usr/bin/python3.11", "/v/onnxruntime/capi/onnxruntime_pybind11_state.cpython-311-x86_64-linux-gnu.so", []string{"onnxruntime"}},
		{"/opt/server", "/opt/libonnxruntime.so.1.20.0", []string{"onnxruntime"}},
		{"/usr/bin/python3.11", "/v/cupy/_core/core.cpython-311.so", []string{"cupy"}},
		{"/usr/bin/python3.11", "/v/cupy/a.so /v/torch/lib/libtorch_cuda.so", []string{"cupy", "pytorch"}},
		{"/opt/llama-server", "", []string{"llama.cpp"}},
		{"/usr/bin/python3.11", "/v/llama_cpp/lib/libllama.so /v/llama_cpp/lib/libggml-cuda.so", []string{"llama.cpp"}},
		{"/usr/bin/python3.11", "/usr/lib/libtorchlight.so /usr/lib/libcuda.so.1", nil},
		{"/usr/bin/sleep", "", nil},
	} {
		if got := RecognizeFrameworks(c.exe, strings.Fields(c.libraries)); !slices.Equal(got, c.want) {
			t.Errorf("%s with %s: %v, want %v", c.exe, c.libraries, got, c.want)
		}
	}
}

func TestQuestion(t *testing.T) {
	for _, c := range []struct {
		exe   string
		words []string
		asked bool
		last  string
	}{
		{"/usr/bin/python3.11", []string{pytorch, jax}, true, jax},
		{"/opt/pypy3", []string{onnx}, true, onnx},
		{"/opt/llama-server", []string{llama}, true, "--list-devices"},
		{"/opt/python", []string{onnx}, true, onnx},
		{"/opt/python3.13t", []string{onnx}, true, onnx},
		{"/opt/pypy3.10", []string{onnx}, true, onnx},
		{"/opt/python-server", []string{onnx}, false, ""},
		{"/opt/python3.11-config", []string{onnx}, false, ""},
		{"/opt/pythonista", []string{onnx}, false, ""},
		{"/opt/pypyrun", []string{onnx}, false, ""},
		{"/opt/mypython3", []string{onnx}, false, ""},
		{"/opt/server", []string{onnx}, false, ""},
		{"/opt/chat", []string{llama}, false, ""},
		{"/opt/llama-train-mine", []string{llama}, false, ""},
	} {
		args, asked := QuestionArgs(c.exe, c.words)
		if asked != c.asked || asked && args[len(args)-1] != c.last {
			t.Errorf("%s %v: %v %v", c.exe, c.words, args, asked)
		}
	}
}

func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		name  string
		words []string
		out   string
		want  []Framework
	}{
		{"devices", []string{pytorch}, "Loading…\ngpuard-witness {\"pytorch\": {\"version\": \"2.5.1\", \"built\": \"CUDA 12.4\", \"gpu\": \"yes\", \"devices\": [{\"name\": \"NVIDIA L4\", \"uuid\": \"GPU-1\"}]}}\n",
			[]Framework{{Name: "PyTorch", Version: "2.5.1", Built: "CUDA 12.4", GPU: Yes, Devices: []FrameworkDevice{{"NVIDIA L4", "GPU-1"}}}}},
		{"one of two", []string{jax, cupy}, "gpuard-witness {\"jax\": {\"gpu\": \"no\", \"built\": \"CPU\"}}",
			[]Framework{{Name: "JAX", Built: "CPU", GPU: No, Devices: []FrameworkDevice{}}, {Name: "CuPy", GPU: Unknown, Error: "it did not answer", Devices: []FrameworkDevice{}}}},
		{"an error of several lines", []string{tensorflow}, `gpuard-witness {"tensorflow": {"gpu": "unknown", "error": "ImportError: a\nb\u001b[31m"}}`,
			[]Framework{{Name: "TensorFlow", GPU: Unknown, Error: "b[31m", Devices: []FrameworkDevice{}}}},
		{"a word that is none", []string{onnx}, `gpuard-witness {"onnxruntime": {"gpu": "maybe"}}`,
			[]Framework{{Name: "ONNX Runtime", GPU: Unknown, Devices: []FrameworkDevice{}}}},
		{"no JSON", []string{pytorch}, "gpuard-witness [", []Framework{{Name: "PyTorch", GPU: Unknown, Error: "it did not answer", Devices: []FrameworkDevice{}}}},
		{"llama.cpp", []string{llama}, "ggml_cuda_init: found 1 CUDA devices:\nAvailable devices:\n  CUDA0: NVIDIA L4 (22491 MiB, 22209 MiB free)\n  BLAS: OpenBLAS (0 MiB, 0 MiB free)\n",
			[]Framework{{Name: "llama.cpp", GPU: Yes, Devices: []FrameworkDevice{{Name: "NVIDIA L4 (22491 MiB, 22209 MiB free)"}}}}},
		{"llama.cpp without one", []string{llama}, "Available devices:\n", []Framework{{Name: "llama.cpp", GPU: No, Devices: []FrameworkDevice{}}}},
	} {
		if got := ReadAnswers(c.words, []byte(c.out)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestPlain(t *testing.T) {
	for d, want := range map[time.Duration]string{10 * time.Second: "10s", 2 * time.Minute: "2m", time.Hour: "1h", 90 * time.Second: "1m30s", 70 * time.Minute: "1h10m"} {
		if got := shortDuration(d); got != want {
			t.Errorf("plain(%v) = %s, want %s", d, got, want)
		}
	}
}
