// Package launchers knows what programs do with the list of visible devices: which option says how many GPUs a command
// needs, which chooses another list, which names a device inside the list and which outside of it, and which programs
// hand no variables on.
//
//	use := launchers.ReadCommand([]string{"torchrun", "--nproc_per_node", "4", "train.py"}, nil)
//	use.First(launchers.Counts).Value // "4"
//
// It reads words, and neither files nor the environment of this process.
package launchers

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// Effect is what a program, an option or a variable does with the list of visible devices.
type Effect string

// The effects.
const (
	// The value is a number of GPUs of this machine, times those of the program's other keys.
	Counts Effect = "counts"
	// The value is the new list, which counts all GPUs of the machine.
	Rewrites Effect = "rewrites"
	// The value is a number within the list.
	Inside Effect = "inside"
	// The value counts devices in an order of its own, as EGL and Vulkan do.
	Own Effect = "own"
	// The value chooses among all GPUs of the machine.
	Ignores Effect = "ignores"
	// What computes does not get the variable.
	Drops Effect = "drops"
	// Other machines take part, so that nothing can be counted here.
	Elsewhere Effect = "elsewhere"
)

// Row is one thing that a program does with the list.
type Row struct {
	// Names of a program, of a Python module or of a script, with blanks between.
	Programs string
	// Its options without dashes and with "-" for "_", "$NAME" a variable, "name=" a word name=value, "+name" a word;
	// "" always.
	Keys   string
	Effect Effect
	// A value with which the key has no effect.
	Except string
	// An option with which it has none.
	Unless string
	// Options "name=value", variables "$NAME=value" or words "+name", without one of which it has none.
	Beside string
	// What to write where the effect is Drops.
	Instead string
	From    string // the source
}

// Key is a row's key as it is written in a command, or a variable that the row names.
type Key struct {
	Row
	// The name as written: "--gpu_ids", "NPROC_PER_NODE"; "" for what a program does always.
	Name  string
	Value string
	// The place of the name, counted in the command; -1 for a variable.
	Word int
}

// DeviceNumbers is the devices that the value of a key with the effect Inside counts within the list: "1", "0,2",
// "cuda:0,1" and "CUDA0,CUDA1". For GROMACS each digit is a device, unless there are commas.
func (k Key) DeviceNumbers() (all []int) {
	parts := strings.Split(strings.TrimPrefix(k.Value, "cuda:"), ",")
	if k.Programs == gromacs && len(parts) == 1 {
		parts = strings.Split(k.Value, "")
	}

	for _, part := range parts {
		if n, err := strconv.Atoi(strings.TrimPrefix(part, "CUDA")); err == nil && n >= 0 {
			all = append(all, n)
		}
	}

	return all
}

// Use is what a command does with GPUs.
type Use struct {
	// The first name in its rows, such as "torchrun"; "" for a program without rows.
	Program string
	// It can use several GPUs, in a process each or split over them.
	Launches bool
	// The words of its own options, without those of a script that it starts.
	Own, End int
	Keys     []Key
}

// First is the first key with the effect; its row is empty where there is none.
func (u Use) First(e Effect) Key {
	if all := u.KeysWith(e); len(all) > 0 {
		return all[0]
	}
	return Key{Word: -1}
}

// KeysWith is the keys with the effect, in the order of the table.
func (u Use) KeysWith(e Effect) []Key {
	return slices.DeleteFunc(slices.Clone(u.Keys), func(k Key) bool { return k.Effect != e })
}

// NeededGPUs is how many GPUs of this machine a command needs; ok is false where its words do not say.
func (u Use) NeededGPUs() (n int, ok bool) {
	n = 1
	for _, k := range u.KeysWith(Counts) {
		one, err := strconv.Atoi(k.Value)
		if err != nil || one < 1 {
			return 0, false
		}
		n, ok = n*one, true
	}
	return n, ok && u.First(Elsewhere).Effect == ""
}

// ReadCommand reads a command. A computed word, as "$PYTHON", is known by its "$". lookup is the environment, or nil.
func ReadCommand(words []string, lookup func(name string) (string, bool)) Use {
	return ReadAt(words, FindProgram(words).At, lookup)
}

