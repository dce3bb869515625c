package launchers

import (
	"path"
	"slices"
	"strings"
)

// StartedProgram is the program that a command starts in the end, behind env, sudo, nohup and the like.
type StartedProgram struct {
	// Its word; the number of words where there is none.
	At int
	// The words of the programs before it.
	By []int
	// What env and sudo do to its variables, in their order.
	Changes []Change
	// The word sudo; -1 without.
	Sudo int
	// Variables that sudo lets through; "*" all.
	Kept []string
}

// Change is one of the variables that a command gives its program, or takes from it.
type Change struct {
	Word int
	Name string // "*" for all
	// "env", "env -u", "env -i", "sudo", or the option before it: "--env".
	By    string
	Unset bool
}

// Name is that of the program without its folder; "" where it is computed, or where there is none.
func (s StartedProgram) Name(words []string) string {
	if s.At >= len(words) || strings.Contains(words[s.At], "$") {
		return ""
	}
	return path.Base(words[s.At])
}

// FindProgram skips programs that start another one. If their options cannot be told apart from the other program, it
// searches for a known name.
func FindProgram(words []string) StartedProgram {
	s := StartedProgram{Sudo: -1}
	for s.At < len(words) && !strings.Contains(words[s.At], "$") {
		at := s.At
		next, through := s.peelWrapper(path.Base(words[at]), words, at)
		if !through {
			return s
		}
		s.By, s.At = append(s.By, at), next
	}
	return s
}

// wrapper says which options of a program that starts another one take the next word, and how many words are between
// its options and the program.
type wrapper struct{ takes, between string }

func wrapperOf(name string) (w wrapper, ok bool) {
	switch name {
	case "nohup", "setsid", "builtin", "command", "catchsegv", "unbuffer", "eatmydata", "winpty":
		return wrapper{}, true
	case "exec":
		return wrapper{takes: "-a"}, true
	case "time":
		return wrapper{takes: "-f -o --format --output"}, true
	case "nice":
		return wrapper{takes: "-n --adjustment"}, true
	case "ionice":
		return wrapper{takes: "-c -n -t --class --classdata"}, true
	case "stdbuf":
		return wrapper{takes: "-i -o -e --input --output --error"}, true
	case "timeout":
		return wrapper{takes: "-s -k --signal --kill-after", between: "1"}, true
	case "chrt", "taskset":
		return wrapper{between: "1"}, true
	case "numactl":
		return wrapper{takes: "-N -m -C -i -p --cpunodebind --membind --physcpubind --interleave --preferred"}, true
	case "xvfb-run":
		return wrapper{takes: "-n -e -f -p -s -w --server-num --error-file --auth-file --xauth-protocol --server-args --wait"}, true
	case "pipenv", "poetry", "pdm", "rye", "hatch", "uv":
		return wrapper{between: "run"}, true
	case "strace":
		return wrapper{takes: "-o -e -p -s -u"}, true
	case "proxychains4":
		return wrapper{takes: "-f"}, true
	}
	return wrapper{}, false
}

// SkipWrapper is the word after a program such as nohup, nice -n 5 or timeout 10, which starts what comes next; the
// number of words for other programs.
func SkipWrapper(words []string) int {
	w, ok := wrapperOf(path.Base(words[0]))
	next := SkipOptions(words, 1, strings.Fields(w.takes))
	if w.between == "1" {
		next++
	}

	if !ok || w.between == "run" || next > len(words) {
		return len(words)
	}

	return next
}

// IsSearched reports whether a program starts another one after options that differ between versions.
func IsSearched(name string) bool {
	return slices.Contains([]string{"srun", "mpirun", "mpiexec", "orterun", "mpiexec.hydra", "nsys", "ncu", "nvprof", "rocprof", "rocprofv3", "uv", "conda", "mamba", "micromamba", "pixi", "xargs",
		"compute-sanitizer", "cuda-gdb", "gdb", "tmux", "screen", "ccrun", "flock", "runuser", "su", "doas", "systemd-run", "apptainer", "singularity"}, name)
}

// TakesProgram reports whether the next word after a program and its options is the name of a program, for which an
// assignment NAME=value is taken there.
func TakesProgram(name string) bool {
	w, ok := wrapperOf(name)
	return ok && w.between != "run" || slices.Contains([]string{"srun", "mpirun", "mpiexec", "orterun", "mpiexec.hydra"}, name)
}

