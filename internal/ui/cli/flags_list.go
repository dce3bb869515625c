package cli

import (
	"strings"

	"github.com/spf13/pflag"

	"gpuard/internal/core/job"
)

// listFlag is the value of a flag that takes a list. pflag's own reads lines of CSV, and forgets all but the first.
type listFlag struct {
	values *[]string
	given  bool // the values are not the default any more
}

var _ pflag.SliceValue = (*listFlag)(nil)

// listVar adds a flag that takes a list, and may be repeated.
func listVar(f *pflag.FlagSet, values *[]string, name string, standard []string, usage string) {
	*values = standard
	f.Var(&listFlag{values: values}, name, usage)
}

func (l *listFlag) String() string { return "[" + strings.Join(*l.values, ",") + "]" }

// Type is that of pflag's own, for which it writes the default.
func (l *listFlag) Type() string { return "stringSlice" }

// Set reads the first list, or adds another one.
func (l *listFlag) Set(text string) error {
	list, err := job.ReadList(text)
	if err != nil {
		return err
	}
	if !l.given {
		*l.values, l.given = nil, true
	}
	*l.values = append(*l.values, list...)
	return nil
}

// Append adds one word.
func (l *listFlag) Append(word string) error { return l.Set(word) }

// Replace sets all words.
func (l *listFlag) Replace(words []string) error {
	*l.values, l.given = words, true
	return nil
}

// GetSlice returns all words.
func (l *listFlag) GetSlice() []string { return *l.values }
