package slurmout

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/core/handoff"
	"gpuard/internal/core/pick"
	"gpuard/internal/core/shellquote"
)

// ScriptOptions is what the #SBATCH lines of a script ask for.
type ScriptOptions struct {
	// Those of gpuard submit that mean the same on one machine: "--gpus=2".
	Flags []string
	// The type of the GPUs as Slurm calls it: "a100"; Flags have it as a model. "" for any.
	Type string
	// Those about the cluster, which Slurm alone can follow, with their long names: "--partition=gpu".
	Cluster []string
	// Options that have no effect wherever the job goes, as they are written: "--wait".
	Without []string
}

// ReadScript reads the options in the #SBATCH lines of a script. They stand above its first command
// (https://slurm.schedmd.com/sbatch.html, "Description"). Of an option that is there twice the last counts. The error
// names the line.
func ReadScript(text string) (a ScriptOptions, err error) {
	asked := &request{flags: map[string]string{}}
	number := 0
	for line := range strings.Lines(text) {
		number++
		if trimmed := strings.TrimSpace(line); trimmed != "" && trimmed[0] != '#' {
			break
		}

		rest, ours := strings.CutPrefix(line, "#SBATCH")
		if !ours || rest == "" || rest[0] != ' ' && rest[0] != '\t' {
			continue
		}

		words, err := shellquote.SplitBeforeComment(strings.TrimSpace(rest))
		if err != nil {
			return a, fmt.Errorf("line %d: %w", number, err)
		}

		for len(words) > 0 {
			written := words[0]
			name, value, given := splitOption(written)
			words = words[1:]
			if !given && len(words) > 0 && !strings.HasPrefix(words[0], "-") {
				value, written, words = words[0], written+" "+words[0], words[1:]
			}

			if strings.HasPrefix(written, "--") {
				whole, meant, known := wholeName(name)
				if !known && meant != "" {
					written += " (not one of sbatch itself; did you mean --" + meant + "?)"
				}
				name = whole
			}

			if err := asked.readOption(name, value, written); err != nil {
				return a, fmt.Errorf("line %d: cannot read %s: %w", number, written, err)
			}
		}
	}

	a.Type, a.Cluster, a.Without = asked.kind, asked.cluster, asked.without
	asked.makeFlags(&a)

	return a, nil
}

// request is what the options have said so far.
type request struct {
	flags map[string]string
	// The GPUs of the job, or of each task.
	gpus      int
	isPerTask bool // gpus
	kind      string
	// Gpus were asked for.
	isCounted bool
	tasks     int
	// Cores of each task; 0 is not said.
	cores   int
	cluster []string
	without []string
}

// makeFlags makes the flags.
func (r *request) makeFlags(a *ScriptOptions) {
	if r.isCounted && r.isPerTask {
		r.gpus *= max(1, r.tasks)
	}
	switch {
	case r.isCounted && r.gpus == 0:
		a.Flags = append(a.Flags, "--cpu")
		delete(r.flags, "model")
	case r.isCounted:
		a.Flags = append(a.Flags, "--gpus="+strconv.Itoa(r.gpus))
	}
	for _, name := range []string{"model", "array", "timeout", "name"} {
		if value, set := r.flags[name]; set {
			a.Flags = append(a.Flags, "--"+name+"="+value)
		}
	}
	if r.flags["hold"] != "" {
		a.Flags = append(a.Flags, "--hold")
	}
	if r.cores > 0 || r.tasks > 1 {
		// The job is one task there, with the cores of all.
		a.Cluster = append(a.Cluster, "--cpus-per-task="+strconv.Itoa(max(1, r.cores)*max(1, r.tasks)))
	}
}

