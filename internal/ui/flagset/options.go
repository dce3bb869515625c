// Package flagset makes flags of the table of options, reads their values, and says what is wrong with a command line.
package flagset

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpuard/internal/core/option"
	"gpuard/internal/core/shellquote"
)

// ownFlag is a flag that asks for nothing of a job, for which core/option has a row.
type ownFlag struct {
	name string
	// The heading under which the help of a command with many flags shows it; "" where no such command has it.
	group option.Group
	// An example of its value; "" for a switch.
	sample string
}

// Headings of the help that only commands have.
const (
	groupRuns   option.Group = "Which runs"
	groupEnd    option.Group = "Until when"
	groupAnswer option.Group = "Answer"
)

// ownFlags are the flags that are no options of a job.
func ownFlags() []ownFlag {
	return []ownFlag{
		{"file", option.Engine, "gpuard.yaml"},
		{"over", groupRuns, "seed=1..5"}, {"csv", groupRuns, "runs.csv"}, {"commands", groupRuns, "runs.txt"}, {"resume", groupRuns, "gpuard-sweep-1"}, {"failed", groupRuns, ""},
		{"dir", groupRuns, "sweep"}, {"jobs", groupRuns, "4"}, {"jobs-per-gpu", groupRuns, "2"},
		{"ask", option.Choice, ""},
		{"for", groupEnd, "30s"}, {"pid", groupEnd, "4242"}, {"shell", groupEnd, "fish"},
		{"dry-run", groupAnswer, ""}, {"quiet", groupAnswer, ""}, {"json", groupAnswer, ""}, {"alert", groupAnswer, ""}, {"login", groupAnswer, "none"},
		{"format", groupAnswer, "fish"}, {"save", groupAnswer, "work"}, {"restore", groupAnswer, "work"},
		{"machine", option.Rest, "demo"}, {"help", option.Rest, ""},

		{"arms", "", "alone,together,apart"}, {"by", "", "user"}, {"chart", "", "use.svg"}, {"every", "", "10"}, {"idle", "", "2h"}, {"kernel", "", "python3"}, {"listen", "", "127.0.0.1:8470"},
		{"metric", "", "loss=loss ([0-9.]+)"}, {"remove", "", "direnv /home/ann/train"}, {"repeat", "", "5"}, {"since", "", "30d"}, {"tail", "", "100"}, {"warmup", "", "1"}, {"why", "", "xid-errors"},
	}
}

// Group is a heading of the help and the names of its flags, in order.
type Group struct {
	Title string
	Names []string
}

// FlagGroups are the headings for commands with many flags.
func FlagGroups() (list []Group) {
	for _, group := range []option.Group{option.Engine, groupRuns, option.Choice, option.Waiting, option.Sharing, groupEnd, option.Processes, option.Life, groupAnswer, option.Rest} {
		g := Group{Title: string(group)}
		for _, o := range option.AllOptions() {
			if o.Group == group {
				g.Names = append(g.Names, o.Name)
			}
		}
		for _, f := range ownFlags() {
			if f.group == group {
				g.Names = append(g.Names, f.name)
			}
		}
		list = append(list, g)
	}
	return list
}

// ValueName is the annotation of a flag with what stands for its value in the help.
const ValueName = "value"

// AddOption adds an option of a job as a flag. It is read into a *string, *bool, *int or *[]string, or by a
// pflag.Value.
func AddOption(cmd *cobra.Command, name string, value any) {
	o, _ := option.FindOption(name)
	f, usage := cmd.Flags(), option.Expand(o.Text)
	if slices.ContainsFunc(o.Words, func(word string) bool { return !strings.Contains(o.Text, word) }) {
		usage += ": " + joinWithOr(o.Words)
	}

	switch v := value.(type) {
	case *string:
		if o.Takes == option.Text && len(o.Words) > 0 {
			f.Var(newOptionValue(o.Else, func(text string) error { *v = text; return checkWord(&o, text) }), name, usage)
		} else {
			f.StringVar(v, name, o.Else, usage)
		}
	case func(text string) error:
		f.Var(newOptionValue(o.Else, v), name, usage)
	case *time.Duration:
		f.Var(newOptionValue(o.Else, func(text string) (err error) { *v, err = ReadDuration(name, text); return err }), name, usage)
	case *bool:
		f.BoolVar(v, name, false, usage)
	case *int:
		f.IntVar(v, name, 0, usage)
	case *[]string:
		if o.Takes == option.Repeated {
			f.StringArrayVar(v, name, nil, usage)
		} else {
			ListVar(f, v, name, nil, usage)
		}
	case pflag.Value:
		f.Var(v, name, usage)
	}

	flag := f.Lookup(name)
	if o.Alone != "" {
		flag.NoOptDefVal = o.Alone
	}

	if o.Value != "" {
		flag.Annotations = map[string][]string{ValueName: {o.Value}}
	}

	if offers := append(slices.Clone(o.Words), o.Offers...); len(offers) > 0 || o.Offers != nil {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(offers, NoFiles))
	}
}

// optionValue is an option whose text is read into a field. What is wrong with it is said when the whole command line
// is known: RefuseOptions.
type optionValue struct {
	text  string
	read  func(text string) error
	wrong error
}

func newOptionValue(text string, read func(text string) error) *optionValue {
	if text != "" {
		_ = read(text)
	}
	return &optionValue{text: text, read: read}
}

func (o *optionValue) String() string { return o.text }

// Set reads the text.
func (o *optionValue) Set(text string) error {
	o.text, o.wrong = text, o.read(text)
	return nil
}

// Type is the type of a flag that takes a word.
func (o *optionValue) Type() string { return "string" }

// checkWord refuses what is none of the words of an option.
func checkWord(o *option.Option, text string) error {
	if slices.Contains(o.Words, text) {
		return nil
	}
	return fmt.Errorf("cannot read --%s %q: write %s", o.Name, text, joinWithOr(o.Words))
}

// joinWithOr is "a, b or c".
func joinWithOr(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// RefuseOptions returns an error if two options do not go together, or one has a value that it cannot have.
func RefuseOptions(cmd *cobra.Command) error {
	err := RefuseTogether(cmd, OptionConflicts())
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if v, ok := f.Value.(*optionValue); ok {
			err = cmp.Or(err, v.wrong)
		}
	})

	return err
}

// OptionConflicts are the pairs of options that cannot be given together. Their reasons name options as core/option
// does.
func OptionConflicts() (list []Conflict) {
	for _, o := range option.AllOptions() {
		for _, n := range o.Not {
			list = append(list, Conflict{o.Name, n.Other, n.Why})
		}
	}
	return list
}

// FlagExample is an example of a flag that takes a value.
func FlagExample(name string) string {
	glue, words := " ", []string(nil)
	if o, found := option.FindOption(name); found {
		words = o.Words
		if len(words) == 0 || len(words) > 3 {
			words = []string{o.Sample}
		}
		if o.Takes == option.Optional && name != "wait" {
			glue = "="
		}
	} else if i := slices.IndexFunc(ownFlags(), func(f ownFlag) bool { return f.name == name && f.sample != "" }); i >= 0 {
		words = []string{ownFlags()[i].sample}
	}

	if len(words) == 0 {
		return "--" + name + " VALUE"
	}

	typed := make([]string, len(words))
	for i, word := range words {
		typed[i] = fmt.Sprintf("--%s%s%s", name, glue, shellquote.Sh(word))
	}

	return joinWithOr(typed)
}
