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
