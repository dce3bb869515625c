package check

import (
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/hostinfo"
	"gpuard/internal/core/option"
)

func containerEngine() Check {
	page := Page{
		Code: "container-engine", Title: "Containers cannot be started, or get no GPU",
		Text: option.Expand("A container with a GPU needs an engine that this user may use, and something that tells the engine of the GPUs. Docker's engine is a daemon that belongs to root: who may open its socket can start containers, which are root and a group for some people (`docker`). Podman needs no daemon; for a user who is not root it needs ranges of user IDs in `/etc/subuid` and `/etc/subgid`, and the programs `newuidmap` and `newgidmap`.\n\n" +
			"The GPUs come to the engine by NVIDIA's container toolkit or by a CDI file. Without both a container gets bare device files, and its image has to bring the driver's libraries in the very version of the machine. `sudo {gpuard setup cdi}` writes a CDI file."),
		From: []string{"https://docs.docker.com/engine/install/linux-postinstall/", "https://github.com/containers/podman/blob/main/docs/tutorials/rootless_tutorial.md", toolkitCDI},
	}
	return Check{Page: page, Look: func(s hostinfo.Site) []Finding {
		return checkOnHost(page.Code, s, func(c hostinfo.Containers) []Finding {
			var found []Finding
			switch {
			case !c.Docker:
			case c.DockerSocket == "":
				found = append(found, Finding{page.Code, Info, "Docker is installed, and its daemon does not run", "docker run fails: Cannot connect to the Docker daemon", "sudo systemctl start docker"})
			case c.DockerDenied:
				found = append(found, Finding{page.Code, Info, "you may not open Docker's socket, " + c.DockerSocket, "docker run fails: permission denied", "ask the administrator for Docker's group (sudo usermod -aG docker USER, then log in again), or use podman"})
			}

			if c.Podman && c.PodmanLacks != "" {
				found = append(found, Finding{page.Code, Info, "Podman is installed, and " + c.PodmanLacks, "podman run fails for you: it cannot map the user IDs of a container", "sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER, with the package uidmap; then: podman system migrate"})
			}

			if (c.Docker || c.Podman) && !c.Toolkit && len(ofNVIDIA(c)) == 0 && hasVendor(s, gpu.NVIDIA) {
				found = append(found, Finding{page.Code, Info, "container engines do not know NVIDIA's GPUs: there is neither NVIDIA's container toolkit nor a CDI file", option.Expand("docker run --gpus and podman run --device nvidia.com/gpu=… fail; {gpuard docker} gives bare device files"), option.Expand("sudo {gpuard setup cdi}, or install NVIDIA's container toolkit")})
			}

			switch {
			case found != nil:
				return found
			case !c.Docker && !c.Podman:
				return okFinding(page.Code, "no container engine is installed")
			}

			return okFinding(page.Code, "container engines can be used")
		})
	}}
}
