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

// Table lists all commands in the order of the help.
func Table() []cli.Command {
	return []cli.Command{
		{Name: "run", Group: cmdtable.GroupRun, Kind: cmdtable.KindBecome, Make: runcmd.Run},
		{Name: "docker", Group: cmdtable.GroupRun, Kind: cmdtable.KindBecome, Make: runcmd.Docker},
		{Name: "podman", Group: cmdtable.GroupRun, On: "docker", Kind: cmdtable.KindBecome, Make: runcmd.Podman},
		{Name: "reserve", Group: cmdtable.GroupRun, Kind: cmdtable.KindLease, Make: runcmd.Reserve},
		{Name: "cancel", Group: cmdtable.GroupRun, Make: cancel},
		{Name: "release", Group: cmdtable.GroupRun, Make: runcmd.Release},
		{Name: "env", Group: cmdtable.GroupRun, Make: runcmd.Env},

		{Name: "submit", Group: cmdtable.GroupQueue, Kind: cmdtable.KindStart, Make: batchcmd.Submit, Done: "the job is on the disk"},
		{Name: "queue", Group: cmdtable.GroupQueue, Make: batchcmd.Queue},
		{Name: "wait", Group: cmdtable.GroupQueue, Make: batchcmd.Wait, Done: "all ended with 0", Wrong: "a job was cancelled, lost or not run; else the code of the first that failed"},
		{Name: "logs", Group: cmdtable.GroupQueue, Make: logs},
		{Name: "sweep", Group: cmdtable.GroupQueue, Kind: cmdtable.KindStart, Make: batchcmd.Sweep, Done: "all runs ended with 0", Wrong: "some runs failed"},

		{Name: "up", Group: cmdtable.GroupServices, Make: projectcmd.Up},
		{Name: "ps", Group: cmdtable.GroupServices, Make: projectcmd.Ps},
		{Name: "restart", Group: cmdtable.GroupServices, Make: projectcmd.Restart},
		{Name: "down", Group: cmdtable.GroupServices, Make: projectcmd.Down},

		{Name: "status", Group: cmdtable.GroupSee, Make: seecmd.Status},
		{Name: "top", Group: cmdtable.GroupSee, Make: top},
		{Name: "serve", Group: cmdtable.GroupSee, Make: serve},
		{Name: "history", Group: cmdtable.GroupSee, Make: batchcmd.History},
		{Name: "compare", Group: cmdtable.GroupSee, Kind: cmdtable.KindStart, Make: seecmd.Compare, Done: "all runs ended with 0", Wrong: "some runs failed"},

		{Name: "doctor", Group: cmdtable.GroupCheck, Make: checkcmd.Doctor, Done: noFinding, Wrong: someFinding},
		{Name: "explain", Group: cmdtable.GroupCheck, Make: checkcmd.Explain, Done: "done, also when nothing is visible"},
		{Name: "verify", Group: cmdtable.GroupCheck, Make: checkcmd.Verify},
		{Name: "lint", Group: cmdtable.GroupCheck, Make: checkcmd.Lint, Done: noFinding, Wrong: someFinding},

		{Name: "setup", Group: cmdtable.GroupSetUp, Make: setupcmd.Setup},
		{Name: "completion", Group: cmdtable.GroupSetUp, Make: (*cli.Program).Completion},
		{Name: "cdi", Group: cmdtable.GroupSetUp, Make: setupcmd.Cdi},

		{Name: "drain", Group: cmdtable.GroupAdmin, Make: admincmd.Drain},
		{Name: "undrain", Group: cmdtable.GroupAdmin, On: "drain", Make: admincmd.Undrain},
		{Name: "evict", Group: cmdtable.GroupAdmin, Make: admincmd.Evict},

		{Name: "export", Group: cmdtable.GroupClusters, Kind: cmdtable.KindStart, Make: batchcmd.Export, Done: "the text is written"},
		{Name: "simulate", Group: cmdtable.GroupClusters, Make: seecmd.Simulate},

		{Name: "project-supervise", Make: projectcmd.SuperviseProject},
		{Name: "project-keep", Make: projectcmd.KeepInstance},
	}
}

const (
	noFinding   = "no finding is a warning or an error"
	someFinding = "a finding is a warning or an error"
)
