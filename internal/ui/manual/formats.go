package manual

import (
	"fmt"
	"strings"

	"gpuard/internal/app/setup"
)

// FormatPage is the page of section 5 about a configuration file.
func FormatPage(f setup.Format, version string) Page {
	var b strings.Builder
	fmt.Fprintf(&b, "%s.SH NAME\n%s \\- %s\n.SH DESCRIPTION\n%s\n.SH KEYS\n", PageHead(f.Name, 5, version), EscapeRoff(f.Name), EscapeRoff(f.Short), EscapeRoff(f.Text))

	for _, table := range f.Tables {
		fmt.Fprintf(&b, ".SS %s\n", EscapeRoff(table.Title))
		for _, k := range table.Keys {
			fmt.Fprintf(&b, ".TP\n.BR %s \": %s\"\n%s\n", EscapeRoff(k.Name), EscapeRoff(k.Takes), EscapeRoff(k.Text))
		}
	}

	fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n")

	for line := range strings.Lines(f.Example) {
		b.WriteString(EscapeRoff(strings.TrimRight(line, "\n")) + "\n")
	}

	fmt.Fprintf(&b, ".fi\n.SH FILES\n%s\n.SH SEE ALSO\n.BR gpuard (1),\n.BR gpuard\\-run (1),\n.BR gpuard\\-up (1)\n", EscapeRoff(f.Places))

	return Page{f.Name + ".5", b.String()}
}
