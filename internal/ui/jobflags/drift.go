package jobflags

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/core/health"
)

// readDrift reads --drift. Its value is optional and so needs an equals sign: in "--drift hot" the parser takes hot for
// the command.
func readDrift(cmd *cobra.Command, text string) ([]string, error) {
	if first := cmd.Flags().Arg(0); cmd.ArgsLenAtDash() != 0 && first != "" {
		if _, err := readDriftKinds(first); err == nil {
			return nil, fmt.Errorf("cannot run %q: the kinds of --drift need an equals sign: write --drift=%s; to run a command of that name: --drift -- %s", first, first, first)
		}
	}
	return readDriftKinds(text)
}

// readDriftKinds reads the value of --drift: all, or a list of kinds.
func readDriftKinds(text string) (list []string, err error) {
	known := []string{}
	for _, k := range health.Kinds() {
		known = append(known, string(k))
	}

	if text == "all" {
		return known, nil
	}

	for kind := range strings.SplitSeq(text, ",") {
		if !slices.Contains(known, kind) {
			return nil, fmt.Errorf("cannot read --drift=%s: %q is none of hot, slow and sick; write for instance --drift=hot,sick", text, kind)
		}
		if !slices.Contains(list, kind) {
			list = append(list, kind)
		}
	}

	return list, nil
}
