package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpuard/internal/core/suggest"
)

// unknownCommand returns an error for a word that is not a command, with the nearest command or what to type instead.
func unknownCommand(cmd *cobra.Command, args []string) error {
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
	case "tickets", "batch", "sbatch", "enqueue", "add":
		return "to hand in a job: gpuard submit -- COMMAND; who waits for what: gpuard queue"
	case "watch":
		return "write gpuard status --watch"
	case "exec", "start", "launch":
		return "write gpuard run -- COMMAND; the services of a gpuard.yaml: gpuard up"
	case "free", "kill", "stop", "unlock":
		return "a lease ends with its command; if a child process still holds it: gpuard release LEASE; the services of a gpuard.yaml: gpuard down"
	}
	return ""
}

// noArguments refuses arguments of a command that takes only flags.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("cannot use %q: %s takes no arguments", args[0], cmd.CommandPath())
}

// oneArgument accepts one name or none. It refuses an empty name: an empty shell variable must not silently mean no
// name.
func oneArgument(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) > 1:
		return fmt.Errorf("cannot use %q: %s takes one name, which is %q here; put a name with spaces in quotes", args[1], cmd.CommandPath(), args[0])
	case len(args) == 1 && args[0] == "":
		return fmt.Errorf("cannot use \"\": the name after %s is empty; write one, or leave it out", cmd.CommandPath())
	}
	return nil
}

// flagError rewrites an error of the flag parser in gpuard's wording.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var alone *pflag.ValueRequiredError
	var wrong *pflag.InvalidValueError
	if cmd.HasSubCommands() && cmd.Flags().NArg() > 0 { // the command before the flag may be misspelt
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
	letters := []struct{ letter, name string }{{"n", "gpus"}, {"g", "gpus"}, {"d", "device"}, {"i", "device"}, {"x", "exclude"}, {"w", "watch"}, {"j", "json"}}
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
	if name == "why" && cmd.Name() == "lint" {
		return errors.New(what + "; doctor explains the codes of both: gpuard doctor --why CODE")
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	if meant := suggest.Word(name, known); meant != "" {
		return fmt.Errorf("%s; did you mean --%s?", what, meant)
	}
	for _, c := range cmd.Commands() {
		if cmd.HasParent() && c.Flags().Lookup(name) != nil {
			return fmt.Errorf("%s; it belongs after a command: %s --%s", what, c.CommandPath(), name)
		}
	}
	if takesCommand(cmd) {
		return fmt.Errorf("%s; flags of your command go after it: %s -- COMMAND --%s", what, cmd.CommandPath(), name)
	}
	return errors.New(what + seeHelp(cmd))
}

// exampleOf is an example of a flag of a command: --for takes a time in verify, and an environment in doctor.
func exampleOf(cmd *cobra.Command, name string) string {
	if name == "for" && cmd.Name() == "doctor" {
		return "--for .venv"
	}
	return example(name)
}

// example is an example of a flag that takes a value.
func example(name string) string {
	examples := map[string]string{
		"gpus": "--gpus 1", "device": "--device 0", "exclude": "--exclude 0", "mig": "--mig 1g.10gb", "kernel": "--kernel python3", "name": "--name 'big GPU'", "mem": "--mem 20G", "share": "--share 8G", "quota": "--quota mps", "require-quota": "--require-quota watch", "mps-threads": "--mps-threads 50",
		"model": "--model '*A100*'", "min-compute": "--min-compute 8.0", "place": "--place spread or --place packed",
		"ids": "--ids auto, --ids uuid or --ids index", "format": "--format sh, fish, dotenv or json", "machine": "--machine demo",
		"for": "--for 30s", "wait": "--wait 10m", "fallback": "--fallback other,cpu", "drift": "--drift=hot,sick", "timeout": "--timeout 2h",
		"retry": "--retry 2", "log": "--log run.log", "log-limit": "--log-limit 10M", "time": "--time 12h", "grace": "--grace 30s", "why": "--why xid-errors", "stop-signal": "--stop-signal USR1",
		"ranks": "--ranks=all or --ranks=own", "save": "--save work", "restore": "--restore work", "keep-while": "--keep-while session.json", "remove": "--remove 'direnv /home/ann/train'", "nproc": "--nproc 4",
		"over": "--over seed=1..5", "csv": "--csv runs.csv", "commands": "--commands runs.txt", "resume": "--resume gpuard-sweep-1",
		"nice": "--nice 10", "after": "--after 17", "array": "--array 1-20%4", "note": "--note 'paper figures'", "notify": "--notify ./tell-me", "env": "--env HF_HOME", "workdir": "--workdir /data/run",
		"engine": "--engine slurm", "file": "--file gpuard.yaml", "image": "--image registry.example.org/train:1", "namespace": "--namespace team", "queue": "--queue gpu",
		"since": "--since 30d", "by": "--by user", "chart": "--chart use.svg", "tail": "--tail 100", "idle": "--idle 2h", "every": "--every 10", "listen": "--listen 127.0.0.1:8470",
		"arms": "--arms alone,together,apart", "repeat": "--repeat 5", "warmup": "--warmup 1", "metric": "--metric 'loss=loss ([0-9.]+)'",
		"dir": "--dir sweep", "jobs": "--jobs 4", "jobs-per-gpu": "--jobs-per-gpu 2",
	}
	if e := examples[name]; e != "" {
		return e
	}
	return "--" + name + " VALUE"
}

// conflict is two flags that cannot be given together, and the reason.
type conflict struct{ one, other, why string }

// refuseTogether returns an error if both flags of a conflict are given.
func refuseTogether(cmd *cobra.Command, conflicts []conflict) error {
	set := func(name string) bool {
		f := cmd.Flags().Lookup(name)
		return f != nil && f.Changed && f.Value.String() != "false"
	}
	i := slices.IndexFunc(conflicts, func(c conflict) bool { return set(c.one) && set(c.other) })
	if i < 0 {
		return nil
	}
	c := conflicts[i]
	return fmt.Errorf("cannot use --%s with --%s: %s; leave one of them out", c.one, c.other, c.why)
}

// refuseEmpty returns an error if a flag was given an empty value: an empty shell variable must not silently ask for
// less. It also refuses "--", which the parser takes for a value.
func refuseEmpty(cmd *cobra.Command, names ...string) error {
	for _, name := range names {
		f := cmd.Flags().Lookup(name)
		if f == nil || !f.Changed {
			continue
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		if len(values) == 0 {
			values = []string{""}
		}
		if slices.Contains(values, "--") {
			return fmt.Errorf("cannot read --%s: it needs a value in front of --, such as %s", name, exampleOf(cmd, name))
		}
		if slices.ContainsFunc(values, func(v string) bool { return strings.TrimSpace(v) == "" }) {
			if len(values) > 1 {
				return fmt.Errorf("cannot read --%s: there is an empty name in the list; write it like %s,1", name, example(name))
			}
			return fmt.Errorf("cannot read --%s: its value is empty; write for instance %s, or leave it out", name, example(name))
		}
	}
	return nil
}
