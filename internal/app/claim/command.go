package claim

import (
	"slices"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/job"
	"gpuard/internal/core/launchers"
	"gpuard/internal/core/lint"
	"gpuard/internal/text/shell"
)

// CheckCommand refuses a command that cannot be kept to the GPUs that it is given: one that starts a container through
// another program, and, unless it is started anyway, one that surely chooses others. The remarks say what may use others,
// or need more of them.
func CheckCommand(host *machine.Host, spec job.Spec, command []string) (remarks []string, err error) {
	if spec.StartsTorchrun() {
		return nil, nil // it is a script
	}
	err = refuseContainer(spec, command)
	if err != nil || spec.Anyway {
		return nil, err
	}
	for _, d := range append(listsInScript(command), launchers.Doubts(command, numberOfGPUs(spec), host.Env.Lookup)...) {
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

// listsInScript finds a list of devices that the text for a shell sets whatever happens: sh -c 'CUDA_VISIBLE_DEVICES=0
// python train.py'. What stands in branches, or is computed, may be right.
func listsInScript(command []string) []launchers.Doubt {
	started := launchers.Start(command)
	if !slices.Contains([]string{"sh", "bash", "dash", "ash", "ksh", "zsh"}, started.Name(command)) {
		return nil
	}
	var step lint.Step
	for _, w := range command[started.At:] {
		step.Words = append(step.Words, lint.Word{Text: w, Known: true, Raw: w})
	}
	script, found := lint.ShellText(step)
	if !found {
		return nil
	}
	f, err := shell.Read("", []byte(script.Value.Text))
	if err != nil {
		return nil // the shell will say why
	}
	for _, s := range f.Steps {
		sets := s.With
		if s.Do == lint.Set && s.Exported {
			sets = []lint.Step{s}
		}
		for _, set := range sets {
			if set.Name == "CUDA_VISIBLE_DEVICES" && set.Do == lint.Set && set.Value.Known && set.Value.Text != "" && set.Value.Text != "-1" && s.In == "" && !s.Maybe {
				return []launchers.Doubt{{Sure: true, Seen: "sets " + set.Name + "=" + set.Value.Text + " itself, in place of the GPUs that it is given", Do: "leave it out of the script"}}
			}
		}
	}
	return nil
}
