package flagset

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpuard/internal/core/option"
	"gpuard/internal/core/shellquote"
	"gpuard/internal/core/suggest"
	"gpuard/internal/core/visible"
	"gpuard/internal/ui/cmdtable"
)

// EvalLine is the command line by which a shell leases for itself.
func EvalLine(form string) string {
	if form == "fish" {
		return "gpuard reserve --shell=fish | source"
	}
	return `eval "$(gpuard reserve --shell)"`
}

// UnknownCommand returns an error for a word that is not a command, with the nearest command or what to type instead.
func UnknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if hint := hintFor(args[0]); hint != "" {
		return fmt.Errorf("cannot understand %q: gpuard has no such command; %s", args[0], hint)
	}

	root := cmd.Root()
	root.SuggestionsMinimumDistance = 2
	if alike := root.SuggestionsFor(args[0]); len(alike) > 0 {
		return fmt.Errorf("cannot understand %q: gpuard has no such command; did you mean gpuard %s?", args[0], alike[0])
	}

	return fmt.Errorf("cannot understand %q: gpuard has no such command; to run a program: gpuard run -- %s", args[0], strings.Join(args, " "))
}

// hintFor names the gpuard command for a command name that other programs use.
func hintFor(word string) string {
	switch word {
	case "version":
		return "write gpuard --version"
	case "init", "install":
		return "it needs no set-up; for all users of a machine: sudo gpuard setup machine; for conda, shells and others: gpuard setup --help"
	case "ls", "list", "show", "info":
		return "who is on which GPU: gpuard status"
	case "tickets", "batch", "sbatch", "qsub", "ts", "tsp", "enqueue", "add":
		return "to hand in a job: gpuard submit -- COMMAND; who waits for what: gpuard queue"
	case "watch":
		return "write gpuard status --watch"
	case "exec", "start", "launch", "srun":
		return "write gpuard run -- COMMAND; the services of a gpuard.yaml: gpuard up"
	case "salloc":
		return "write gpuard run for a shell on a GPU, or gpuard reserve --for 8h for a GPU without a command"
	case "hold":
		return "for a process that runs already: gpuard reserve --pid 4242; to hold a job of your queue back: gpuard queue hold 17"
	case "unhold", "requeue", "pause", "resume":
		return "it is about your queue: gpuard queue " + word
	case "squeue", "qstat", "jobs":
		return "write gpuard queue"
	case "scancel", "qdel":
		return "write gpuard cancel 17"
	case "sacct":
		return "write gpuard history"
	case "sinfo", "nvidia-smi", "rocm-smi", "amd-smi", "nvtop", "gpustat":
		return "write gpuard status, or gpuard top for the whole screen"
	case "kill", "stop", "end":
		return "to end a job, a run or a service: gpuard cancel NAME"
	case "free", "unlock":
		return "a lease ends with its command, which gpuard cancel LEASE ends; if a child process still holds it: gpuard release LEASE"
	}
	return ""
}

// RefuseAssignment refuses a command that begins with a variable, as a line that was written for a shell does.
func RefuseAssignment(cmd *cobra.Command, words []string) error {
	line, env, rest := []string{cmd.CommandPath()}, []string{}, words
	if cmd.Flags().NFlag() > 0 {
		// Those that were given.
		line = append(line, "…")
	}

	for len(rest) > 0 && isAssignment(rest[0]) {
		name, value, _ := strings.Cut(rest[0], "=")
		switch {
		case name == "DEV" || name == "CUDA_DEVICE_ORDER" || !slices.Contains(visible.Variables(), name):
			env = append(env, rest[0])
		case slices.Contains([]string{"", "-1", "none", "void", "NoDevFiles"}, value):
			line = append(line, "--cpu")
		default:
			line = append(line, "--device", shellquote.Sh(value))
		}
		rest = rest[1:]
	}

	if len(rest) == len(words) {
		return nil
	}

	if len(env) > 0 {
		rest = slices.Concat([]string{"env"}, env, rest)
	}

	if len(rest) > 0 {
		line = append(line, "--", shellquote.JoinQuoted(shellquote.Sh, rest...))
	}

	return fmt.Errorf("cannot run %q: a variable in front of a command is for a shell, and gpuard writes those that choose GPUs; type: %s", words[0], strings.Join(line, " "))
}

