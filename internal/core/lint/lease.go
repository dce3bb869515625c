package lint

import (
	"slices"

	"gpuard/internal/core/check"
	enginecli "gpuard/internal/core/container"
)

// beyondLease is about gpuard docker and gpuard podman.
func beyondLease() Rule {
	const code = "container-beyond-lease"
	return Rule{
		Page: check.Page{
			Code:  code,
			Title: "gpuard refuses a container that could open more than its lease",
			Text: "`gpuard docker` and `gpuard podman` give a container the GPUs of a lease. `--privileged`, a mounted `/dev`, a rule for NVIDIA's devices and whatever else leads to other GPUs would open those as well, so gpuard does not start such a container. " +
				"Nor does it start what lives on when the command ends, as `kube play` and `stack deploy` do.\n\n" +
				"Leave the option out. A container that needs other devices of the machine gets each by `--device`. One that has to be privileged starts without gpuard, and with no GPU that anybody leases.",
			From: []string{"https://docs.docker.com/reference/cli/docker/container/run/#privileged"},
		},
		Severity: check.Error,
		Bad: []Example{
			{"run.sh", "#!/bin/bash\ngpuard docker --gpus 1 -- run --privileged image python train.py\n"},
			{"paths.sh", "#!/bin/bash\ngpuard docker -- run --mount Source=/proc,type=bind,dst=/host image\ngpuard podman -- kube play pod.yaml\n"},
			{"node.sh", "#!/bin/bash\ngpuard run -- podman run --rm -v /dev:/dev image\n"},
		},
		Good: []Example{
			{"run.sh", "#!/bin/bash\ngpuard docker --gpus 1 -- run --rm --gpus all image python train.py\ngpuard podman -- run --device /dev/snd -v ../data:/data image\ngpuard docker -- pull image\n"},
			{"plain.sh", "#!/bin/bash\ndocker run --privileged image\ngpuard run -- python train.py --privileged\n"},
		},
		Look: func(f File) []Finding {
			var all []Finding
			for _, s := range f.Steps {
				if s.Do != Command {
					continue
				}
				line := leasedLine(started(s))
				if len(line) == 0 || slices.ContainsFunc(line, func(w Word) bool { return !w.Known }) {
					continue
				}
				var argv []string
				for _, w := range line {
					argv = append(argv, w.Text)
				}
				call, err := enginecli.Read(argv)
				if err == nil {
					err = call.Check()
				}
				if err != nil {
					all = append(all, Finding{Finding: check.Finding{Code: code, Severity: check.Error, Seen: "gpuard does not start this container",
						Why: err.Error(), Do: "leave it out, or start the container without gpuard"}, At: line[0].At})
				}
			}
			return all
		},
	}
}

// leasedLine is the command line of a container engine that gpuard docker, gpuard podman or gpuard run is given.
func leasedLine(p program) []Word {
	end := slices.IndexFunc(p.args, func(w Word) bool { return w.Text == "--" })
	if p.name != "gpuard" || end < 1 {
		return nil
	}
	line := p.args[end+1:]
	if sub := p.args[0]; enginecli.Engine(sub.Text) != "" {
		line = append([]Word{sub}, line...)
	}
	if len(line) < 2 || enginecli.Engine(line[0].Text) == "" {
		return nil
	}
	return line
}
