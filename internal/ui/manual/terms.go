package manual

import (
	"cmp"
	"slices"

	"github.com/spf13/cobra"

	"gpuard/internal/app/exit"
	"gpuard/internal/ui/cmdtable"
)

// exitCodes are the exit codes of a command. Where lead is not empty it says that the others are those of a program
// that it becomes.
func exitCodes(cmd *cobra.Command) (lead string, codes []exit.Code) {
	wrong := cmdtable.Annotation(cmd, cmdtable.RowWrong)
	done := exit.Code{Code: 0, Meaning: cmp.Or(cmdtable.Annotation(cmd, cmdtable.RowDone), "done")}
	switch cmdtable.Kind(cmdtable.Annotation(cmd, cmdtable.RowKind)) {
	case cmdtable.KindBecome:
		return "That of the command, or the signal that ended it. gpuard's own codes:", exit.Codes()
	case cmdtable.KindLease:
		return "", append([]exit.Code{done}, exit.Codes()...)
	case cmdtable.KindStart:
		codes = []exit.Code{done}
		if wrong != "" {
			codes = append(codes, exit.Code{Code: 1, Meaning: wrong})
		}

		return "", append(codes, slices.DeleteFunc(exit.Codes(), func(e exit.Code) bool { return e.Code < 122 })...)
	case cmdtable.KindAnswer:
	}

	if cmd.CommandPath() == "gpuard verify" {
		return "", exit.VerifyCodes()
	}

	const usually = "refused, failed, or no device can be read; for `explain` also when the driver ignores CUDA_VISIBLE_DEVICES and shows every GPU"

	return "", []exit.Code{done, {Code: 1, Meaning: cmp.Or(wrong, usually)}, {Code: 2, Meaning: "used wrongly"}}
}

// manTerm is a variable or a file, and whether a command uses it; one without a name is a heading.
type manTerm struct {
	name, words string
	here        bool
}

func manTerms(cmd *cobra.Command) []manTerm {
	name, group := cmd.Name(), cmdtable.GroupOf(cmd)
	leasing := cmdtable.Annotation(cmd, cmdtable.RowKind) != string(cmdtable.KindAnswer) && group != cmdtable.GroupClusters || slices.Contains([]string{"env", "up", "restart"}, name)
	choosing := leasing || group == cmdtable.GroupCheck || name == "status"

	return []manTerm{
		{"", "ENVIRONMENT", true},
		{"GPUARD_MACHINE", "the same as --machine", true},
		{"GPUARD_STATE", "the folder of the leases; it must be the same for all users of the machine", true},
		{"GPUARD_LEASE", "the lease that a shell or a script runs in; set for commands that are started", choosing},
		{"GPUARD_GPUS", "set for commands that are started: the UUIDs of their devices, in their order", leasing},
		{"CUDA_VISIBLE_DEVICES", "and the similar variables of other vendors: which devices the caller may use. Set for commands that are started", choosing},
		{"GPUARD_TRACE", "a file to which each decision about who may start appends a line of JSON", leasing},
		{"LC_ALL, LC_MESSAGES, LANG", "what messages are said in: Chinese in UTF-8, else English; help, rare errors and JSON stay English", true},
		{"NO_COLOR, COLUMNS, TERM", "whether there are colours, and the width of what goes into a pipe or a file", true},
		{"", "FILES", true},
		{"/run/gpuard", "leases and tickets, in a folder that gpuard setup machine makes; without it in /run/lock/gpuard, else in /var/tmp/gpuard", true},
		{"/etc/gpuard/config.yaml", "the policy of the machine, see gpuard-config(5)", true},
		{"~/.config/gpuard/config.yaml", "a user's own defaults ($XDG_CONFIG_HOME)", true},
		{"~/.local/state/gpuard", "what gpuard setup wrote, state of invented and recorded machines, and in hosts/ the queue and the projects of each machine ($XDG_STATE_HOME)", true},
		{"gpuard.yaml", "the services of a project, in the current folder or one above it, see gpuard.yaml(5)", group == cmdtable.GroupServices || name == "logs"},
	}
}
