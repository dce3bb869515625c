package jobflags

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gpuard/internal/core/job"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/cmdtable"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
)

// WaitFlags are the flags of commands that lease: whether to wait for a device, how long, and what to do instead.
type WaitFlags struct{ asked job.Waiting }

// Add adds them.
func (w *WaitFlags) Add(cmd *cobra.Command) {
	flagset.AddOption(cmd, "wait", w.setLimit)
	flagset.AddOption(cmd, "no-wait", &w.asked.No)
	w.AddFallback(cmd)
}

// AddFallback adds --fallback alone.
func (w *WaitFlags) AddFallback(cmd *cobra.Command) {
	flagset.AddOption(cmd, "fallback", &w.asked.Fallback)
}

func (w *WaitFlags) setLimit(text string) (err error) {
	w.asked.Limit = 0
	if text == cli.Forever {
		return nil
	}
	if d, zero := time.ParseDuration(text); zero == nil && d == 0 {
		return fmt.Errorf("cannot wait for --wait=%s: the time is zero; write --no-wait for an immediate answer", text)
	}
	w.asked.Limit, err = flagset.ReadDuration("wait", text)

	return err
}

// Parse checks the flags and returns their meaning.
func (w *WaitFlags) Parse(p *cli.Program, cmd *cobra.Command) (waiting job.Waiting, err error) {
	err = w.checkFlags(p, cmd)
	if err != nil {
		return waiting, failure.AsUsage(err)
	}

	return w.asked, nil
}

func (w *WaitFlags) checkFlags(p *cli.Program, cmd *cobra.Command) error {
	if flagset.IsSet(cmd, "wait") && flagset.IsSet(cmd, "dry-run") && cmd.Flags().Lookup("remove") == nil {
		// The --dry-run of a setup is about the files to write.
		return errors.New("cannot use --wait with --dry-run: a dry run does not wait; leave one of them out")
	}

	return cmp.Or(flagset.RefuseOptions(cmd), w.checkFallback(cmd), checkWaitWord(p, cmd))
}

// checkWaitWord finds a word after --wait that was meant as its time but that the parser took for the command.
func checkWaitWord(p *cli.Program, cmd *cobra.Command) error {
	word := cmd.Flags().Arg(0)
	i := slices.Index(p.Args, "--wait")
	if cmdtable.KindOf(cmd) != cmdtable.KindBecome || word == "" || i < 0 || i+1 == len(p.Args) || p.Args[i+1] != word {
		return nil
	}
	if cmd.Flags().Arg(1) != "--" && strings.Trim(word[:1], "0123456789") != "" {
		return nil
	}

	_, err := flagset.ReadDuration("wait", word)
	if err != nil {
		return fmt.Errorf("%w; to run a command of that name: --wait -- %s", err, word)
	}

	return nil
}

// checkFallback refuses a list with a step that would never be tried, and one that conflicts with another flag.
func (w *WaitFlags) checkFallback(cmd *cobra.Command) error {
	last := len(w.asked.Fallback) - 1
	for i, word := range w.asked.Fallback {
		switch {
		case !slices.Contains([]string{"other", "cpu", "wait"}, word):
			return fmt.Errorf("cannot read --fallback %q: write a list of other, cpu and wait, such as --fallback other,cpu", word)
		case slices.Contains(w.asked.Fallback[:i], word):
			return fmt.Errorf("cannot use --fallback %s: %s is named twice", strings.Join(w.asked.Fallback, ","), word)
		case word != "other" && i < last:
			return fmt.Errorf("cannot use --fallback %s: nothing is tried after %s; write it last", strings.Join(w.asked.Fallback, ","), word)
		case word == "cpu" && cmd.Name() == "reserve" && !flagset.IsSet(cmd, "shell"):
			return errors.New("cannot use --fallback cpu with reserve: there is no GPU to lease; leave cpu out")
		case word == "wait" && w.asked.No:
			return fmt.Errorf("cannot use --no-wait with --fallback %s: they contradict each other; leave one of them out", strings.Join(w.asked.Fallback, ","))
		}
	}
	if last >= 0 && w.asked.Fallback[last] != "wait" && cmd.Flags().Changed("wait") {
		return fmt.Errorf("cannot use --wait with --fallback %s: that is tried in place of waiting; leave one of them out, or write --fallback other,wait", strings.Join(w.asked.Fallback, ","))
	}

	return nil
}