// splitOption splits a word into the long name of an option and its value.
func splitOption(word string) (name, value string, given bool) {
	if long, isLong := strings.CutPrefix(word, "--"); isLong {
		return strings.Cut(long, "=")
	}

	long := map[string]string{"-G": "gpus", "-N": "nodes", "-a": "array", "-t": "time", "-J": "job-name", "-n": "ntasks", "-d": "dependency", "-b": "begin", "-H": "hold",
		"-A": "account", "-C": "constraint", "-L": "licenses", "-c": "cpus-per-task", "-o": "output", "-p": "partition", "-q": "qos", "-w": "nodelist", "-x": "exclude"}
	if len(word) < 2 {
		return word, "", true
	}

	name = long[word[:2]]
	if name == "" {
		return word, "", false
	}

	return name, strings.TrimPrefix(word[2:], "="), len(word) > 2
}

// readOption adds what one option means here. What holds a job back and has no counterpart is refused: without it the job would
// start at once.
func (r *request) readOption(name, value, written string) (err error) {
	switch name {
	case "gpus", "gpus-per-node", "gpus-per-task", "gres":
		return r.readGPUOption(name, value, written)
	case "array":
		r.flags["array"], err = readArray(value)
	case "time":
		limit, err := ParseLimit(value)
		if err != nil {
			return err
		}
		delete(r.flags, "timeout")
		r.cluster = slices.DeleteFunc(r.cluster, func(option string) bool { return option == unlimited })
		if limit > 0 {
			r.flags["timeout"] = pick.DurationText(limit)
		} else {
			// Else the partition's own limit counts there.
			r.cluster = append(r.cluster, unlimited)
		}
	case "job-name":
		if value == "" {
			return errors.New("its value is empty; write a name, or leave it out")
		}
		r.flags["name"] = value
	case "hold":
		r.flags["hold"] = "yes"
	case "nodes":
		if least, _, _ := strings.Cut(value, "-"); least != "1" {
			return errors.New("a job of gpuard is on one machine; ask for one node, or give the script to sbatch itself")
		}
	case "dependency", "begin":
		return errors.New("gpuard knows other jobs only by its own numbers, and no time of day; write gpuard submit --after N, or --hold")
	case "cpus-per-task":
		r.cores, err = strconv.Atoi(value)
		if err != nil || r.cores < 1 {
			return errors.New("write a number, such as 8")
		}
	case "ntasks", "ntasks-per-node":
		r.tasks, err = strconv.Atoi(value)
		if err != nil || r.tasks < 1 {
			return errors.New("write a number, such as 4")
		}
		if r.tasks > 1 {
			r.without = append(r.without, written+" (the job is one task)")
		}
	default:
		r.readClusterOption(name, value, written)
	}
	return err
}

// unlimited is the time of a job without a limit.
const unlimited = "--time=UNLIMITED"

// readGPUOption adds the GPUs, and what else an option --gres asks for.
func (r *request) readGPUOption(name, value, written string) error {
	count, model, found, err := readGPUs(name, value)
	if err != nil {
		return err
	}

	if rest := withoutGPUs(value); name == "gres" && rest != "" {
		if found {
			written = "--gres=" + rest
		}
		r.readClusterOption(name, rest, written)
	}
	if !found {
		return nil
	}

	r.gpus, r.kind, r.isCounted, r.isPerTask = count, model, true, name == "gpus-per-task"
	delete(r.flags, "model")
	if model != "" {
		r.flags["model"] = "*" + strings.ReplaceAll(model, "_", "*") + "*"
	}

	return nil
}

// readClusterOption adds an option that has no counterpart here. Those of the list say what of a cluster the job needs and
// who pays for it; the others would change how the job is handed in, or what gpuard itself says of it.
func (r *request) readClusterOption(name, value, written string) {
	known := []string{"account", "constraint", "cpus-per-gpu", "exclude", "exclusive", "gres", "licenses", "mail-type", "mail-user", "mem", "mem-per-cpu",
		"mem-per-gpu", "nodelist", "open-mode", "output", "partition", "qos", "reservation", "signal", "threads-per-core", "tmp"}

	// Alone it gives the job every GPU of its nodes, however many were asked for.
	alone := name == "exclusive" && value != "user" && value != "mcs"
	option := "--" + name + "=" + value
	if name == "requeue" && value == "" {
		option = handoff.Requeue
	}

	if option == handoff.Requeue || slices.Contains(known, name) && !alone && handoff.IsDirective(option) {
		r.cluster = append(r.cluster, option)
		return
	}

	r.without = append(r.without, written)
}

