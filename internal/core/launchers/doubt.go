package launchers

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Doubt is a way in which a command may use other GPUs than those that it is given.
type Doubt struct {
	Sure bool   // it surely does; otherwise it may, or may fail
	Seen string // what the command does, without a subject: "sets CUDA_VISIBLE_DEVICES=0 itself"
	Do   string // what to type instead
}

// Doubts are those about a command that is given so many GPUs, 0 for none: the surest first. lookup is its environment.
func Doubts(words []string, gpus int, lookup func(name string) (string, bool)) []Doubt {
	all := append(ownLists(words), innerLists(words)...)
	if gpus > 0 {
		all = append(all, lost(words)...)
		use := Read(words, lookup)
		all = append(all, replaced(words, use)...)
		all = append(all, exceeded(use, gpus)...)
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

// Masks lists the variables that choose devices by number in one process.
func Masks() []string {
	return []string{"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"}
}

// ownLists finds lists that env and the like set in place of the one that is given, or take away.
func ownLists(words []string) (all []Doubt) {
	for _, c := range Start(words).Changes {
		if !slices.Contains(Masks(), c.Name) {
			continue
		}
		without := strings.Join(slices.Delete(slices.Clone(words), c.Word, c.Word+1), " ")
		_, value, _ := strings.Cut(words[c.Word], "=")
		switch {
		case c.Unset:
			all = append(all, Doubt{Sure: true, Seen: "takes " + c.Name + " away, so that the program sees every GPU", Do: "leave that out"})
		case strings.Contains(value, "$"):
		case hidesAll(value):
			all = append(all, Doubt{Seen: "hides every GPU by " + c.Name, Do: "use --cpu for a program without GPUs, or leave it out: " + without})
		default:
			all = append(all, Doubt{Sure: true, Seen: "sets " + c.Name + "=" + value + " itself, in place of the GPUs that it is given", Do: "leave it out: " + without})
		}
	}
	return all
}

func hidesAll(value string) bool { return value == "" || value == "-1" }

// innerLists finds lists in the text for a shell: sh -c 'CUDA_VISIBLE_DEVICES=0 python train.py'.
func innerLists(words []string) []Doubt {
	s := Start(words)
	if !slices.Contains([]string{"sh", "bash", "dash", "ash", "ksh", "zsh"}, s.Name(words)) {
		return nil
	}
	for i := s.At + 1; i+1 < len(words); i++ {
		if !strings.HasPrefix(words[i], "-") || strings.HasPrefix(words[i], "--") || !strings.HasSuffix(words[i], "c") {
			continue
		}
		list := regexp.MustCompile(`(?:^|[\s;&|({])(` + strings.Join(Masks(), "|") + `)=["']?([^\s;&|)$"']+)`)
		for _, m := range list.FindAllStringSubmatch(words[i+1], -1) {
			if !hidesAll(m[2]) {
				return []Doubt{{Sure: true, Seen: "sets " + m[1] + "=" + m[2] + " itself, in place of the GPUs that it is given", Do: "leave it out of the script"}}
			}
		}
		return nil
	}
	return nil
}

// lost finds programs that do not hand the variables on.
func lost(words []string) (all []Doubt) {
	if slices.ContainsFunc(words, func(w string) bool {
		return slices.ContainsFunc(Masks(), func(m string) bool { return strings.Contains(w, m) })
	}) {
		return nil // it hands them on itself, or ownLists has said so
	}
	s := Start(words)
	if s.Sudo >= 0 && len(s.Kept) == 0 {
		all = append(all, Doubt{Seen: "goes through sudo, which drops the variables that choose GPUs unless sudoers keeps them", Do: "write: sudo --preserve-env=CUDA_VISIBLE_DEVICES, or do without sudo"})
	}
	k, at, drops := Dropper(words)
	if !drops || hasWord(engines, path.Base(words[at])) {
		return all // commands of containers are judged as such
	}
	name := path.Base(words[at])
	if k.Name != "" {
		name += " " + k.Name
	}
	switch k.Programs {
	case "ollama":
		return append(all, Doubt{Seen: "is a client: the GPUs are used by the server that it asks", Do: "start the server so: gpuard run -- ollama serve"})
	case "ssh", "kubectl oc":
		return append(all, Doubt{Sure: true, Seen: "starts the program elsewhere, by " + name + ", and not on the GPUs that it is given here", Do: "start gpuard run there"})
	case "env":
		return append(all, Doubt{Sure: true, Seen: "empties the environment by " + name + ", so that the program sees every GPU", Do: "leave that option out"})
	}
	do := strings.NewReplacer("NAME", "CUDA_VISIBLE_DEVICES", "VALUE", "$CUDA_VISIBLE_DEVICES").Replace(k.Instead)
	return append(all, Doubt{Sure: k.Programs != "su", Seen: "starts the program by " + name + ", which does not hand on which GPUs it is given", Do: do + ", in a shell: gpuard run -- sh -c '…'"})
}

// replaced finds options that choose among all GPUs of the machine.
func replaced(words []string, use Use) (all []Doubt) {
	for _, k := range slices.Concat(use.All(Rewrites), use.All(Ignores)) {
		if k.Word < 0 || strings.Contains(k.Value, "$") || len(all) > 0 {
			continue
		}
		end := k.Word + 1
		if !strings.Contains(words[k.Word], "=") {
			end = min(end+1, len(words))
		}
		option := strings.Join(words[k.Word:end], " ")
		kept := slices.Delete(slices.Clone(words), k.Word, end)
		all = append(all, Doubt{Sure: k.Programs != "main.py", Seen: "chooses GPUs of the whole machine by " + option, Do: "leave that out: " + strings.Join(kept, " ")})
	}
	for _, k := range use.All(Own) {
		all = append(all, Doubt{Seen: "follows " + k.Name + "=" + k.Value + ", which counts the GPUs of the machine in another order", Do: "unset " + k.Name})
	}
	return all
}

// exceeded finds numbers beyond the GPUs that a command is given. Inside they are counted from 0.
func exceeded(use Use, gpus int) (all []Doubt) {
	n, known := use.Needs()
	if known && n > gpus {
		all = append(all, Doubt{Seen: fmt.Sprintf("needs %d GPUs, and is given %d", n, gpus), Do: fmt.Sprintf("ask for --gpus %d, or start as many as it is given", n)})
	}
	for _, k := range use.All(Inside) {
		number := k.Value[strings.LastIndexByte(k.Value, ':')+1:]
		i, err := strconv.Atoi(number)
		if err == nil && i >= gpus {
			all = append(all, Doubt{Seen: fmt.Sprintf("asks by %s for number %d of the %d that it is given", k.Name, i, gpus), Do: "count from 0 among those, or leave it out"})
		}
	}
	return all
}
