package lint

import (
	"testing"

	"gpuard/internal/core/compat"
)

// TestOfGPUs: no name of the table is passed over before it is looked up.
func TestOfGPUs(t *testing.T) {
	for _, name := range []string{"NCCL_BLOCKING_WAIT", "PYTORCH_CUDA_ALLOC_CONF", "XLA_PYTHON_CLIENT_MEM_FRACTION", "SYCL_DEVICE_FILTER", "HCQ_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING",
		"AMD_SERIALIZE_KERNEL", "JAX_DISABLE_JIT", "TORCH_NCCL_TRACE_BUFFER_SIZE", "HIP_LAUNCH_BLOCKING"} {
		_, old := compat.DeprecatedName(name, "1")
		_, debug := compat.DebugOnly(name, "1")
		if !old && !debug || !hasVendorPrefix(name) {
			t.Errorf("%s: old %v, debug %v, of GPUs %v", name, old, debug, hasVendorPrefix(name))
		}
	}
	if hasVendorPrefix("PATH") || hasVendorPrefix("LOG_CUDA") {
		t.Error("other names are of GPUs")
	}
}