// peelWrapper takes one such program off: next is the word of the program that it starts. through is false when it
// starts nothing else.
func (s *StartedProgram) peelWrapper(name string, words []string, at int) (next int, through bool) {
	switch name {
	case "env":
		return s.readEnv(words, at+1)
	case "sudo":
		s.Sudo = at
		return s.readSudo(words, at+1)
	}

	if IsSearched(name) {
		s.handOver(name, words, at+1)
		if slices.Contains([]string{"conda", "mamba", "micromamba", "uv", "pixi"}, name) && (at+1 >= len(words) || words[at+1] != "run") {
			// Installs it.
			return 0, false
		}
		i := slices.IndexFunc(words[at+1:], func(w string) bool {
			return !strings.Contains(w, "$") && (IsLauncher(path.Base(w)) || strings.HasSuffix(w, ".py")) || w == "env"
		})

		return at + 1 + i, i >= 0
	}

	w, ok := wrapperOf(name)
	if !ok || at+1 == len(words) {
		return 0, false
	}

	next = SkipOptions(words, at+1, strings.Fields(w.takes))
	switch {
	case w.between == "1" && next < len(words):
		if name == "taskset" && strings.Contains(words[at+1], "p") && strings.HasPrefix(words[at+1], "-") {
			// Of a process that runs already.
			return 0, false
		}
		next++
	case w.between != "" && w.between != "1":
		if next >= len(words) || words[next] != w.between {
			return 0, false
		}
		next = SkipOptions(words, next+1, nil)
	}

	return next, next < len(words)
}

// handOver reads the variables that apptainer and systemd-run set for their program.
func (s *StartedProgram) handOver(name string, words []string, first int) {
	keys := map[string][]string{"apptainer": {"env"}, "singularity": {"env"}, "systemd-run": {"E", "setenv"}}[name]
	for i := first; i < len(words) && len(keys) > 0; i++ {
		_, value, given := strings.Cut(words[i], "=")
		if !slices.Contains(keys, optionName(words[i])) {
			continue
		}
		if !given && i+1 < len(words) {
			value = words[i+1]
		}
		if assignedName(value) != "" && strings.Count(value, "=") == 1 {
			// Apptainer splits more than one at their commas.
			s.Changes = append(s.Changes, Change{Word: i, Name: assignedName(value), By: "--" + optionName(words[i])})
		}
	}
}

// SkipOptions is the word after the options from first on, and after the values of those that take one.
func SkipOptions(words []string, first int, takes []string) int {
	for first < len(words) && len(words[first]) > 1 && words[first][0] == '-' {
		option := words[first]
		first++
		if option == "--" {
			break
		}
		if slices.Contains(takes, option) && first < len(words) {
			first++
		}
	}
	return first
}

// assignedName is the name in a word NAME=value; "" for another word.
func assignedName(word string) string {
	name, _, ok := strings.Cut(word, "=")
	isLetter := func(c rune) bool { return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
	for i, c := range name {
		if !isLetter(c) && (i == 0 || c < '0' || c > '9') {
			return ""
		}
	}

	if !ok {
		return ""
	}

	return name
}

func (s *StartedProgram) readEnv(words []string, first int) (int, bool) {
	for i := first; i < len(words); i++ {
		switch w := words[i]; {
		case w == "-" || w == "-i" || w == "--ignore-environment":
			s.Changes = append(s.Changes, Change{Word: i, Name: "*", By: "env -i", Unset: true})
		case (w == "-u" || w == "--unset") && i+1 < len(words):
			s.Changes = append(s.Changes, Change{Word: i, Name: words[i+1], By: "env -u", Unset: true})
			i++
		case strings.HasPrefix(w, "--unset="):
			s.Changes = append(s.Changes, Change{Word: i, Name: strings.TrimPrefix(w, "--unset="), By: "env -u", Unset: true})
		case (w == "-C" || w == "--chdir") && i+1 < len(words):
			i++
		case strings.HasPrefix(w, "-"):
		case assignedName(w) != "":
			s.Changes = append(s.Changes, Change{Word: i, Name: assignedName(w), By: "env"})
		default:
			return i, true
		}
	}
	return 0, false
}

func (s *StartedProgram) readSudo(words []string, first int) (int, bool) {
	takes := strings.Fields("-C -c -D -g -h -p -R -r -t -T -U -u --close-from --chdir --group --host --prompt --chroot --role --type --command-timeout --other-user --user")
	for i := first; i < len(words); i++ {
		switch w := words[i]; {
		case strings.HasPrefix(w, "--preserve-env="):
			s.Kept = append(s.Kept, strings.Split(strings.TrimPrefix(w, "--preserve-env="), ",")...)
		case w == "--preserve-env", strings.HasPrefix(w, "-") && !strings.HasPrefix(w, "--") && strings.Contains(w, "E"):
			s.Kept = append(s.Kept, "*")
		case slices.Contains(takes, w) && i+1 < len(words):
			i++
		case strings.HasPrefix(w, "-"):
		case assignedName(w) != "":
			s.Kept = append(s.Kept, assignedName(w))
			s.Changes = append(s.Changes, Change{Word: i, Name: assignedName(w), By: "sudo"})
		default:
			return i, true
		}
	}
	return 0, false
}
