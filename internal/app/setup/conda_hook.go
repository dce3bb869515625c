package setup

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/edit"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/shellquote"
	"gpuard/internal/core/visible"
)

// condaHook is the shell code for activation and deactivation of an environment. If it fails, the environment becomes
// active and sees no GPU, instead of all of them, with a message. Where gpuard is gone, the shell hides the GPUs
// itself, and stores the earlier values in variables of its own.
//
// The code works with set -e and set -u, with any IFS and without globbing: nothing is expanded outside of quotes.
type condaHook struct {
	program, id string
	flags       []string
	ask, lease  bool
}

// commandWords are those of the command that chooses, behind the program's name. mode is what they have beside the
// choice.
func (c condaHook) commandWords(fish bool, mode ...string) []string {
	command := []string{"env"}
	switch {
	case c.lease && fish:
		command = []string{"reserve", "--shell=fish"}
	case c.lease:
		command = []string{"reserve", "--shell"}
	case fish:
		mode = append(mode, "--format", "fish")
	}
	return slices.Concat(command, c.flags, mode, []string{"--save", c.id})
}

// choiceCode is the command that chooses: another one where a person can be asked.
func (c condaHook) choiceCode(line func(words ...string) string, fish bool) string {
	var mode []string
	if c.lease {
		mode = []string{"--no-wait"}
	}

	usual, asked := line(c.commandWords(fish, mode...)...), line(c.commandWords(fish, "--ask")...)
	switch {
	case c.ask && fish:
		return "if status is-interactive; " + asked + "; else; " + usual + "; end"
	case c.ask:
		return `case $- in *i*) _gpuard="$(` + asked + `)" ;; *) _gpuard="$(` + usual + `)" ;; esac`
	case fish:
		return usual
	}

	return `_gpuard="$(` + usual + `)"`
}

// retryMessage is what is said where the choice cannot be had.
func (c condaHook) retryMessage(fish bool) string {
	var mode []string
	if c.ask {
		mode = []string{"--ask"}
	}

	line := fmt.Sprintf(`eval "$(gpuard %s)"`, shellquote.JoinQuoted(shellquote.Sh, c.commandWords(false, mode...)...))
	if fish {
		line = fmt.Sprintf(`gpuard %s | source`, shellquote.JoinQuoted(shellquote.Fish, c.commandWords(true, mode...)...))
	}

	return "gpuard: this environment sees NO GPU; to try again: " + line
}

func (c condaHook) lostMessage() string {
	return "gpuard: " + prose.Clean(c.program) + " cannot be used, so this environment sees NO GPU; install gpuard again, or take this away: gpuard setup conda --remove"
}

// hidingVars is what hides every GPU: settings, as NAME=VALUE, and variables that go.
func hidingVars() (set, unset []string) {
	for _, v := range append(visible.TargetVars(nil, job.AutoIDs, gpu.Machine{}), visible.Var{Name: "GPUARD_GPUS"}, visible.Var{Name: "GPUARD_LEASE", Unset: true}) {
		if v.Unset {
			unset = append(unset, v.Name)
		} else {
			set = append(set, v.Name+"="+v.Value)
		}
	}
	return set, unset
}

// hookText is one of the hooks. While gpuard cannot be used, it stores the earlier values in variables whose names
// begin with @WAS@.
func (c condaHook) hookText(name string) string {
	how, format, fish := shellquote.Sh, []string(nil), strings.HasSuffix(name, ".fish")
	if fish {
		how, format = shellquote.Fish, []string{"--format", "fish"}
	}

	line := func(words ...string) string {
		return shellquote.JoinQuoted(how, slices.Concat([]string{c.program}, words)...)
	}

	env := func(flags ...string) string { return line(slices.Concat([]string{"env"}, flags, format)...) }
	set, unset := hidingVars()
	names := strings.Join(unset, " ")
	for _, pair := range set {
		name, _, _ := strings.Cut(pair, "=")
		names += " " + name
	}

	return strings.NewReplacer(
		"@PROGRAM@", how(c.program), "@CHOICE@", c.choiceCode(line, fish), "@NONE@", env("--cpu", "--save", c.id), "@RESTORE@", env("--restore", c.id),
		"@AGAIN@", how(c.retryMessage(fish)), "@LOST@", how(c.lostMessage()), "@WAS@", "GPUARD_WAS_"+edit.TextSum(c.id),
		"@NAMES@", names, "@SET@", shellquote.JoinQuoted(how, set...), "@UNSET@", strings.Join(unset, " "),
	).Replace(shellText(name))
}
