package launchers

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"gpuard/internal/core/option"
)

// Doubt is a way in which a command may use other GPUs than those that it is given.
type Doubt struct {
	// It surely does; otherwise it may, or may fail.
	Sure bool
	// What the command does, without a subject: "sets CUDA_VISIBLE_DEVICES=0 itself".
	Seen string
	Do   string // what to do instead

	// Drops: the list of visible devices is gone; Rewrites: it is another; Ignores: it is not asked; "" anything
	// else.
	Effect Effect
	// The other list, as it is written; with Rewrites.
	List string

	// The command without what is wrong; nil where that is not known.
	Command []string
	// The GPUs that it names by number: "0,1"; "" if none.
	Devices string
	// How many it asks for; "" unknown.
	Count string
}

// Doubts are those about a command that is given so many GPUs, 0 for none: the surest first. lookup is its environment.
// What a text for a shell does is not looked at.
func Doubts(words []string, gpus int, lookup func(name string) (string, bool)) []Doubt {
	s := FindProgram(words)
	if s.At >= len(words) || asksForHelp(words[s.At:]) || leasesItself(words[s.At:]) {
		return nil
	}

	all := OwnChoices(words, gpus)
	if gpus > 0 {
		all = slices.Concat(all, doubtsOfDropping(words, s), doubtsOfCounts(words, ReadCommand(words, s.lookupAfter(words, lookup)), gpus))
	}

	slices.SortStableFunc(all, func(a, b Doubt) int {
		switch {
		case a.Sure == b.Sure:
			return 0
		case a.Sure:
			return -1
		}
		return 1
	})

	return all
}

// OwnChoices are the doubts about what a command itself chooses.
func OwnChoices(words []string, gpus int) []Doubt {
	s := FindProgram(words)
	if s.At >= len(words) || asksForHelp(words[s.At:]) || leasesItself(words[s.At:]) {
		return nil
	}

	all := doubtsOfOwnLists(words, s, gpus)
	if gpus > 0 {
		all = append(all, doubtsOfChoosing(words, ReadCommand(words, nil))...)
	}

	return all
}

// MaskVariables lists the variables that choose devices by number in one process.
func MaskVariables() []string {
	return []string{"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"}
}

func asksForHelp(words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return hasWord("--help -h --version help", w) })
}

// leasesItself reports whether the command starts gpuard, here or elsewhere.
func leasesItself(words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return path.Base(w) == "gpuard" })
}

// assignmentText is NAME=value as a change writes it; "" for one that takes a variable away.
func (c Change) assignmentText(words []string) string {
	if c.Unset {
		return ""
	}
	if !strings.HasPrefix(c.By, "--") {
		return words[c.Word]
	}

	_, value, given := strings.Cut(words[c.Word], "=")
	if !given && c.Word+1 < len(words) {
		return words[c.Word+1]
	}

	return value
}

// lookupAfter is an environment with the changes that a command makes to it.
func (s StartedProgram) lookupAfter(words []string, lookup func(string) (string, bool)) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, c := range slices.Backward(s.Changes) {
			if c.Name == name || c.Name == "*" {
				_, value, _ := strings.Cut(c.assignmentText(words), "=")
				return value, !c.Unset
			}
		}
		if lookup == nil {
			return "", false
		}
		return lookup(name)
	}
}

