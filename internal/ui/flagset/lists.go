package flagset

import (
	"github.com/spf13/pflag"

	"gpuard/internal/core/shellquote"
)

// sliceValue is pflag's value of a flag that takes a list.
type sliceValue interface {
	pflag.Value
	pflag.SliceValue
}

// listFlag reads a list as gpuard.yaml does. pflag reads lines of CSV, and forgets all but the first.
type listFlag struct {
	sliceValue
	// The values are not the default any more.
	given bool
}

// Set reads the first list, or adds another one.
func (l *listFlag) Set(text string) error {
	list, err := shellquote.ReadList(text)
	if err != nil {
		return err
	}

	if !l.given {
		l.given = true
		return l.Replace(list)
	}

	for _, word := range list {
		if err := l.Append(word); err != nil {
			return err
		}
	}

	return nil
}

// ListVar adds a flag that takes a list, and may be repeated.
func ListVar(f *pflag.FlagSet, values *[]string, name string, standard []string, usage string) {
	f.StringSliceVar(values, name, standard, usage)
	flag := f.Lookup(name)
	if list, ok := flag.Value.(sliceValue); ok {
		flag.Value = &listFlag{sliceValue: list}
	}
}
