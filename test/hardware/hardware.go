// Package hardware answers the gate gpu with what gpuard itself asks:
//
//	gate.Driver = hardware.CheckGPUs
//
// The TestMain that says this must also call libcuda.ServeProbe for the process that libcuda.AskInChild starts.
package hardware

import (
	"context"
	"fmt"
	"os"
	"time"

	"gpuard/internal/core/gpu"
	"gpuard/internal/host/libcuda"
	"gpuard/internal/host/nvml"
)

// CheckGPUs says why NVIDIA's driver has no GPU to use. Device files and libraries stay behind when a driver goes.
func CheckGPUs() error {
	const patience = time.Minute // it may have to start the GPU
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	answer, err := libcuda.AskInChild(ctx, os.Environ(), patience)
	if err != nil {
		return err
	}
	if len(answer.Devices) == 0 {
		return fmt.Errorf("cuInit answers %d, %s, and there are no devices", answer.Code, answer.Word)
	}
	library, err := nvml.Open(ctx)
	if err != nil {
		return err
	}
	_, err = library.Read(ctx, gpu.Query{What: gpu.Identity})
	return err
}