// readGPUs reads "2", "a100:2" and, of gres, "gpu", "gpu:2", "gpu:a100:2", also among others: "gpu:2,nvme:100G". found says that
// there are GPUs among them.
func readGPUs(option, value string) (count int, model string, found bool, err error) {
	for item := range strings.SplitSeq(value, ",") {
		parts := strings.Split(item, ":")
		if option == "gres" {
			if parts[0] != "gpu" {
				continue
			}
			parts = parts[1:]
		}

		one := 1
		if n := len(parts); n > 0 {
			if number, err := strconv.Atoi(parts[n-1]); err == nil {
				one, parts = number, parts[:n-1]
			}
		}

		switch {
		case len(parts) > 1 || one < 0 || item == "":
			return 0, "", false, errors.New("write a number of GPUs, such as 2 or a100:2")
		case found:
			return 0, "", false, errors.New("a job of gpuard has GPUs of one type; write one")
		case len(parts) == 1:
			model = parts[0]
		}

		count, found = one, true
	}
	return count, model, found, nil
}

// withoutGPUs is a list of gres without its GPUs.
func withoutGPUs(gres string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(gres, ","), func(item string) bool { return item == "gpu" || strings.HasPrefix(item, "gpu:") }), ",")
}

// readArray is --array as gpuard has it: without steps such as 0-15:4.
func readArray(text string) (string, error) {
	list, limit, limited := strings.Cut(text, "%")
	var words []string

	for word := range strings.SplitSeq(list, ",") {
		span, step, stepped := strings.Cut(word, ":")
		if !stepped {
			words = append(words, word)
			continue
		}

		from, to, _ := strings.Cut(span, "-")
		first, err := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		by, err3 := strconv.Atoi(step)
		if err := errors.Join(err, err2, err3); err != nil || by < 1 || last < first || last-first > 100_000 {
			return "", errors.New("write numbers, such as 0-3, 1,5,9 or 0-15:4")
		}

		for n := first; n <= last; n += by {
			words = append(words, strconv.Itoa(n))
		}
	}

	text = strings.Join(words, ",")
	if limited {
		text += "%" + limit
	}

	return text, nil
}

// ParseLimit reads a time limit: "minutes", "minutes:seconds", "hours:minutes:seconds", "days-hours", "days-hours:minutes" or
// "days-hours:minutes:seconds". 0: without a limit (UNLIMITED, INFINITE).
func ParseLimit(text string) (time.Duration, error) {
	if slices.Contains([]string{"UNLIMITED", "INFINITE", "0"}, strings.ToUpper(text)) {
		return 0, nil
	}

	wrong := errors.New("write a time, such as 90 (minutes), 12:00:00 or 1-00:00:00")
	rest, days := text, 0
	units := []time.Duration{time.Minute, time.Second}
	if before, after, dayed := strings.Cut(text, "-"); dayed {
		var err error
		days, err = strconv.Atoi(before)
		if err != nil || days < 0 || days > 10_000 {
			return 0, wrong
		}
		rest, units = after, []time.Duration{time.Hour, time.Minute, time.Second}
	}

	parts := strings.Split(rest, ":")
	if len(parts) == 3 {
		units = []time.Duration{time.Hour, time.Minute, time.Second}
	}

	if len(parts) > len(units) {
		return 0, wrong
	}

	sum := time.Duration(days) * 24 * time.Hour
	for i, part := range parts {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 || n > 1_000_000 {
			return 0, wrong
		}
		sum += time.Duration(n) * units[i]
	}

	return sum, nil
}