// doubtsOfOwnLists finds lists that env and the like set in place of the one that is given, or take away.
func doubtsOfOwnLists(words []string, s StartedProgram, gpus int) (all []Doubt) {
	last := map[string]Change{}
	for _, c := range s.Changes {
		if slices.Contains(MaskVariables(), c.Name) {
			last[c.Name] = c
		}
	}
	for _, name := range MaskVariables() {
		c, changed := last[name]
		if !changed {
			continue
		}

		_, value, _ := strings.Cut(c.assignmentText(words), "=")

		// other variables may be those of a vendor that this machine has no GPU of
		d := Doubt{Sure: name == "CUDA_VISIBLE_DEVICES", Do: "leave that out"}
		if c.By == "env" {
			d.Command = WithoutLists(words)
		}

		switch {
		case c.Unset:
			d.Effect = Drops
			d.Seen = "takes " + name + " away, so that the program sees every GPU"
		case strings.ContainsAny(value, "$`"), gpus == 0 && hidesAll(value):
			continue
		case hidesAll(value):
			d = Doubt{Seen: "hides every GPU by " + name, Do: option.Expand("use {cpu} for a program without GPUs, or leave that out")}
		default:
			d.Seen, d.Devices, d.Effect, d.List = "sets "+name+"="+value+" itself", listOf(value), Rewrites, value
		}

		all = append(all, d)
	}

	return all
}

// listOf is a list of numbers as --device takes it: "0,1" of "0, 1", "[0,1]" and "cuda:0"; "" for anything else.
func listOf(value string) string {
	list := strings.NewReplacer(" ", "", "[", "", "]", "").Replace(strings.TrimPrefix(value, "cuda:"))
	if strings.Trim(list, "0123456789,") != "" {
		return ""
	}
	return list
}

func hidesAll(value string) bool { return value == "" || value == "-1" }

// WithoutLists is a command without the lists of devices that env gives its program, and without an env that has
// nothing else to do.
func WithoutLists(words []string) (out []string) {
	gone := WordsOfLists(words)
	for i, w := range words {
		if !slices.Contains(gone, i) {
			out = append(out, w)
		}
	}
	return out
}

// WordsOfLists is the words that WithoutLists leaves out.
func WordsOfLists(words []string) (gone []int) {
	s := FindProgram(words)
	for _, c := range s.Changes {
		if slices.Contains(MaskVariables(), c.Name) && c.By == "env" && !c.Unset {
			gone = append(gone, c.Word)
		}
	}

	if len(gone) == 0 {
		return nil
	}

	for n, at := range s.By {
		idle := path.Base(words[at]) == "env"
		for i := at + 1; i < append(s.By, s.At)[n+1]; i++ {
			idle = idle && slices.Contains(gone, i)
		}
		if idle {
			gone = append(gone, at)
		}
	}

	return gone
}

// doubtsOfDropping finds programs that do not hand the variables on.
func doubtsOfDropping(words []string, s StartedProgram) (all []Doubt) {
	if slices.ContainsFunc(words, func(w string) bool {
		return slices.ContainsFunc(MaskVariables(), func(m string) bool { return strings.Contains(w, m) })
	}) {
		// It hands them on itself, or doubtsOfOwnLists has said so.
		return nil
	}

	kept := slices.ContainsFunc(s.Kept, func(name string) bool { return name == "*" || slices.Contains(MaskVariables(), name) })
	if s.Sudo >= 0 && !kept && Computes(s.Name(words), words[s.At+1:]) {
		all = append(all, Doubt{Seen: "goes through sudo, which drops the variables that choose GPUs unless sudoers keeps them", Do: "write: sudo --preserve-env=CUDA_VISIBLE_DEVICES, or do without sudo"})
	}

	k, at, drops := FindDropper(words)
	if !drops || hasWord(engineNames, path.Base(words[at])) || k.Programs == boxNames && !namesImage(words[at:]) {
		// Commands of containers are judged as such.
		return all
	}

	name := path.Base(words[at])
	if k.Name != "" {
		name += " " + k.Name
	}

	switch k.Programs {
	case "ollama":
		return append(all, Doubt{Seen: "is a client: the GPUs are used by the server that it asks", Do: option.Expand("start the server so: {gpuard run} -- ollama serve")})
	case "ssh", "kubectl oc":
		return append(all, Doubt{Sure: true, Seen: "starts the program elsewhere, by " + name + ", and not on the GPUs of this machine", Do: option.Sprintf("start gpuard there: %s … {gpuard run} -- program", name)})
	case "env":
		return append(all, Doubt{Sure: true, Effect: Drops, Seen: "empties the environment by " + name + ", so that the program sees every GPU", Do: "leave that option out"})
	}

	do := strings.NewReplacer("NAME", "CUDA_VISIBLE_DEVICES", "VALUE", "$CUDA_VISIBLE_DEVICES").Replace(k.Instead)

	return append(all, Doubt{Sure: k.Programs != "su", Seen: "starts the program by " + name + ", which does not hand on which GPUs it is given", Do: option.Sprintf("%s, in a shell: {gpuard run} -- sh -c '…'", do)})
}

