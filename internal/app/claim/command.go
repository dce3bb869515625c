package claim

import (
	"slices"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/job"
	"gpuard/internal/core/launchers"
	"gpuard/internal/core/lint"
	"gpuard/internal/core/shellquote"
	"gpuard/internal/text/shell"
)

// CheckCommand refuses a command that cannot be kept to the GPUs that it is given: one that starts a container through
// another program, and, unless it is started anyway, one that surely chooses others. The remarks say what may use others,
// or need more of them. start is what the command was typed behind, "gpuard run …"; "" where that is not known.
func CheckCommand(host *machine.Host, spec job.Spec, command []string, start string) (remarks []string, err error) {
	if spec.StartsTorchrun() {
		// It is a script.
		return nil, nil
	}

	err = refuseContainer(spec, command)
	if err != nil {
		return nil, err
	}

	gpus := numberOfGPUs(spec)
	for _, d := range append(doubtsInScript(command, gpus), launchers.Doubts(command, gpus, host.Env.Lookup)...) {
		switch {
		case d.Sure && spec.Anyway:
			remarks = append(remarks, "the command "+d.Seen+": what it is given may stay unused")
		case d.Sure && spec.CPU:
			return nil, exit.Usagef("cannot hide the GPUs from this command: it %s; %s", d.Seen, commandAdvice(spec, d, start))
		case d.Sure:
			return nil, exit.Usagef("cannot lease GPUs for this command: it %s; %s", d.Seen, commandAdvice(spec, d, start))
		default:
			remarks = append(remarks, "the command "+d.Seen+"; "+d.Do)
		}
	}

	return remarks, nil
}

// commandAdvice is what to type in place of a command that chooses GPUs itself.
func commandAdvice(spec job.Spec, d launchers.Doubt, start string) string {
	if start == "" {
		return d.Do + " (or start it so with --anyway, in gpuard.yaml anyway: true)"
	}

	line := start
	named := len(spec.Devices) > 0 || spec.CPU
	switch {
	case len(d.Command) == 0:
		return d.Do + " (or start it so with --anyway)"
	case d.Devices != "" && !named:
		line += " --device " + d.Devices
	case d.Count != "" && !named && spec.GPUs <= 1:
		line += " --gpus " + d.Count
	}

	return "type: " + line + " -- " + shellquote.JoinQuoted(shellquote.Sh, d.Command...) + " (or start it so with --anyway)"
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

// doubtsInScript are those about what the text for a shell does whatever happens: sh -c 'CUDA_VISIBLE_DEVICES=0 python
// train.py'. What stands in branches, or is computed, may be right.
func doubtsInScript(command []string, gpus int) []launchers.Doubt {
	started := launchers.FindProgram(command)
	if !launchers.IsShell(started.Name(command)) {
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

	f, err := shell.ReadSteps("", []byte(script.Value.Text))
	if err != nil {
		// The shell will say why.
		return nil
	}

	for _, s := range f.Steps {
		var words []string
		for _, set := range append(slices.Clone(s.With), s) {
			if set.Do == lint.Set && set.Exported && set.Value.Known {
				words = append(words, set.Name+"="+set.Value.Text)
			}
		}

		if len(words) > 0 {
			words = append([]string{"env"}, words...)
		}

		for _, w := range s.Words {
			words = append(words, w.Text)
			if !w.Known {
				words[len(words)-1] = "$"
			}
		}

		if s.Do == lint.Set {
			words = append(words, "true")
		}

		for _, d := range launchers.OwnChoices(words, gpus) {
			if d.Sure && s.In == "" && !s.Maybe {
				return []launchers.Doubt{{Sure: true, Seen: d.Seen, Do: d.Do + " of the script"}}
			}
		}
	}

	return nil
}
