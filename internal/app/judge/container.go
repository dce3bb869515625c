package judge

import (
	"fmt"

	"gpuard/internal/app/exit"
	"gpuard/internal/core/container"
	"gpuard/internal/core/job"
	"gpuard/internal/core/lint"
)

// refuseContainer refuses a command that starts a process in a container through another program, or by compose: that
// has the GPUs which the engine gives it, and not those of the lease. A shell between them is taken as the word of a
// caller that passes on the lease.
func refuseContainer(spec job.Spec, command []string) error {
	tool := lint.ContainerTool(command)
	if tool == "" || spec.CPU {
		return nil
	}

	pass := `--gpus "\"device=$GPUARD_GPUS\""`
	if tool == "podman" {
		pass = "--device nvidia.com/gpu=$GPUARD_GPUS"
	}

	instead := ""
	if container.EngineOf(tool) != "" {
		instead = fmt.Sprintf("start it by gpuard %s -- run …, or ", tool)
	}

	return exit.Usagef("cannot give the GPUs of a lease to a container here: %s chooses them by its own options; %spass the lease on in a shell: gpuard run -- sh -c '%s run %s …'", tool, instead, tool, pass)
}
