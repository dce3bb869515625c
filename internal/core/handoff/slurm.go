package handoff

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/core/policy"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/shellquote"
)

// defaultGrace is the time between the signal and the kill where only the signal was named.
const defaultGrace = 10 * time.Second

// sbatchScript is the work for sbatch. Directives count up to the first line that is neither empty nor a remark, and
// hold only words that need no quotes; everything that its owner wrote is behind them.
//
// --export=NONE keeps the environment of the caller out; it also sets SLURM_EXPORT_ENV=NONE, with which a later srun
// starts without PATH, hence unset (sbatch(1), --export).
func sbatchScript(w *Work, site policy.Slurm) string {
	var b strings.Builder
	b.WriteString("#!/bin/bash\n")

	own := sbatchDirectives(w, site)
	for _, option := range w.Directives {
		if !isSaid(own, option) {
			b.WriteString("#SBATCH " + option + "\n")
		}
	}

	for _, d := range own {
		b.WriteString("#SBATCH --" + d + "\n")
	}

	if w.Note != "" {
		b.WriteString("# note: " + remarkLine(w.Note) + "\n")
	}

	if w.Spec.Time > 0 {
		b.WriteString("# its owner expects it to run for " + w.Spec.Time.String() + "\n")
	}

	b.WriteString("unset SLURM_EXPORT_ENV\n")
	if w.Folder != "" {
		b.WriteString("cd -- " + quoteForBash(w.Folder) + " || exit 125\n")
	}

	if len(w.Array.Tasks) > 0 {
		b.WriteString("export GPUARD_ARRAY_TASK=\"$SLURM_ARRAY_TASK_ID\"\n")
	}

	for _, v := range jobVariables(w) {
		b.WriteString("export " + v.Name + "=" + quoteForBash(v.Value) + "\n")
	}

	b.WriteString("exec -- " + shellquote.JoinQuoted(quoteForBash, startCommand(w)...) + "\n")

	return b.String()
}

func quoteForBash(word string) string { return quoteOneLine(word, shellquote.Sh) }

// repeatsDirective reports whether its owner wrote an option that gpuard writes, too.
func repeatsDirective(w *Work, site policy.Slurm) bool {
	own := sbatchDirectives(w, site)
	return slices.ContainsFunc(w.Directives, func(option string) bool { return isSaid(own, option) })
}

// isSaid reports whether the directives have an option already, whatever its value.
func isSaid(directives []string, option string) bool {
	name, _, _ := strings.Cut(strings.TrimPrefix(option, "--"), "=")
	return slices.ContainsFunc(directives, func(d string) bool { return d == name || strings.HasPrefix(d, name+"=") })
}

// sbatchDirectives are the options of sbatch, without their dashes.
func sbatchDirectives(w *Work, site policy.Slurm) []string {
	list := []string{"job-name=" + slurmJobName(jobName(w)), "nodes=1", "ntasks=1"}
	add := func(asked bool, format string, args ...any) {
		if asked {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}

	enough, kind := memoryFeatures(w, site), ""
	switch {
	case w.Type != "":
		kind = w.Type
	case w.Spec.Model != "":
		kind = strings.Join(gresTypes(w, site), "")
	case w.Spec.Memory > 0 && len(enough) == 0:
		kind = findRoomyType(w, site)
	}

	if kind != "" {
		kind += ":"
	}

	add(w.Spec.GPUs > 0, "gpus-per-node=%s%d", kind, w.Spec.GPUs)
	add(w.Spec.MIG != "", "gpus-per-node=%s:1", site.Types[w.Spec.MIG])
	add(w.Spec.Memory > 0 && len(enough) > 0, "constraint=%s", strings.Join(enough, "|"))
	add(w.Queue != "", "partition=%s", w.Queue)
	list = append(list, timeDirectives(w)...)
	add(w.Spec.Nice > 0, "nice=%d", w.Spec.Nice)
	add(w.Care.Retries > 0, "requeue")
	add(w.Care.Retries == 0 && !slices.Contains(w.Directives, Requeue), "no-requeue")
	add(w.Held, "hold")
	add(len(w.Array.Tasks) > 0, "array=%s%s", prose.Ranges(w.Array.Tasks, ","), arrayLimit(w.Array.Most))
	add(len(w.After) > 0, "dependency=%s", dependencyList(w.After))
	add(len(w.After) > 0, "kill-on-invalid-dep=yes")
	add(w.Care.Log != "", "output=%s", w.Care.Log)

	return append(list, "export=NONE", "comment=gpuard-"+directiveWord(w.ID))
}

// timeDirectives are the time and the signal before it: the command is to get it after --timeout, and to be killed
// after --grace. Slurm counts the limit in minutes.
func timeDirectives(w *Work) []string {
	if w.Spec.Timeout <= 0 {
		return nil
	}

	grace := w.Spec.Grace
	if grace == 0 && w.Care.Stop != "" {
		grace = defaultGrace
	}

	limit := (w.Spec.Timeout + grace + time.Minute - 1).Truncate(time.Minute)
	minutes := int64(limit / time.Minute)
	list := []string{fmt.Sprintf("time=%d-%02d:%02d:00", minutes/(24*60), minutes/60%24, minutes%60)}
	if grace > 0 {
		stop := "TERM"
		if w.Care.Stop != "" {
			stop = strings.TrimPrefix(w.Care.Stop, "SIG")
		}

		// Of Slurm, in seconds.
		const most = 65535
		before := min(most, ceilSeconds(limit-w.Spec.Timeout))
		list = append(list, fmt.Sprintf("signal=B:%s@%d", stop, max(1, before)))
	}

	return list
}

// ceilSeconds rounds up.
func ceilSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

func arrayLimit(n int) string {
	if n == 0 {
		return ""
	}
	return "%" + strconv.Itoa(n)
}

func dependencyList(list []After) string {
	var parts []string
	for _, a := range list {
		kind := "afterok:"
		if a.Any {
			kind = "afterany:"
		}
		parts = append(parts, kind+a.ID)
	}
	return strings.Join(parts, ",")
}
