// Package judge refuses commands that would not use the GPUs that they are given, before anything is leased, started or
// written, by the one table of what programs do with the list of visible devices (core/launchers):
//
//	remarks, err := judge.Command(host, spec, []string{"env", "CUDA_VISIBLE_DEVICES=0", "mtools"}, judge.Place{Typed: "gpuard run"})
//
// It reads words, and starts nothing.
package judge

import (
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/job"
	"gpuard/internal/core/launchers"
	"gpuard/internal/core/lint"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/shellquote"
	"gpuard/internal/text/shell"
)

// Place is where a command stands.
type Place struct {
	// What it was typed behind: "gpuard run …"; "" not typed, or not known.
	Typed string
	// The file that it stands in; "" none, or not known.
	File string
	// Another engine chooses its GPUs, and takes no numbers of this machine.
	Away bool
	// It can open no others there, as in a container.
	Alone bool
	// It is one of several, that are not typed one by one.
	Many bool
}

// Command refuses a command that cannot be kept to the GPUs that it is given: one that starts a container through
// another program, and, unless it is started anyway, one that surely chooses others. The remarks say what may use
// others, or need more of them.
func Command(host *machine.Host, spec job.Spec, command []string, at Place) (remarks []string, err error) {
	rule, err := host.IsolationRule()
	if err != nil {
		return nil, err
	}
	return check(spec, command, host.Env.Lookup, isWalled(spec) || rule != nil, at)
}

// Later is Command for a command that is started later, in an environment that is not known now.
func Later(spec job.Spec, command []string, at Place) (remarks []string, err error) {
	return check(spec, command, nil, at.Alone || isWalled(spec) && !at.Away, at)
}

// isWalled reports whether the kernel surely keeps the job from other GPUs.
func isWalled(spec job.Spec) bool {
	return spec.Isolate.Level() != job.NoIsolation || spec.Isolated.Level() != job.NoIsolation
}

func check(spec job.Spec, command []string, lookup func(string) (string, bool), walled bool, at Place) (remarks []string, err error) {
	if spec.StartsTorchrun() {
		// It is a script.
		return nil, nil
	}

	err = refuseContainer(spec, command)
	if err != nil {
		return nil, err
	}

	gpus := numberOfGPUs(spec)
	for _, d := range append(doubtsInScript(command, gpus), launchers.Doubts(command, gpus, lookup)...) {
		doubtful := true
		if walled {
			d, doubtful = d.Behind(gpus, spec.Devices)
		}

		text := "the command " + d.Seen + "; " + d.Do
		switch {
		case !doubtful:
			continue
		case d.Sure && spec.Anyway:
			text = "the command " + d.Seen + ": what it is given may stay unused"
		case d.Sure && spec.CPU:
			return nil, exit.Usagef("cannot hide the GPUs from this command: it %s; %s", d.Seen, at.commandAdvice(spec, d))
		case d.Sure:
			return nil, exit.Usagef("cannot lease GPUs for this command: it %s; %s", d.Seen, at.commandAdvice(spec, d))
		}

		if !slices.Contains(remarks, text) {
			remarks = append(remarks, text)
		}
	}

	return remarks, nil
}

// commandAdvice is what to type in place of a command that chooses GPUs itself.
func (at Place) commandAdvice(spec job.Spec, d launchers.Doubt) string {
	const anyway = " (or start it so with --anyway)"
	switch {
	case at.File != "":
		return "in " + prose.Clean(at.File) + ": " + d.Do + anyway
	case at.Many:
		return d.Do + anyway
	case at.Typed == "":
		return d.Do + " (or start it so with --anyway, in gpuard.yaml anyway: true)"
	case len(d.Command) == 0:
		return d.Do + anyway
	case at.Away && d.Devices != "":
		d.Devices, d.Count = "", strconv.Itoa(1+strings.Count(d.Devices, ","))
	}

	line := at.Typed
	named := len(spec.Devices) > 0 || spec.CPU
	switch {
	case d.Devices != "" && !named:
		line += " --device " + d.Devices
	case d.Count != "" && d.Count != "1" && !named && spec.GPUs <= 1:
		line += " --gpus " + d.Count
	}

	return "type: " + line + " -- " + shellquote.JoinQuoted(shellquote.Sh, d.Command...) + anyway
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
func doubtsInScript(command []string, gpus int) (sure []launchers.Doubt) {
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
				d.Do, d.Command = d.Do+" of the script", nil
				sure = append(sure, d)
			}
		}
	}

	return sure
}
