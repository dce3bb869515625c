// Package commands is the table of all commands, and those that are about several groups: cancel, logs, top, serve.
package commands

import (
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/cli/admincmd"
	"gpuard/internal/ui/cli/batchcmd"
	"gpuard/internal/ui/cli/checkcmd"
	"gpuard/internal/ui/cli/projectcmd"
	"gpuard/internal/ui/cli/runcmd"
	"gpuard/internal/ui/cli/seecmd"
	"gpuard/internal/ui/cli/setupcmd"
	"gpuard/internal/ui/cmdtable"
)

// CommandTable lists all commands in the order of the help.
func CommandTable() []cli.Command {
	return []cli.Command{
		{Name: "run", Group: cmdtable.GroupRun, Kind: cmdtable.KindBecome, Make: runcmd.NewRunCommand},
		{Name: "docker", Group: cmdtable.GroupRun, Kind: cmdtable.KindBecome, Make: runcmd.NewDockerCommand},
		{Name: "podman", Group: cmdtable.GroupRun, On: "docker", Kind: cmdtable.KindBecome, Make: runcmd.NewPodmanCommand},
		{Name: "reserve", Group: cmdtable.GroupRun, Kind: cmdtable.KindLease, Make: runcmd.NewReserveCommand},
		{Name: "cancel", Group: cmdtable.GroupRun, Make: cancelCommand},
		{Name: "release", Group: cmdtable.GroupRun, Make: runcmd.NewReleaseCommand},
		{Name: "env", Group: cmdtable.GroupRun, Make: runcmd.NewEnvCommand},

		{Name: "submit", Group: cmdtable.GroupQueue, Kind: cmdtable.KindStart, Make: batchcmd.NewSubmitCommand, Done: "the job is on the disk"},
		{Name: "queue", Group: cmdtable.GroupQueue, Make: batchcmd.NewQueueCommand},
		{Name: "wait", Group: cmdtable.GroupQueue, Make: batchcmd.NewWaitCommand, Done: "all ended with 0", Wrong: "a job was cancelled, lost or not run; else the code of the first that failed"},
		{Name: "logs", Group: cmdtable.GroupQueue, Make: logsCommand},
		{Name: "sweep", Group: cmdtable.GroupQueue, Kind: cmdtable.KindStart, Make: batchcmd.NewSweepCommand, Done: "all runs ended with 0", Wrong: "some runs failed"},

		{Name: "up", Group: cmdtable.GroupServices, Make: projectcmd.NewUpCommand},
		{Name: "ps", Group: cmdtable.GroupServices, Make: projectcmd.NewPsCommand},
		{Name: "restart", Group: cmdtable.GroupServices, Make: projectcmd.NewRestartCommand},
		{Name: "down", Group: cmdtable.GroupServices, Make: projectcmd.NewDownCommand},

		{Name: "status", Group: cmdtable.GroupSee, Make: seecmd.NewStatusCommand},
		{Name: "top", Group: cmdtable.GroupSee, Make: topCommand},
		{Name: "serve", Group: cmdtable.GroupSee, Make: serveCommand},
		{Name: "history", Group: cmdtable.GroupSee, Make: batchcmd.NewHistoryCommand},
		{Name: "compare", Group: cmdtable.GroupSee, Kind: cmdtable.KindStart, Make: seecmd.NewCompareCommand, Done: "all runs ended with 0", Wrong: "some runs failed"},

		{Name: "doctor", Group: cmdtable.GroupCheck, Make: checkcmd.NewDoctorCommand, Done: noFinding, Wrong: someFinding},
		{Name: "explain", Group: cmdtable.GroupCheck, Make: checkcmd.NewExplainCommand, Done: "done, also when nothing is visible"},
		{Name: "verify", Group: cmdtable.GroupCheck, Make: checkcmd.NewVerifyCommand},
		{Name: "lint", Group: cmdtable.GroupCheck, Make: checkcmd.NewLintCommand, Done: noFinding, Wrong: someFinding},

		{Name: "setup", Group: cmdtable.GroupSetUp, Make: setupcmd.NewSetupCommand},
		{Name: "completion", Group: cmdtable.GroupSetUp, Make: (*cli.Program).NewCompletionCommand},
		{Name: "cdi", Group: cmdtable.GroupSetUp, Make: setupcmd.NewCDICommand},

		{Name: "drain", Group: cmdtable.GroupAdmin, Make: admincmd.NewDrainCommand},
		{Name: "undrain", Group: cmdtable.GroupAdmin, On: "drain", Make: admincmd.NewUndrainCommand},
		{Name: "evict", Group: cmdtable.GroupAdmin, Make: admincmd.NewEvictCommand},

		{Name: "export", Group: cmdtable.GroupClusters, Kind: cmdtable.KindStart, Make: batchcmd.NewExportCommand, Done: "the text is written"},
		{Name: "simulate", Group: cmdtable.GroupClusters, Make: seecmd.NewSimulateCommand},
	}
}

const (
	noFinding   = "no finding is a warning or an error"
	someFinding = "a finding is a warning or an error"
)