// isAssignment reports whether a shell would take the word for the value of a variable.
func isAssignment(word string) bool {
	name, _, assigned := strings.Cut(word, "=")
	return assigned && name != "" && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == "" && strings.IndexByte("0123456789", name[0]) < 0
}

// NoArguments refuses arguments of a command that takes only flags.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("cannot use %q: %s takes no arguments", args[0], cmd.CommandPath())
}

// OneArgument accepts one name or none. It refuses an empty name: an empty shell variable must not silently mean no
// name.
func OneArgument(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) > 1:
		return fmt.Errorf("cannot use %q: %s takes one name, which is %q here; put a name with spaces in quotes", args[1], cmd.CommandPath(), args[0])
	case len(args) == 1 && args[0] == "":
		return fmt.Errorf("cannot use \"\": the name after %s is empty; write one, or leave it out", cmd.CommandPath())
	}
	return nil
}

// ExplainError rewrites an error of the flag parser in gpuard's wording.
func ExplainError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var alone *pflag.ValueRequiredError
	var wrong *pflag.InvalidValueError
	if cmd.HasSubCommands() && cmd.Flags().NArg() > 0 {
		// The command before the flag may be misspelt.
		if mistake := cmd.ValidateArgs(cmd.Flags().Args()); mistake != nil {
			return mistake
		}
	}

	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		if hint := longFlag(cmd, unknown.GetSpecifiedShortnames()); hint != "" {
			return fmt.Errorf("cannot use -%s: %s has no such flag; did you mean %s?", unknown.GetSpecifiedShortnames(), cmd.CommandPath(), hint)
		}
		return fmt.Errorf("cannot use -%s: %s has no such flag%s", unknown.GetSpecifiedName(), cmd.CommandPath(), seeHelp(cmd))
	case errors.As(err, &unknown):
		return unknownFlag(cmd, unknown.GetSpecifiedName())
	case errors.As(err, &alone):
		return fmt.Errorf("cannot read --%s: it needs a value, such as %s", alone.GetFlag().Name, exampleOf(cmd, alone.GetFlag().Name))
	case errors.As(err, &wrong) && wrong.GetFlag().Value.Type() == "bool":
		return fmt.Errorf("cannot read --%s=%s: the flag takes no value, write --%[1]s alone", wrong.GetFlag().Name, wrong.GetValue())
	case errors.As(err, &wrong):
		return fmt.Errorf("cannot read --%s %q: write for instance %s", wrong.GetFlag().Name, wrong.GetValue(), exampleOf(cmd, wrong.GetFlag().Name))
	}

	return fmt.Errorf("cannot understand the command line: %w%s", err, seeHelp(cmd))
}

// longFlag suggests a long flag for short flags that do not exist: a whole name after one dash, or a letter that other
// programs use for it.
func longFlag(cmd *cobra.Command, short string) string {
	word, value, _ := strings.Cut(short, "=")
	letters := []struct{ letter, name string }{{"n", "gpus"}, {"g", "gpus"}, {"d", "device"}, {"i", "device"}, {"x", "exclude"}, {"w", "watch"}, {"l", "watch"}, {"j", "json"}}
	for _, l := range letters {
		if digits := strings.TrimPrefix(word, l.letter); l.letter == word || digits != word && strings.Trim(digits, "0123456789,") == "" {
			if digits != word && digits != "" {
				value = digits
			}
			word = l.name
			break
		}
	}

	f := cmd.Flags().Lookup(word)
	switch {
	case f == nil:
		return ""
	case value != "":
		return "--" + word + " " + value
	case f.NoOptDefVal != "":
		return "--" + word
	}

	return exampleOf(cmd, word)
}

func seeHelp(cmd *cobra.Command) string { return "; see " + cmd.CommandPath() + " --help" }

