package manual

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpuard/internal/ui/console"
	"gpuard/internal/ui/flagset"
)

// commonFlags are the flags of the short help of a command. Those that a job of a queue or a sweep shares with gpuard
// run are in the help of that.
func commonFlags(command string) []string {
	seldom := map[string]string{"submit": "verify drift torchrun fallback env", "sweep": "verify drift torchrun"}
	return slices.DeleteFunc(strings.Fields("over csv commands resume jobs jobs-per-gpu gpus mem device model share cpu wait no-wait fallback torchrun "+
		"file env image after hold verify timeout retry log drift name dry-run for pid shell login format python remove each name user kernel"),
		func(name string) bool { return slices.Contains(strings.Fields(seldom[command]), name) })
}

// manyFlags is the number of flags from which they are grouped.
const manyFlags = 16

// FlagsBelow are the flags of a command under one heading.
type FlagsBelow struct {
	title string
	Flags []*pflag.Flag
}

// GroupedFlags returns the visible flags. Those without a group come first.
func GroupedFlags(cmd *cobra.Command) (below []FlagsBelow) {
	var all []*pflag.Flag
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			all = append(all, f)
		}
	})

	groups := []flagset.Group{{Title: "Flags", Names: nil}}
	if len(all) >= manyFlags {
		groups = append(groups, flagset.FlagGroups()...)
	}

	for _, f := range all {
		if !slices.ContainsFunc(groups, func(g flagset.Group) bool { return slices.Contains(g.Names, f.Name) }) {
			groups[0].Names = append(groups[0].Names, f.Name)
		}
	}

	for _, g := range groups {
		var flags []*pflag.Flag
		for _, name := range g.Names {
			if i := slices.IndexFunc(all, func(f *pflag.Flag) bool { return f.Name == name }); i >= 0 {
				flags = append(flags, all[i])
			}
		}
		if len(flags) > 0 {
			below = append(below, FlagsBelow{g.Title, flags})
		}
	}

	return below
}

// flagText is the part of the help below the examples.
func flagText(groups []FlagsBelow, width int) string {
	column := 0
	for _, g := range groups {
		for _, f := range g.Flags {
			column = max(column, console.CellWidth(FlagName(f))+2)
		}
	}

	if width > 0 && width < HelpWidth {
		column = 0
	}

	var b strings.Builder
	for _, g := range groups {
		fmt.Fprintf(&b, "\n%s:\n", g.title)
		for _, f := range g.Flags {
			b.WriteString(strings.Join(flagRows(f, column, width), "\n") + "\n")
		}
	}

	return b.String()
}

// FlagName is "  -q, --quiet", "      --gpus N", or "      --drift[=KINDS]" where the value may be left out.
func FlagName(f *pflag.Flag) string {
	short := "    "
	if f.Shorthand != "" {
		short = "-" + f.Shorthand + ", "
	}

	value, _ := valueAndWords(f)
	switch {
	case value == "":
	case f.NoOptDefVal != "":
		value = "[=" + value + "]"
	default:
		value = " " + value
	}

	return "  " + short + "--" + f.Name + value
}

// valueAndWords are what stands for the value of a flag, "" for a switch, and what the help says of it.
func valueAndWords(f *pflag.Flag) (value, words string) {
	value, words = pflag.UnquoteUsage(f)
	if named := f.Annotations[flagset.ValueName]; len(named) == 1 {
		value = named[0]
	}
	return value, words
}

// FlagWords is the description of a flag, with its value when it is given alone and its default.
func FlagWords(f *pflag.Flag) string {
	value, words := valueAndWords(f)
	if value != "" && f.NoOptDefVal != "" {
		words += " (alone: " + f.NoOptDefVal + ")"
	}
	if value != "" && f.DefValue != f.NoOptDefVal && !slices.Contains([]string{"", "0", "[]"}, f.DefValue) {
		words += " (default " + f.DefValue + ")"
	}

	return words
}

// flagRows is one flag: its description in the given column, or below the name if column is 0.
func flagRows(f *pflag.Flag, column, width int) (rows []string) {
	words := FlagWords(f)
	if column == 0 {
		return append(wrapHanging(strings.TrimSpace(FlagName(f)), 2, width), wrapHanging(words, 6, width)...)
	}

	if width <= 0 {
		width = HelpWidth
	}

	for i, part := range console.Wrap(words, width-column) {
		name := ""
		if i == 0 {
			name = FlagName(f)
		}
		rows = append(rows, console.Pad(name, column, false, "")+part)
	}

	return rows
}
