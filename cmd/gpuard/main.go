// Command gpuard chooses, leases and proves GPUs on a shared machine. This file wires the parts and exits.
package main

import (
	"context"
	"fmt"
	"os"

	"gpuard/internal/app"
	"gpuard/internal/core/gpu"
	"gpuard/internal/host/nvml"
	"gpuard/internal/host/nvsmi"
	"gpuard/internal/host/proc"
	"gpuard/internal/ui/cli"
)

func main() {
	if app.Holder() {
		if err := app.Hold(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "gpuard: "+err.Error())
			os.Exit(125)
		}
		return
	}

	os.Exit(cli.Main(context.Background(), &cli.Program{
		App: &app.App{
			Read: app.FirstOf(library(), nvsmi.Read),
			Env:  os.Environ(),
			Proc: proc.New("/proc"),
			Run:  "/run",
			Tmp:  "/var/tmp",
		},
		Out:  os.Stdout,
		Err:  os.Stderr,
		Args: os.Args[1:],
	}))
}

// library opens NVML on first use and keeps it: one initialisation per process.
func library() app.Reader {
	var lib *nvml.Library
	return func(ctx context.Context, what gpu.What) (gpu.Machine, error) {
		if lib == nil {
			opened, err := nvml.Open(ctx)
			if err != nil {
				return gpu.Machine{}, err
			}
			lib = opened
		}
		return lib.Read(ctx, what)
	}
}
