package manual

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/ui/cmdtable"
)

// manExits lists the exit codes of a command.
func manExits(cmd *cobra.Command) string {
	var b strings.Builder
	lead, codes := exitCodes(cmd)
	if lead != "" {
		b.WriteString(EscapeRoff(lead) + "\n")
	}

	for _, e := range codes {
		fmt.Fprintf(&b, ".TP\n.B %d\n%s\n", e.Code, EscapeRoff(e.Meaning))
	}

	return b.String()
}

// manTerm is a variable or a file, and which commands use it; nil: all.
type manTerm struct {
	name, words string
	of          func(cmd *cobra.Command) bool
}

func manTerms(list []manTerm, cmd *cobra.Command) string {
	var b strings.Builder
	for _, t := range list {
		if !cmd.HasParent() || t.of == nil || t.of(cmd) {
			fmt.Fprintf(&b, ".TP\n.I %s\n%s\n", EscapeRoff(t.name), EscapeRoff(t.words))
		}
	}
	return b.String()
}

func manVariables() []manTerm {
	leasing := func(cmd *cobra.Command) bool {
		return cmdtable.Annotation(cmd, cmdtable.RowKind) != string(cmdtable.KindAnswer) && cmdtable.GroupOf(cmd) != cmdtable.GroupClusters || slices.Contains([]string{"env", "up", "restart"}, cmd.Name())
	}
	choosing := func(cmd *cobra.Command) bool {
		return leasing(cmd) || cmdtable.GroupOf(cmd) == cmdtable.GroupCheck || cmd.Name() == "status"
	}
	return []manTerm{
		{"GPUARD_MACHINE", "the same as --machine", nil},
		{"GPUARD_STATE", "the folder of the leases; it must be the same for all users of the machine", nil},
		{"GPUARD_LEASE", "the lease that a shell or a script runs in; set for commands that are started", choosing},
		{"GPUARD_GPUS", "set for commands that are started: the UUIDs of their devices, in their order", leasing},
		{"CUDA_VISIBLE_DEVICES", "and the similar variables of other vendors: which devices the caller may use. Set for commands that are started", choosing},
		{"GPUARD_TRACE", "a file to which each decision about who may start appends a line of JSON", leasing},
		{"LC_ALL, LC_MESSAGES, LANG", "what messages are said in: Chinese in UTF-8, else English; help, rare errors and JSON stay English", nil},
		{"NO_COLOR, COLUMNS, TERM", "whether there are colours, and the width of what goes into a pipe or a file", nil},
	}
}

func manFiles() []manTerm {
	project := func(cmd *cobra.Command) bool {
		return cmdtable.GroupOf(cmd) == cmdtable.GroupServices || cmd.Name() == "logs"
	}
	return []manTerm{
		{"/run/gpuard", "leases and tickets, in a folder that gpuard setup machine makes; without it in /run/lock/gpuard, else in /var/tmp/gpuard", nil},
		{"/etc/gpuard/config.yaml", "the policy of the machine, see gpuard-config(5)", nil},
		{"~/.config/gpuard/config.yaml", "a user's own defaults ($XDG_CONFIG_HOME)", nil},
		{"~/.local/state/gpuard", "what gpuard setup wrote, state of invented and recorded machines, and in hosts/ the queue and the projects of each machine ($XDG_STATE_HOME)", nil},
		{"gpuard.yaml", "the services of a project, in the current folder or one above it, see gpuard.yaml(5)", project},
	}
}
