package cli

import (
	"bytes"
	_ "embed"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// words.bash splits the line by itself where bash-completion is not installed.
//
//go:embed words.bash
var wordsWithoutPackage string

// bashScript is cobra's script with two changes. It works without the bash-completion package, whose function cobra calls.
// And it completes lists: printf %q writes a backslash before a comma, so that the script took "0,1" for no continuation
// of "0,".
func bashScript(root *cobra.Command, w io.Writer) error {
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

// unquoteUsages takes away the marks around the names of values, which only --help understands: completion prints a flag's
// description as it is.
func unquoteUsages(cmd *cobra.Command) {
	plain := func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) }
	cmd.Flags().VisitAll(plain)
	cmd.PersistentFlags().VisitAll(plain)
	for _, c := range cmd.Commands() {
		unquoteUsages(c)
	}
}
