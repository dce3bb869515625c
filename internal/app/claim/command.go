package claim

import (
	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/job"
	"gpuard/internal/core/launchers"
)

// CheckCommand refuses a command that cannot be kept to the GPUs that it is given: one that starts a container through
// another program, and, unless it is started anyway, one that surely chooses others. The remarks say what may use others,
// or need more of them.
func CheckCommand(host *machine.Host, spec job.Spec, command []string) (remarks []string, err error) {
	if spec.StartsTorchrun() {
		return nil, nil // it is a script
	}
	err = refuseContainer(spec, command)
	if err != nil {
		return nil, err
	}
	for _, d := range launchers.Doubts(command, numberOfGPUs(spec), host.Env.Lookup) {
		if d.Sure && spec.Anyway {
			continue
		}
		if d.Sure {
			return nil, exit.Usagef("cannot keep this command to its GPUs: it %s; %s (or start it so with --anyway)", d.Seen, d.Do)
		}
		remarks = append(remarks, "the command "+d.Seen+"; "+d.Do)
	}
	return remarks, nil
}

// numberOfGPUs is how many a request gets; 0 without any.
func numberOfGPUs(spec job.Spec) int {
	switch {
	case spec.CPU:
		return 0
	case len(spec.Devices) > 0:
		return len(spec.Devices)
	}
	return max(spec.GPUs, 1)
}
