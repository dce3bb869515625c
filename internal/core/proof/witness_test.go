package proof

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"

	"gpuard/internal/gate"
)

// modules are stand-ins for frameworks with what witness.py reads.
func modules() map[string]string {
	return map[string]string{
		"torch/__init__.py": `
print("torch prints something")
__version__ = "2.5.1+cu124"
class version: cuda, hip = "12.4", None
class device: name, uuid = "NVIDIA L4", "8a5c"
class cuda:
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 2)
    get_device_properties = staticmethod(lambda i: device)
`,
		"tensorflow/__init__.py": `
__version__ = "2.16.1"
class sysconfig: get_build_info = staticmethod(lambda: {"is_cuda_build": False})
class config: list_physical_devices = staticmethod(lambda kind: [])
`,
		"jax/__init__.py":         `__version__ = "0.4.30"`,
		"jaxlib/__init__.py":      `__version__ = "0.4.30"`,
		"onnxruntime/__init__.py": "__version__ = '1.20.0'\nget_available_providers = lambda: ['CUDAExecutionProvider', 'CPUExecutionProvider']\n",
		"cupy/__init__.py": `
__version__ = "13.3.0"
def no_device(): raise RuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
class cuda:
    class runtime:
        is_hip = False
        runtimeGetVersion = staticmethod(lambda: 12060)
        getDeviceCount = staticmethod(no_device)
`,
	}
}

// TestWitness runs witness.py in a real interpreter.
func TestWitness(t *testing.T) {
	gate.Need(t, "python3")
	dir := t.TempDir()
	for name, text := range modules() {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	words := []string{pytorch, tensorflow, jax, onnx, cupy, llama}
	args, ok := QuestionArgs("/usr/bin/python3", words)
	if !ok {
		t.Fatal("Python cannot be asked")
	}
	cmd := exec.Command("python3", args...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+dir)
	cmd.Dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(cmd.Dir, "torch.py"), []byte("raise SystemExit(3)"), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	none := []FrameworkDevice{}
	want := []Framework{
		{Name: "PyTorch", Version: "2.5.1+cu124", Built: "CUDA 12.4", GPU: Yes, Devices: []FrameworkDevice{{"NVIDIA L4", "GPU-8a5c"}, {"NVIDIA L4", "GPU-8a5c"}}},
		{Name: "TensorFlow", Version: "2.16.1", Built: "CPU", GPU: No, Devices: none},
		{Name: "JAX", Version: "0.4.30", Built: "CPU", GPU: No, Devices: none},
		{Name: "ONNX Runtime", Version: "1.20.0", Built: "CUDA", GPU: Unknown, Devices: none},
		{Name: "CuPy", Version: "13.3.0", Built: "CUDA 12.6", GPU: No, Error: "cudaErrorNoDevice: no CUDA-capable device is detected", Devices: none},
		{Name: "llama.cpp", GPU: Unknown, Error: "ModuleNotFoundError: No module named 'llama_cpp'", Devices: none},
	}
	for i, got := range ReadAnswers(words, out) {
		if !reflect.DeepEqual(got, want[i]) {
			t.Errorf("%s: %+v, want %+v", words[i], got, want[i])
		}
	}
}
