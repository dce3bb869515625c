package cli

import (
	"cmp"
	"slices"

	"github.com/spf13/cobra"

	"gpuard/internal/app/exit"
)

// command is a row of the table of commands. What depends on which command it is stands here, and nowhere else.
type command struct {
	name  string
	group commandGroup
	kind  commandKind
	make  func(p *Program) *cobra.Command
	on    string // the command on whose line the help names this one; "" it has a line of its own
	done  string // what exit code 0 means; "" that it is done
	wrong string // what exit code 1 means; "" what it usually does
}

// commandGroup is a heading of gpuard --help. A command that gpuard starts itself has none.
type commandGroup string

// The headings, in the order of the help.
const (
	groupRun      commandGroup = "Run"
	groupQueue    commandGroup = "Queue"
	groupServices commandGroup = "Services"
	groupSee      commandGroup = "See"
	groupCheck    commandGroup = "Check"
	groupSetUp    commandGroup = "Set up"
	groupAdmin    commandGroup = "Administer"
	groupClusters commandGroup = "Clusters"
)

// commandKind says whose the words behind the flags of a command are, and which exit codes are gpuard's own.
type commandKind int

const (
	kindAnswer commandKind = iota // it answers: 1 and 2
	kindLease                     // it leases: from 120 on
	kindStart                     // likewise, and the words are the command of another program
	kindBecome                    // likewise, and this process becomes that program
)

// commandTable lists all commands in the order of the help.
func commandTable() []command {
	return []command{
		{name: "run", group: groupRun, kind: kindBecome, make: (*Program).run},
		{name: "docker", group: groupRun, kind: kindBecome, make: (*Program).docker},
		{name: "podman", group: groupRun, on: "docker", kind: kindBecome, make: (*Program).podman},
		{name: "reserve", group: groupRun, kind: kindLease, make: (*Program).reserve},
		{name: "cancel", group: groupRun, make: (*Program).cancel},
		{name: "release", group: groupRun, make: (*Program).release},
		{name: "env", group: groupRun, make: (*Program).env},

		{name: "submit", group: groupQueue, kind: kindStart, make: (*Program).submit, done: "the job is on the disk"},
		{name: "queue", group: groupQueue, make: (*Program).queue},
		{name: "wait", group: groupQueue, make: (*Program).wait, done: "all ended with 0", wrong: "a job was cancelled, lost or not run; else the code of the first that failed"},
		{name: "logs", group: groupQueue, make: (*Program).logs},
		{name: "sweep", group: groupQueue, kind: kindStart, make: (*Program).sweep, done: "all runs ended with 0", wrong: "some runs failed"},

		{name: "up", group: groupServices, make: (*Program).up},
		{name: "ps", group: groupServices, make: (*Program).ps},
		{name: "restart", group: groupServices, make: (*Program).restart},
		{name: "down", group: groupServices, make: (*Program).down},

		{name: "status", group: groupSee, make: (*Program).status},
		{name: "top", group: groupSee, make: (*Program).top},
		{name: "serve", group: groupSee, make: (*Program).serve},
		{name: "history", group: groupSee, make: (*Program).history},
		{name: "compare", group: groupSee, kind: kindStart, make: (*Program).compare, done: "all runs ended with 0", wrong: "some runs failed"},

		{name: "doctor", group: groupCheck, make: (*Program).doctor, done: noFinding, wrong: someFinding},
		{name: "explain", group: groupCheck, make: (*Program).explain, done: "done, also when nothing is visible"},
		{name: "verify", group: groupCheck, make: (*Program).verify},
		{name: "lint", group: groupCheck, make: (*Program).lint, done: noFinding, wrong: someFinding},

		{name: "setup", group: groupSetUp, make: (*Program).setup},
		{name: "completion", group: groupSetUp, make: (*Program).completion},
		{name: "cdi", group: groupSetUp, make: (*Program).cdi},

		{name: "drain", group: groupAdmin, make: (*Program).drain},
		{name: "undrain", group: groupAdmin, on: "drain", make: (*Program).undrain},
		{name: "evict", group: groupAdmin, make: (*Program).evict},

		{name: "export", group: groupClusters, kind: kindStart, make: (*Program).export, done: "the text is written"},
		{name: "simulate", group: groupClusters, make: (*Program).simulate},

		{name: "project-supervise", make: (*Program).superviseProject},
		{name: "project-keep", make: (*Program).keepInstance},
	}
}

const (
	noFinding   = "no finding is a warning or an error"
	someFinding = "a finding is a warning or an error"
)

// rowOf is the row of a command, or of the one that it belongs to. gpuard alone is gpuard status.
func rowOf(cmd *cobra.Command) (row command) {
	if cmd == nil {
		return row
	}
	for cmd.HasParent() && cmd.Parent().HasParent() {
		cmd = cmd.Parent()
	}
	name := cmd.Name()
	if !cmd.HasParent() {
		name = "status"
	}
	table := commandTable()
	if i := slices.IndexFunc(table, func(c command) bool { return c.name == name }); i >= 0 {
		row = table[i]
	}
	return row
}

// kindOf is the kind of a command. One that only has others below it starts nothing itself.
func kindOf(cmd *cobra.Command) commandKind {
	if row := rowOf(cmd); cmd != nil && (row.kind < kindStart || !cmd.HasSubCommands()) {
		return row.kind
	}
	return kindAnswer
}

// exitCodes are the exit codes of a command. Where lead is not empty it says that the others are those of a program that it
// becomes.
func exitCodes(cmd *cobra.Command) (lead string, codes []exit.Code) {
	row := rowOf(cmd)
	done := exit.Code{Code: 0, Meaning: cmp.Or(row.done, "done")}
	switch {
	case row.name == "verify":
		return "", exit.VerifyCodes()
	case row.kind == kindBecome:
		return "That of the command, or the signal that ended it. gpuard's own codes:", exit.Codes()
	case row.kind == kindLease:
		return "", append([]exit.Code{done}, exit.Codes()...)
	case row.kind == kindStart:
		codes = []exit.Code{done}
		if row.wrong != "" {
			codes = append(codes, exit.Code{Code: 1, Meaning: row.wrong})
		}
		return "", append(codes, slices.DeleteFunc(exit.Codes(), func(e exit.Code) bool { return e.Code < 122 })...)
	}
	const usually = "refused, failed, or no device can be read; for `explain` also when the driver ignores CUDA_VISIBLE_DEVICES and shows every GPU"
	return "", []exit.Code{done, {Code: 1, Meaning: cmp.Or(row.wrong, usually)}, {Code: 2, Meaning: "used wrongly"}}
}
