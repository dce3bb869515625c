package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gpuard/internal/core/job"
)

// waitFlags are the flags of commands that lease: whether to wait for a device, how long, and what to do instead.
type waitFlags struct {
	wait     string
	noWait   bool
	fallback []string
}

// forever is the value of --wait without a time.
const forever = "forever"

func (w *waitFlags) add(cmd *cobra.Command) {
	addOption(cmd, "wait", &w.wait)
	addOption(cmd, "no-wait", &w.noWait)
	w.addFallback(cmd)
}

func (w *waitFlags) addFallback(cmd *cobra.Command) { addOption(cmd, "fallback", &w.fallback) }

// parse checks the flags and returns their meaning.
func (w *waitFlags) parse(p *Program, cmd *cobra.Command) (waiting job.Waiting, err error) {
	if isSet(cmd, "wait") && isSet(cmd, "dry-run") && cmd.Flags().Lookup("remove") == nil { // that of a setup is about the files to write
		err = errors.New("cannot use --wait with --dry-run: a dry run does not wait; leave one of them out")
	}
	if err == nil {
		err = refuseTogether(cmd, optionConflicts())
	}
	if err == nil {
		err = w.checkFallback(cmd)
	}
	if err == nil {
		err = p.mistakenTime(cmd)
	}
	if err != nil {
		return waiting, asUsage(err)
	}
	waiting = job.Waiting{No: w.noWait, Fallback: w.fallback}
	if w.wait != "" && w.wait != forever {
		if d, zero := time.ParseDuration(w.wait); zero == nil && d == 0 {
			return waiting, usagef("cannot wait for --wait=%s: the time is zero; write --no-wait for an immediate answer", w.wait)
		}
		if waiting.Limit, err = duration("wait", w.wait); err != nil {
			return waiting, asUsage(err)
		}
	}
	return waiting, nil
}

// mistakenTime finds a word after --wait that was meant as its time but that the parser took for the command.
func (p *Program) mistakenTime(cmd *cobra.Command) error {
	word := cmd.Flags().Arg(0)
	i := slices.Index(p.Args, "--wait")
	if kindOf(cmd) != kindBecome || word == "" || i < 0 || i+1 == len(p.Args) || p.Args[i+1] != word {
		return nil
	}
	if cmd.Flags().Arg(1) != "--" && strings.Trim(word[:1], "0123456789") != "" {
		return nil
	}
	_, err := duration("wait", word)
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w; to run a command of that name: --wait -- %s", err, word)
}

// checkFallback refuses a list whose end is never reached, and a list that conflicts with another flag.
func (w *waitFlags) checkFallback(cmd *cobra.Command) error {
	last := len(w.fallback) - 1
	for i, word := range w.fallback {
		switch {
		case !slices.Contains([]string{"other", "cpu", "wait"}, word):
			return fmt.Errorf("cannot read --fallback %q: write a list of other, cpu and wait, such as --fallback other,cpu", word)
		case slices.Contains(w.fallback[:i], word):
			return fmt.Errorf("cannot use --fallback %s: %s is named twice", strings.Join(w.fallback, ","), word)
		case word != "other" && i < last:
			return fmt.Errorf("cannot use --fallback %s: nothing is tried after %s; write it last", strings.Join(w.fallback, ","), word)
		case word == "cpu" && cmd.Name() == "reserve" && !isSet(cmd, "shell"):
			return errors.New("cannot use --fallback cpu with reserve: there is no GPU to lease; leave cpu out")
		case word == "wait" && w.noWait:
			return fmt.Errorf("cannot use --no-wait with --fallback %s: they contradict each other; leave one of them out", strings.Join(w.fallback, ","))
		}
	}
	if last >= 0 && w.fallback[last] != "wait" && cmd.Flags().Changed("wait") {
		return fmt.Errorf("cannot use --wait with --fallback %s: that is tried in place of waiting; leave one of them out, or write --fallback other,wait", strings.Join(w.fallback, ","))
	}
	return nil
}

// joinWait rewrites "--wait 10m" as "--wait=10m". The time is optional, so the parser does not read one after a space.
// The words of the command that run starts are not changed.
func joinWait(root *cobra.Command, args []string) []string {
	if !slices.Contains(args, "--wait") {
		return args
	}
	cmd, _, err := root.Find(args)
	if err != nil || cmd.Flags().Lookup("wait") == nil {
		return args
	}
	named := false
	for i := 0; i+1 < len(args); i++ {
		word := args[i]
		name, _, given := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		flag := cmd.Flag(name)
		switch {
		case word == "--":
			return args
		case word == "--wait":
			next := args[i+1]
			negative := len(next) > 1 && next[0] == '-' && next[1] >= '0' && next[1] <= '9' // no flag, but a mistake in a time
			if _, err := duration("wait", next); err == nil || next == forever || negative {
				return slices.Concat(args[:i], []string{word + "=" + args[i+1]}, args[i+2:])
			}
		case !strings.HasPrefix(word, "-") && !named && word == cmd.Name():
			named = true
		case !strings.HasPrefix(word, "-") && kindOf(cmd) == kindBecome:
			return args
		case strings.HasPrefix(word, "--") && flag != nil && flag.NoOptDefVal == "" && !given:
			i++ // its value
		}
	}
	return args
}
