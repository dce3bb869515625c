package check

import (
	"cmp"
	"fmt"

	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
)

// Codes of cuInit ("CUDA Driver API", module "Data types used by CUDA driver").
const (
	cudaStarts   = 0
	cudaNoDevice = 100
)

func cudaStart() Check {
	return Check{Page{
		Code:  "cuda-starts",
		Title: "The CUDA driver starts",
		Text: `That nvidia-smi shows the GPUs says nothing of CUDA: that has a library (libcuda) and kernel modules (nvidia_uvm) of its own. Doctor calls cuInit in a
process of its own, without any mask.

The code 999 comes mostly after the machine was suspended: when nothing uses the GPUs, ` + "`sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm`" + ` mends
it; ` + "`modprobe`" + ` alone does nothing, because the module is loaded. 803 and 804 are a library and a kernel module of different versions, 802 a
machine with NVSwitch whose fabric manager does not run.`,
		From: []string{"https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html", "pytorch/pytorch issue 49081", "ollama/ollama issue 2934"},
	}, true, checkCUDAStart}
}

func checkCUDAStart(s hostinfo.Site) []Finding {
	const code = "cuda-starts"
	c := s.CUDA.Found
	switch {
	case len(devicesOfVendor(s, gpu.NVIDIA)) == 0:
		return okFinding(code, "there is no GPU of NVIDIA here that answers")
	case s.CUDA.Problem != "":
		return unknownFinding(code, "whether the CUDA driver starts", s.CUDA.Problem, s.CUDA.Do)
	case c.Code == cudaStarts:
		return okFinding(code, "cuInit answers 0")
	}

	do := c.Remedy
	if c.Code == cudaNoDevice {
		do = cmp.Or(do, "look at the device files: ls -l /dev/nvidia*; in a container, were the GPUs given to it?")
	}

	return []Finding{{code, Error, fmt.Sprintf("cuInit answers %d (%s), although nvidia-smi shows the GPUs", c.Code, c.Word), "No CUDA program starts; frameworks work on the CPU.", do}}
}
