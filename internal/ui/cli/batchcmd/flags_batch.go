package batchcmd

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/core/batchlog"
	"gpuard/internal/core/handoff"
	"gpuard/internal/core/job"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/flagset"
	"gpuard/internal/ui/jobflags"
)

// batchFlags are the flags of a job that is handed in, beside those that choose devices.
type batchFlags struct {
	name, note, after, array string
	nice                     int
	hold                     bool
	care                     jobflags.CareFlags
	wait                     jobflags.WaitFlags // only --fallback
}

func (b *batchFlags) addBatchFlags(cmd *cobra.Command) {
	b.care.Add(cmd)
	b.wait.AddFallback(cmd)
	flagset.AddOption(cmd, "name", &b.name)
	flagset.AddOption(cmd, "note", &b.note)
	flagset.AddOption(cmd, "after", &b.after)
	flagset.AddOption(cmd, "array", &b.array)
	flagset.AddOption(cmd, "nice", &b.nice)
	flagset.AddOption(cmd, "hold", &b.hold)
	cmd.Flags().Lookup("log").Usage = "its output goes into this file (default: one in the folder of the queue)"
}

// careOf reads the flags that say how the job is looked after.
func (b *batchFlags) careOf(cmd *cobra.Command, spec *job.Spec) (*job.Care, error) {
	care, err := b.care.ReadFlags(cmd, spec)
	if err != nil {
		return care, err
	}
	err = b.care.ReadRanks(cmd, spec, false)

	return care, err
}

// parseAfter reads "17,18:any".
func parseAfter(text string) (list []batchlog.After, err error) {
	if text == "" {
		return nil, nil
	}
	for word := range strings.SplitSeq(text, ",") {
		which, how, given := strings.Cut(word, ":")
		some, nerr := parseNumbers(which, mostTasks)
		if nerr != nil || some[0] < 1 || len(some) > mostTasks || given && how != "any" && how != "ok" {
			return nil, fmt.Errorf("cannot read --after %q: write the numbers of jobs, such as --after 17, --after 17:any,18 or --after 20-39", text)
		}

		for _, n := range some {
			list = append(list, batchlog.After{Run: n - 1, Any: how == "any"})
		}
	}
	return list, nil
}

// readWork is the job that the flags describe, for another engine: nothing of this machine is looked at, and its
// defaults and rules do not count there.
func readWork(p *cli.Program, cmd *cobra.Command, s *jobflags.SpecFlags, b *batchFlags, args []string) (w handoff.Work, err error) {
	w.Spec, err = s.Spec(cmd, args)
	if err == nil && s.HasAll() {
		err = fmt.Errorf("cannot use --gpus all for another engine: it means the GPUs of this machine; write a number")
	}

	if err != nil {
		return w, err
	}

	w.Spec.Name, w.Spec.Nice = b.name, b.nice
	w.Note, w.Held, w.Private, w.Verify = b.note, b.hold, p.Host.PrivateState, b.care.Verify
	care, err := b.careOf(cmd, &w.Spec)
	if err != nil {
		return w, err
	}

	w.Spec.Waiting, err = b.wait.Parse(p, cmd)
	if err != nil {
		return w, err
	}

	w.Care = *care
	if w.Care.Log != "" {
		w.Care.Log, err = filepath.Abs(w.Care.Log)
		if err != nil {
			return w, err
		}
	}

	dropDefaults(cmd, &w.Spec, &w.Care)

	return w, b.readOthers(&w)
}

// readOthers reads the flags that name other jobs.
func (b *batchFlags) readOthers(w *handoff.Work) (err error) {
	w.Array.Tasks, w.Array.Most, err = arrayTasks(b.array, b.care.Log())
	if err != nil {
		return err
	}

	list, err := parseAfter(b.after)
	for _, a := range list {
		w.After = append(w.After, handoff.After{ID: strconv.Itoa(a.Run + 1), Any: a.Any})
	}

	return err
}

// thisFolder is the folder in which a job starts that nothing says otherwise of.
func thisFolder() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("cannot hand in a job: the folder that this is called in is gone: %w", err)
	}
	return dir, nil
}

// dropDefaults drops what only flags with a default say.
func dropDefaults(cmd *cobra.Command, spec *job.Spec, care *job.Care) {
	set := func(name string) bool { return cmd.Flags().Changed(name) }
	if !set("grace") {
		spec.Grace = 0
		if spec.Ranks != nil {
			spec.Ranks.Grace = 0
		}
	}
	if !set("stop-signal") {
		care.Stop = ""
	}
	if !set("log-limit") {
		care.LogLimit = 0
	}
}

// keptCare returns care with a log limit only if --log-limit was given.
func keptCare(cmd *cobra.Command, care *job.Care) *job.Care {
	if !cmd.Flags().Changed("log-limit") {
		care.LogLimit = 0
	}
	return care
}

// isKept reports whether a job of a queue or a sweep needs a process of gpuard beside it.
func isKept(cmd *cobra.Command) bool {
	return slices.ContainsFunc([]string{"timeout", "drift", "log-limit", "stop-signal", "grace", "verify", "torchrun", "ranks"}, cmd.Flags().Changed)
}