func unknownFlag(cmd *cobra.Command, name string) error {
	what := fmt.Sprintf("cannot use --%s: %s has no such flag", name, cmd.CommandPath())
	if name == "gpu" && cmd.Flags().Lookup("gpus") != nil {
		return errors.New(what + "; did you mean --gpus 1 (how many) or --device 0 (which)?")
	}
	if run, _, err := cmd.Root().Find([]string{"run"}); err == nil && cmd == cmd.Root() && run.Flags().Lookup(name) != nil {
		return fmt.Errorf("%s; it is one of gpuard run: gpuard run --%s", what, name)
	}

	switch {
	case name == "why" && cmd.Name() == "lint":
		return errors.New(what + "; doctor explains the codes of both: gpuard doctor --why CODE")
	case name == "time" && cmd.Flags().Lookup("expect") != nil:
		return errors.New(what + "; a limit, which ends it: --timeout 12h; your estimate of how long it takes: --expect 12h")
	case name == "partition" && cmd.Flags().Lookup("queue") != nil:
		return errors.New(what + "; did you mean --queue?")
	case name == "gres" && cmd.Flags().Lookup("gpus") != nil:
		return errors.New(what + "; did you mean --gpus 2?")
	case name == "cpus-per-task" || name == "account":
		return errors.New(what + "; what is Slurm's own is said to sbatch: gpuard export slurm … | sbatch --" + name + "=…")
	case name == "nodes" || name == "nnodes":
		return errors.New(what + "; a job of gpuard is on one machine; how several nodes work together: docs/how-to/distributed.md")
	case slices.Contains([]string{"volume", "mount", "pull-secret", "cpus"}, name) && strings.HasPrefix(cmd.Name(), "kubernetes"):
		return errors.New(what + "; what only your cluster knows is laid over the job by kubectl patch: docs/how-to/kubernetes.md")
	case name == "lease" && cmd.Name() == "env":
		return errors.New(what + "; a lease for this shell, with its variables: " + EvalLine(""))
	}

	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	if meant := suggest.ClosestWord(name, known); meant != "" {
		return fmt.Errorf("%s; did you mean --%s?", what, meant)
	}

	for _, c := range cmd.Commands() {
		if cmd.HasParent() && c.Flags().Lookup(name) != nil {
			return fmt.Errorf("%s; it belongs after a command: %s --%s", what, c.CommandPath(), name)
		}
	}

	if cmdtable.StartsProgram(cmdtable.KindOf(cmd)) {
		return fmt.Errorf("%s; flags of your command go after it: %s -- COMMAND --%s", what, cmd.CommandPath(), name)
	}

	return errors.New(what + seeHelp(cmd))
}

// exampleOf is an example of a flag of a command: --for takes a time in verify, and an environment in doctor.
func exampleOf(cmd *cobra.Command, name string) string {
	switch {
	case name == "for" && cmd.Name() == "doctor":
		return "--for .venv"
	case name == "for" && cmd.Name() == "reserve":
		return "--for 8h"
	}
	return FlagExample(name)
}

// Conflict is two flags that cannot be given together, and the reason.
type Conflict struct{ One, Other, Why string }

// RefuseTogether returns an error if both flags of a conflict are given.
func RefuseTogether(cmd *cobra.Command, conflicts []Conflict) error {
	set := func(name string) bool {
		f := cmd.Flags().Lookup(name)
		return f != nil && f.Changed && f.Value.String() != "false"
	}

	i := slices.IndexFunc(conflicts, func(c Conflict) bool { return set(c.One) && set(c.Other) })
	if i < 0 {
		return nil
	}

	c := conflicts[i]

	return fmt.Errorf("cannot use --%s with --%s: %s; leave one of them out", c.One, c.Other, option.Expand(c.Why))
}

// FlagBeside is the first flag that was given and is none of those that may be; "" none.
func FlagBeside(cmd *cobra.Command, may ...string) (name string) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if name == "" && !slices.Contains(may, f.Name) {
			name = f.Name
		}
	})
	return name
}

// RefuseEmpty returns an error if a flag was given an empty value: an empty shell variable must not silently ask for
// less. It also refuses "--", which the parser takes for a value.
func RefuseEmpty(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		if len(values) == 0 {
			values = []string{""}
		}

		switch isEmpty := func(v string) bool { return strings.TrimSpace(v) == "" }; {
		case err != nil:
		case slices.Contains(values, "--"):
			err = fmt.Errorf("cannot read --%s: it needs a value in front of --, such as %s", f.Name, exampleOf(cmd, f.Name))
		case !slices.ContainsFunc(values, isEmpty):
		case len(values) > 1:
			err = fmt.Errorf("cannot read --%s: there is an empty name in the list; write it like %s,1", f.Name, FlagExample(f.Name))
		default:
			err = fmt.Errorf("cannot read --%s: its value is empty; write for instance %s, or leave it out", f.Name, exampleOf(cmd, f.Name))
		}
	})
	return err
}