// ReadAt reads the program in the word at, whatever it starts itself.
func ReadAt(words []string, at int, lookup func(name string) (string, bool)) Use {
	u := Use{Own: len(words)}
	if at >= len(words) {
		return u
	}

	name, first := path.Base(words[at]), at+1
	if IsPython(name) {
		if i := moduleOf(words[at:]); i > 0 {
			name, first = words[at+i], at+i+1
		} else if i := scriptOf(words[at:]); i > 0 {
			name, first = path.Base(words[at+i]), at+i+1
		}
	}

	u.Own, u.End = first, ownEnd(name, words, first)

	for _, r := range rowsOf(name) {
		if r.Programs != anyProgram {
			u.Program, _, _ = strings.Cut(r.Programs, " ")
			u.Launches = u.Launches || r.Effect == Counts
		}
		if k, ok := r.findKey(words[:u.End], first, lookup); ok {
			u.Keys = append(u.Keys, k)
		}
	}

	return u
}

// FindDropper is the first program on the way to the one that is started that hands no variables on to it. at is its
// word.
func FindDropper(words []string) (k Key, at int, ok bool) {
	s := FindProgram(words)
	for _, at := range append(s.By, s.At) {
		for _, k := range ReadAt(words, at, nil).Keys {
			if k.Effect == Drops {
				return k, at, true
			}
		}
	}
	return Key{}, 0, false
}

// findKey is the row's key among words from first on, or in the environment.
func (r Row) findKey(words []string, first int, lookup func(string) (string, bool)) (Key, bool) {
	keys := strings.Fields(r.Keys)
	if r.Unless != "" && slices.ContainsFunc(words[first:], func(w string) bool { return hasWord(r.Unless, optionName(w)) }) {
		return Key{}, false
	}
	if r.Beside != "" && !slices.ContainsFunc(strings.Fields(r.Beside), func(what string) bool { return hasBeside(what, words[first:], lookup) }) {
		return Key{}, false
	}
	if len(keys) == 0 {
		return Key{Row: r, Word: -1}, true
	}

	for i := first; i < len(words); i++ {
		name, value, given := strings.Cut(words[i], "=")
		option := optionName(words[i])
		switch {
		case given && slices.Contains(keys, name+"="):
		case slices.Contains(keys, "+"+words[i]):
			return Key{Row: r, Name: words[i], Word: i}, true
		case option == "" || !slices.Contains(keys, option):
			continue
		case !given && i+1 < len(words):
			value = words[i+1]
		}
		if r.Except == "" || value != r.Except {
			return Key{Row: r, Name: name, Value: value, Word: i}, true
		}
	}

	for _, key := range keys {
		variable, is := strings.CutPrefix(key, "$")
		if !is || lookup == nil {
			continue
		}
		if value, set := lookup(variable); set {
			return Key{Row: r, Name: variable, Value: value, Word: -1}, true
		}
	}

	return Key{}, false
}

// hasWord reports whether a word is among those of a list with blanks between them.
func hasWord(list, word string) bool {
	for one := range strings.FieldsSeq(list) {
		if one == word {
			return true
		}
	}
	return false
}

// hasBeside reports whether what a row wants beside it is among words, or in the environment.
func hasBeside(what string, words []string, lookup func(string) (string, bool)) bool {
	name, value, _ := strings.Cut(what, "=")
	switch {
	case name[0] == '+':
		return slices.Contains(words, name[1:])
	case name[0] == '$' && lookup != nil:
		got, _ := lookup(name[1:])
		return got == value
	}
	return valueIn(words, name) == value
}

// valueIn is the value of an option among words; "" without.
func valueIn(words []string, option string) string {
	for i, w := range words {
		_, value, given := strings.Cut(w, "=")
		switch {
		case optionName(w) != option:
		case given:
			return value
		case i+1 < len(words):
			return words[i+1]
		}
	}
	return ""
}

// optionName is the name of an option without its value, as the table has it; "" for another word.
func optionName(word string) string {
	if len(word) < 2 || word[0] != '-' {
		return ""
	}
	name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
	return strings.ReplaceAll(name, "_", "-")
}

// ownEnd is where the options of a launcher end and those of the program begin that it starts.
func ownEnd(name string, words []string, first int) int {
	for i := first; i < len(words); i++ {
		switch w := words[i]; {
		case slices.Contains([]string{"apptainer", "singularity"}, name):
			if strings.HasSuffix(w, ".sif") || strings.HasSuffix(w, ".simg") || strings.HasSuffix(w, ".img") || strings.Contains(w, "://") {
				return i
			}
		case hasWord(llama+" ffmpeg nvidia-smi", name):
			// -m names a model there.
		case strings.HasSuffix(w, ".py"), hasWord(mpi, name) && strings.HasSuffix(w, "_perf"), w == "--", w == "-m", w == "--module":
			return i
		}
	}
	return len(words)
}
