package explain

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gpuard/internal/gate"
)

// afterImport imports the module that it is given and prints what that did to the process. A CUDA driver that is not
// initialized returns 3, CUDA_ERROR_NOT_INITIALIZED (NVIDIA CUDA Driver API, cuDeviceGetCount).
const afterImport = `
import ctypes, importlib, os, sys
try:
    module = importlib.import_module(sys.argv[1])
except ImportError as why:
    print("skipped:", str(why).splitlines()[0]); sys.exit()
loaded = "libcuda.so" in open("/proc/self/maps").read()
files = 0
for fd in os.listdir("/proc/self/fd"):
    try: files += os.readlink("/proc/self/fd/" + fd).startswith("/dev/nvidia")
    except OSError: pass
answer = "no libcuda"
try:
    answer = ctypes.CDLL("libcuda.so.1").cuDeviceGetCount(ctypes.byref(ctypes.c_int()))
except OSError: pass
print("version", getattr(module, "__version__", "?"), "| libcuda loaded:", loaded, "| NVIDIA device files open:", files,
      "| cuInit called:", {3: "no", "no libcuda": "no libcuda"}.get(answer, "yes (cuDeviceGetCount answers %s)" % answer))
`

// fraction allocates on the GPU under the setting of PyTorch's allocator that newer versions know (pytorch/pytorch,
// docs/source/notes/cuda.rst). An older one refuses the unknown key.
const fraction = `
try: import torch
except ImportError as why: print("skipped:", str(why).splitlines()[0]); raise SystemExit
if not torch.cuda.is_available(): print("skipped: PyTorch", torch.__version__, "sees no GPU"); raise SystemExit
try:
    torch.zeros(1, device="cuda")
    print("version", torch.__version__, "accepted")
except Exception as why:
    print("version", torch.__version__, "refused:", str(why).splitlines()[0])
`

// deactivate activates an environment that sets the variable, leaves it, and shows what is left: of a value from
// before, and of none, which bash must not keep as an empty one that hides every GPU (conda/conda, conda/activate.py).
const deactivate = `
command -v conda >/dev/null || { echo "skipped: no conda"; exit; }
eval "$(conda shell.bash hook)"
place=$(mktemp -d) && trap 'rm -rf "$place"' EXIT
conda create -q -y --offline -p "$place/env" >/dev/null 2>&1 || { echo "skipped: conda cannot create an environment"; exit; }
conda env config vars set -p "$place/env" CUDA_VISIBLE_DEVICES=1 >/dev/null
unset CUDA_VISIBLE_DEVICES
conda activate "$place/env"; conda deactivate; none=${CUDA_VISIBLE_DEVICES-unset}
export CUDA_VISIBLE_DEVICES=0
conda activate "$place/env"; inside=$CUDA_VISIBLE_DEVICES; conda deactivate
echo "$(conda --version) | inside: $inside | after, where it was 0: '${CUDA_VISIBLE_DEVICES-unset}' | after, where it was unset: '$none'"
`

// frameworks asks what is installed here, one line for each question.
func frameworks(t *testing.T) string {
	var out strings.Builder
	ask := func(question string, env []string, name string, args ...string) {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Env = append(os.Environ(), env...)
		text, err := cmd.Output()
		if err != nil {
			text = fmt.Appendf(text, "failed: %v", err)
		}
		fmt.Fprintf(&out, "%s: %s\n", question, strings.TrimSpace(string(text)))
	}
	for _, module := range []string{"json", "torch", "tensorflow", "jax", "onnxruntime", "cupy"} {
		ask("import "+module, nil, "python3", "-c", afterImport, module)
	}
	ask("per_process_memory_fraction", []string{"PYTORCH_CUDA_ALLOC_CONF=per_process_memory_fraction:0.5"}, "python3", "-c", fraction)
	ask("conda deactivate", nil, "bash", "-c", deactivate)
	return out.String()
}

// TestFrameworks writes into GPUARD_RECORD what imports do to the driver, which "make gpu-check" asks on a machine with
// a GPU.
func TestFrameworks(t *testing.T) {
	gate.Need(t, "gpu", "python3")
	got := frameworks(t)
	t.Log("\n" + got)
	if dir := os.Getenv("GPUARD_RECORD"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, "frameworks.txt"), []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	first, _, _ := strings.Cut(got, "\n")
	if !strings.HasSuffix(first, "| libcuda loaded: False | NVIDIA device files open: 0 | cuInit called: no") {
		t.Error("a module that has nothing to do with GPUs started the driver, or the question is wrong")
	}
}

// The questions themselves, where there is no GPU: a module without a GPU part, one that is missing.
func TestFrameworkQuestions(t *testing.T) {
	gate.Need(t, "python3")
	for module, want := range map[string]string{
		"json":           "| libcuda loaded: False | NVIDIA device files open: 0 | cuInit called: no",
		"missing_module": "skipped: No module named 'missing_module'",
	} {
		out, err := exec.Command("python3", "-c", afterImport, module).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v\n%s", module, err, out)
		}
	}
}
