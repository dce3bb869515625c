// Package cmdtable says what the table of commands says of a command: its group in the help, and whose the words behind
// its flags are. The rows themselves are in package commands.
package cmdtable

import "github.com/spf13/cobra"

// Group is a heading of gpuard --help. A command that gpuard starts itself has none.
type Group string

// The headings, in the order of the help.
const (
	GroupRun      Group = "Run"
	GroupQueue    Group = "Queue"
	GroupServices Group = "Services"
	GroupSee      Group = "See"
	GroupCheck    Group = "Check"
	GroupSetUp    Group = "Set up"
	GroupAdmin    Group = "Administer"
	GroupClusters Group = "Clusters"
)

// Kind says whose the words behind the flags of a command are, and which exit codes are gpuard's own.
type Kind string

// The kinds.
const (
	// It answers: 1 and 2.
	KindAnswer Kind = ""
	// It leases: from 120 on.
	KindLease Kind = "lease"
	// Likewise, and the words are the command of another program.
	KindStart Kind = "start"
	// Likewise, and this process becomes that program.
	KindBecome Kind = "become"
)

// Annotations of a command: what its row says.
const (
	RowOrder = "order"
	RowGroup = "group"
	RowOn    = "on"
	RowKind  = "kind"
	RowDone  = "done"
	RowWrong = "wrong"
)

// Annotation is what the row of a command says, or of the one that it belongs to.
func Annotation(cmd *cobra.Command, key string) string {
	if cmd == nil {
		return ""
	}
	for cmd.HasParent() && cmd.Parent().HasParent() {
		cmd = cmd.Parent()
	}
	return cmd.Annotations[key]
}

// GroupOf is the group of a command.
func GroupOf(cmd *cobra.Command) Group { return Group(Annotation(cmd, RowGroup)) }

// KindOf is the kind of a command. One that only has others below it starts nothing itself.
func KindOf(cmd *cobra.Command) Kind {
	kind := Kind(Annotation(cmd, RowKind))
	if cmd != nil && cmd.HasSubCommands() && StartsProgram(kind) {
		return KindAnswer
	}
	return kind
}

// StartsProgram reports whether the words behind the flags are the command of another program.
func StartsProgram(kind Kind) bool { return kind == KindStart || kind == KindBecome }
