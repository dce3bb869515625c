// Package option is the table of what can be asked of a job, in whichever way: by a flag, by a key of gpuard.yaml, by a
// default in config.yaml, or in a line of a script. Adding an option is one row here and its use.
//
//	o, _ := option.FindOption("min-compute")
//	o.Key() // "min_compute"
//
// It also knows the commands and their other flags by name, so that texts of core name them in one way, in braces:
//
//	option.Expand("list them: {gpuard status}, or leave {device} out") // "list them: gpuard status, or leave --device out"
//	option.Sprintf("ask for less memory ({mem=%s})", most)             // "ask for less memory (--mem 8G)"
package option

import (
	"slices"
	"strings"
)

// Option is one row.
type Option struct {
	// Its word; files write _ for -.
	Name string
	// The heading under which the help shows it.
	Group Group
	Takes Takes // what it takes
	// Stands for that in the help: "SIZE"; "" for a switch.
	Value string
	// What it means: a sentence without its full stop; {mem} stands for the option mem, and {quota=mps} for one with
	// a value.
	Text string
	// Likewise in a file, where that says more or less; "" the same.
	File string
	// An example of what it takes, as typed; a list with commas.
	Sample string
	// All that it can be, where that is known.
	Words []string
	// What completion offers beside these.
	Offers []string
	// What it means where nothing is behind it.
	Alone string
	// What it is where it is not given.
	Else string
	// That have it as a key.
	In  Files
	Not []Not
}

// Not is another option that does not go with one.
type Not struct{ Other, Why string }

// Group is a heading of the help.
type Group string

// The groups of options, in the order of the help.
const (
	Choice    Group = "Which device"
	Waiting   Group = "Waiting"
	Sharing   Group = "Sharing"
	Processes Group = "Several processes"
	Life      Group = "While it runs"
	Engine    Group = "For the engine"
	Rest      Group = "Other"
)

// Files says in which files an option is a key.
type Files int

// The files, which can be added.
const (
	// Of a service in gpuard.yaml.
	Service Files = 1 << iota
	// Of the defaults in config.yaml.
	Default
	Both = Service | Default
)

// Takes is what an option or a key of a file takes.
type Takes string

// What they take.
const (
	Text     Takes = "text"
	Number   Takes = "whole number"
	Switch   Takes = "true or false"
	Size     Takes = "size" // 20G
	Time     Takes = "time" // 90s
	Texts    Takes = "list" // [a, b], or "a,b"
	Repeated Takes = "text, any number of times"
	Optional Takes = "true, or text"
)

// Key is its name in a file.
func (o Option) Key() string { return strings.ReplaceAll(o.Name, "-", "_") }

// SampleInFile is the example as a file has it.
func (o Option) SampleInFile() string {
	switch {
	case o.Takes == Switch:
		return "true"
	case o.Takes == Texts:
		return "[" + strings.ReplaceAll(o.Sample, ",", ", ") + "]"
	case strings.HasPrefix(o.Sample, "*"):
		return `"` + o.Sample + `"`
	case strings.Contains(o.Sample, `"`):
		return "'" + o.Sample + "'"
	}
	return o.Sample
}

// AllOptions are the options, in the order of the help.
func AllOptions() []Option { return slices.Clone(optionTable) }

// FindOption is the option of that name.
func FindOption(name string) (Option, bool) {
	i := slices.IndexFunc(optionTable, func(o Option) bool { return o.Name == name })
	if i < 0 {
		return Option{}, false
	}
	return optionTable[i], true
}

// OptionsOfFile are the options that are keys of a file.
func OptionsOfFile(of Files) (list []Option) {
	for _, o := range optionTable {
		if o.In&of != 0 {
			list = append(list, o)
		}
	}
	return list
}

// ReplaceNames writes the options that a text names. word is how one is written; value is "" for its name alone.
func ReplaceNames(text string, word func(name, value string) string) string {
	var b strings.Builder
	for {
		before, rest, _ := strings.Cut(text, "{")
		inside, after, closed := strings.Cut(rest, "}")
		if !closed {
			return b.String() + text
		}

		name, value, _ := strings.Cut(inside, "=")
		b.WriteString(before + word(name, value))
		text = after
	}
}