// namesImage reports whether a command of apptainer starts a program in an image that is known as one by its name:
// before it stand apptainer's own options.
func namesImage(words []string) bool {
	return len(words) > 1 && hasWord("exec run shell", words[1]) && ownEnd(path.Base(words[0]), words, 1) < len(words)
}

// doubtsOfChoosing finds options that choose among all GPUs of the machine.
func doubtsOfChoosing(words []string, use Use) []Doubt {
	for _, k := range slices.Concat(use.KeysWith(Rewrites), use.KeysWith(Ignores)) {
		if k.Word < 0 || k.Effect == Rewrites && listOf(k.Value) == "" || strings.Contains(k.Value, "$") || k.Programs == "nvidia-smi" {
			// nvidia-smi computes nothing.
			continue
		}

		end := k.Word + 1
		if !strings.Contains(words[k.Word], "=") {
			end = min(end+1, len(words))
		}

		d := Doubt{Sure: true, Seen: "chooses GPUs of the whole machine by " + strings.Join(words[k.Word:end], " "),
			Do: "leave that out", Effect: k.Effect, List: k.Value, Command: slices.Delete(slices.Clone(words), k.Word, end)}

		_, devices, _ := strings.Cut(":"+k.Value, "localhost:")
		switch {
		case k.Effect == Rewrites:
			d.Devices = listOf(k.Value)
		case devices != "":
			d.Devices = listOf(devices)
		case listOf(k.Value) != "":
			d.Count = k.Value
		}

		// other projects have scripts of that name, too
		if strings.HasSuffix(strings.Fields(k.Programs)[0], ".py") {
			d.Sure, d.Seen = false, "may choose"+strings.TrimPrefix(d.Seen, "chooses")
		}

		return []Doubt{d}
	}
	return nil
}

// doubtsOfCounts finds numbers beyond the GPUs that a command is given. Inside they are counted from 0.
func doubtsOfCounts(words []string, use Use, gpus int) (all []Doubt) {
	n, known := use.NeededGPUs()

	// processes of MPI share GPUs, or use none
	if known && n > gpus && !hasWord(mpi, use.Program) && !isOnCPU(words) {
		all = append(all, Doubt{Seen: fmt.Sprintf("needs %d GPUs, and is given %d", n, gpus), Do: option.Sprintf("ask for {gpus=%d}, or start as many as it is given", n)})
	}

	for _, k := range use.KeysWith(Inside) {
		if strings.HasSuffix(strings.Fields(k.Programs)[0], ".py") {
			continue
		}
		list := k.DeviceNumbers()
		i := slices.IndexFunc(list, func(n int) bool { return n >= gpus })
		if i >= 0 {
			all = append(all, Doubt{Seen: fmt.Sprintf("asks by %s for number %d of the %d that it is given", k.Name, list[i], gpus), Do: "count from 0 among those, or leave it out"})
		}
	}

	return all
}

// isOnCPU reports whether a command is told to compute without GPUs.
func isOnCPU(words []string) bool {
	for i, w := range words {
		option, value, given := strings.Cut(w, "=")
		if !given && i+1 < len(words) {
			value = words[i+1]
		}
		if hasWord("--cpu --use_cpu --use-cpu", w) || hasWord("--device --backend --accelerator", option) && hasWord("cpu gloo", value) {
			return true
		}
	}
	return false
}
