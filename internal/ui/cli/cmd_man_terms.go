package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/app/exit"
)

// manExits lists the exit codes of a command.
func manExits(cmd *cobra.Command) string {
	table := func(list []exit.Code) string {
		var b strings.Builder
		for _, e := range list {
			fmt.Fprintf(&b, ".TP\n.B %d\n%s\n", e.Code, roff(e.Meaning))
		}
		return b.String()
	}
	plain := []exit.Code{{Code: 0, Meaning: "done"}, {Code: 1, Meaning: "refused, failed, or no device can be read; for `explain` also when the driver ignores CUDA_VISIBLE_DEVICES and shows every GPU"}, {Code: 2, Meaning: "used wrongly"}}
	switch cmd.Name() {
	case "run", "docker", "podman":
		return roff("That of the command, or the signal that ended it. gpuard's own codes:") + "\n" + table(exit.Codes())
	case "hold", "env":
		return table(append([]exit.Code{{Code: 0, Meaning: "done"}}, exit.Codes()...))
	case "verify":
		return table(exit.VerifyCodes())
	case "sweep", "compare":
		ends := []exit.Code{{Code: 0, Meaning: "all runs ended with 0"}, {Code: 1, Meaning: "some runs failed"}}
		return table(append(ends, slices.DeleteFunc(exit.Codes(), func(e exit.Code) bool { return e.Code < 122 })...))
	case "submit":
		return table(append([]exit.Code{{Code: 0, Meaning: "the job is on the disk"}}, slices.DeleteFunc(exit.Codes(), func(e exit.Code) bool { return e.Code < 122 })...))
	case "wait":
		plain[0].Meaning, plain[1].Meaning, plain[2].Meaning = "all ended with 0", "a job was cancelled, lost or not run; else the code of the first that failed", "used wrongly"
	case "doctor", "lint":
		plain[0].Meaning, plain[1].Meaning = "no finding is a warning or an error", "a finding is a warning or an error"
	case "explain":
		plain[0].Meaning = "done, also when nothing is visible"
	}
	return table(plain)
}

// manTerm is a variable or a file, and the commands that use it. Without commands all use it.
type manTerm struct {
	name, words string
	of          []string
}

func manTerms(list []manTerm, cmd *cobra.Command) string {
	var b strings.Builder
	for _, t := range list {
		if !cmd.HasParent() || t.of == nil || slices.Contains(t.of, cmd.Name()) {
			fmt.Fprintf(&b, ".TP\n.I %s\n%s\n", roff(t.name), roff(t.words))
		}
	}
	return b.String()
}

func manVariables() []manTerm {
	leasing := []string{"run", "docker", "podman", "hold", "env", "sweep", "compare", "up", "restart"}
	choosing := append([]string{"explain", "verify", "doctor", "status"}, leasing...)
	return []manTerm{
		{"GPUARD_MACHINE", "the same as --machine", nil},
		{"GPUARD_STATE", "the folder of the leases; it must be the same for all users of the machine", nil},
		{"GPUARD_LEASE", "the lease that a shell or a script runs in; set for commands that are started", choosing},
		{"GPUARD_GPUS", "set for commands that are started: the UUIDs of their devices, in their order", leasing},
		{"CUDA_VISIBLE_DEVICES", "and the similar variables of other vendors: which devices the caller may use. Set for commands that are started", choosing},
		{"GPUARD_TRACE", "a file to which each decision about who may start appends a line of JSON", leasing},
		{"NO_COLOR, COLUMNS, TERM", "whether there are colours, and the width of what goes into a pipe or a file", nil},
	}
}

func manFiles() []manTerm {
	project := []string{"up", "down", "ps", "logs", "restart"}
	return []manTerm{
		{"/run/gpuard", "leases and tickets, in a folder that gpuard setup machine makes; without it in /run/lock/gpuard, else in /var/tmp/gpuard", nil},
		{"/etc/gpuard/config.yaml", "the policy of the machine, see gpuard-config(5)", nil},
		{"~/.config/gpuard/config.yaml", "a user's own defaults ($XDG_CONFIG_HOME)", nil},
		{"~/.local/state/gpuard", "what gpuard setup wrote, state of invented and recorded machines, and in hosts/ the queue and the projects of each machine ($XDG_STATE_HOME)", nil},
		{"gpuard.yaml", "the services of a project, in the current folder or one above it, see gpuard.yaml(5)", project},
	}
}
