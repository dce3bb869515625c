package commands

import (
	"fmt"
	"strings"
	"time"

	"gpuard/internal/core/compat"
)

// compatibilityPage shows the tables of versions that doctor compares with.
func compatibilityPage() string {
	var b strings.Builder
	b.WriteString(made + "# What works together\n\n[`gpuard doctor`](../how-to/doctor.md) compares what it finds with these tables. They are files in `internal/core/compat/data`: a new release changes a line there and no code. " +
		"What a table does not have gives no finding.\n")
	for _, t := range compat.Tables() {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| %s |\n|%s\n", t.Title, strings.NewReplacer(">", `\>`, "|", `\|`).Replace(t.Note), strings.Join(t.Columns, " | "), strings.Repeat(" --- |", len(t.Columns)))
		for _, row := range t.Rows {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		}
		fmt.Fprintf(&b, "\nRead on %s:\n\n", t.Date.Format(time.DateOnly))
		for source := range strings.SplitSeq(t.Source, "; ") {
			fmt.Fprintf(&b, "- %s\n", source)
		}
	}
	return b.String()
}
