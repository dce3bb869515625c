package jobflags

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/core/health"
)

// checkDrift finds a value of --drift, which is optional and so needs an equals sign: in "--drift hot" the parser takes
// hot for the command.
func checkDrift(cmd *cobra.Command) error {
	first := cmd.Flags().Arg(0)
	if !cmd.Flags().Changed("drift") || cmd.ArgsLenAtDash() == 0 {
		return nil
	}
	if _, err := readDriftKinds(first); err == nil {
		return fmt.Errorf("cannot run %q: the kinds of --drift need an equals sign: write --drift=%s; to run a command of that name: --drift -- %s", first, first, first)
	}

	return nil
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
