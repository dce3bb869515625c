package manual

import (
	"bytes"
	_ "embed"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// words.bash splits the command line if the bash-completion package is not installed.
//
//go:embed words.bash
var wordsWithoutPackage string

// BashScript writes cobra's script with two changes. It works without the bash-completion package, which cobra's script
// calls. And it completes lists: printf %q writes a backslash before a comma, so cobra's script does not see that "0,1"
// continues "0,".
func BashScript(root *cobra.Command, w io.Writer) error {
	var script bytes.Buffer
	if err := root.GenBashCompletionV2(&script, true); err != nil {
		return err
	}

	const (
		compared = `printf -v comp "%q" "${compline%%$tab*}" &>/dev/null || comp=$(printf "%q" "${compline%%$tab*}")`
		alone    = `COMPREPLY[0]=$(printf "%q" "${COMPREPLY[0]%%$tab*}")`
		start    = "__start_gpuard()\n"
	)

	text := strings.NewReplacer(
		compared, compared+"\n        comp=${comp//\\\\,/,}",
		alone, alone+"\n        COMPREPLY[0]=${COMPREPLY[0]//\\\\,/,}",
		start, wordsWithoutPackage+"\n"+start,
	).Replace(script.String())

	_, err := io.WriteString(w, text)

	return err
}

// UnquoteUsages removes the backquotes around the names of values in the usages. Only --help interprets them;
// completion prints a usage as it is.
func UnquoteUsages(cmd *cobra.Command) {
	plain := func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) }
	cmd.Flags().VisitAll(plain)
	cmd.PersistentFlags().VisitAll(plain)

	for _, c := range cmd.Commands() {
		UnquoteUsages(c)
	}
}
