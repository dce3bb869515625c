package runcmd

import (
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/jobflags"
)

// NewDockerCommand makes gpuard docker.
func NewDockerCommand(p *cli.Program) *cobra.Command { return makeEngineRun(p, "docker") }

// NewPodmanCommand makes gpuard podman.
func NewPodmanCommand(p *cli.Program) *cobra.Command { return makeEngineRun(p, "podman") }

// makeEngineRun is gpuard run with the command line of a container engine.
func makeEngineRun(p *cli.Program, engine string) *cobra.Command {
	o := &jobflags.RunOptions{}
	cmd := makeRun(p, o)
	run := cmd.RunE
	o.Add(p, cmd)
	cmd.Use = engine + " [flags] -- run|create|start|exec|restart ..."
	cmd.Short = "Start a container on a leased GPU; podman likewise"
	if engine == "podman" {
		cmd.Short = "Start a container of Podman on a leased GPU"
	}

	cmd.Long = strings.ReplaceAll(`Chooses devices that really are free, leases them, and starts the container with
these devices and no others. Everything after the flags is the command line of
ENGINE and reaches it unchanged, except what asks for other GPUs: --gpus,
--device nvidia.com/gpu=... and NVIDIA_VISIBLE_DEVICES are left out, and
--privileged, other device files, a mounted /dev and what else leads to devices
that are not of the lease are refused, with the reason.

The lease lives as long as the container: attached, with -d, and when its client
is killed. create chooses the devices, start and restart lease them; exec uses
those of the container. In the container the numbers of the GPUs begin at 0.
What starts no container, as pull or logs, runs without a lease.
With --timeout, --retry or --log gpuard looks after a container in the
foreground. gpuard run -- ENGINE run ... is the same.`, "ENGINE", engine)

	cmd.Example = strings.ReplaceAll(`  gpuard ENGINE --gpus 1 --mem 20G -- run --rm -it image python train.py
  gpuard ENGINE --device 1,2 -- run -d --name serve image
  gpuard ENGINE -- exec -it serve bash
  gpuard ENGINE --dry-run -- run image    the command line of ENGINE`, "ENGINE", engine)

	cmd.RunE = func(cmd *cobra.Command, args []string) error { return run(cmd, append([]string{engine}, args...)) }

	return cmd
}
