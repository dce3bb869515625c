package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/ui/cmdtable"
	"gpuard/internal/ui/failure"
)

// Command is a row of the table of commands. What depends on which command it is stands here, and nowhere else.
type Command struct {
	Name  string
	Group cmdtable.Group
	Kind  cmdtable.Kind
	Make  func(p *Program) *cobra.Command
	// The command on whose line the help names this one; "" it has a line of its own.
	On string
	// What exit code 0 means; "" that it is done.
	Done string
	// What exit code 1 means; "" what it usually does.
	Wrong string
}

// CommandTree is gpuard with these commands, on no machine: what its texts are made from.
func CommandTree(commands []Command) *cobra.Command {
	return (&Program{Host: &machine.Host{}, Commands: commands}).RootCommand()
}

// addCommand makes the command of a row.
func (p *Program) addCommand(root *cobra.Command, i int) *cobra.Command {
	row := p.Commands[i]
	cmd := row.Make(p)
	cmd.Annotations = map[string]string{cmdtable.RowOrder: fmt.Sprintf("%03d", i), cmdtable.RowGroup: string(row.Group), cmdtable.RowOn: row.On, cmdtable.RowKind: string(row.Kind), cmdtable.RowDone: row.Done, cmdtable.RowWrong: row.Wrong}
	root.AddCommand(cmd)
	giveExitCodes(cmd)

	return cmd
}

// giveExitCodes gives the errors of a command, and of those below it, the exit codes of its kind.
func giveExitCodes(cmd *cobra.Command) {
	for _, below := range cmd.Commands() {
		giveExitCodes(below)
	}

	code := exit.RunCode
	if cmdtable.KindOf(cmd) == cmdtable.KindAnswer {
		code = exit.PlainCode
	}

	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error { return failure.WithExitCode(run(cmd, args), code) }
	}
}
