package setupcmd

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"gpuard/internal/app/setup"
	"gpuard/internal/core/job"
	"gpuard/internal/core/shellquote"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
	"gpuard/internal/ui/jobflags"
)

// leaseFlags is the flags of a setup that starts a program with a lease: devices and waiting.
type leaseFlags struct {
	deviceChoice

	wait    jobflags.WaitFlags
	waiting job.Waiting
}

func (l *leaseFlags) addFlags(p *cli.Program, cmd *cobra.Command) {
	l.Add(p, cmd)
	l.AddCommand(cmd)
	l.wait.Add(cmd)
}

// flagWords checks the flags, and returns them as words for gpuard run.
func (l *leaseFlags) flagWords(p *cli.Program, cmd *cobra.Command) ([]string, error) {
	words, err := l.deviceChoice.flagWords(p, cmd)
	if err != nil {
		return nil, err
	}

	l.waiting, err = l.wait.Parse(p, cmd)
	if err != nil {
		return nil, err
	}

	all := &cobra.Command{}
	(&jobflags.SpecFlags{}).AddCommand(all)
	(&jobflags.WaitFlags{}).Add(all)

	return append(words, chosenFlags(cmd, all.Flags())...), nil
}

// mayWait reports whether the program may wait in line.
func (l *leaseFlags) mayWait() bool {
	return !l.spec.CPU && l.waiting.Waits()
}

const setupSystemdLong = `Runs a service of systemd with a lease, for as long as the service runs. An
existing unit gets a drop-in that starts each of its commands by gpuard run.
UNIT -- COMMAND writes a new unit. The command stays the main process of the unit,
so its notifications, sockets and watchdog work as before.

As root it sets up services of the system, otherwise your own; --user sets up
root's own. If ExecStart= of the unit changes, call it again.`

func setupSystemd(p *cli.Program) *cobra.Command {
	var t setupFlags
	var l leaseFlags
	var user bool
	cmd := t.addFlags(&cobra.Command{
		Use:   "systemd [flags] UNIT [-- COMMAND [ARG...]]",
		Short: "A lease for a service of systemd",
		Long:  setupSystemdLong,
		Example: `  sudo gpuard setup systemd ollama --device 0
  gpuard setup systemd vllm --mem 40G -- ./serve.sh --port 8000
  gpuard setup systemd 'tts@' --share 8G --fallback cpu   every instance
  gpuard setup systemd --remove vllm`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			s := setup.Systemd{User: user || os.Geteuid() != 0}
			t.system = !s.User
			s.Setup = &setup.Setup{Host: p.Host, System: t.system}
			var err error
			s.Unit, s.Command, err = unitAndCommand(cmd, args)
			if err != nil {
				return err
			}

			s.Flags, err = l.flagWords(p, cmd)
			if err != nil {
				return err
			}

			s.Spec = l.spec
			s.Folder, err = os.Getwd()
			if err != nil {
				return fmt.Errorf("cannot find the current folder: %w", err)
			}

			s.NoWait = !l.mayWait()
			t.after = s.AfterRemoval
			t.doubts = l.doubtNotes(p, cmd)

			return runSetup(p, &t, setupPart{s.Key, s.Wish})
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return p.CompletePrograms(cmd, args[1:], typed)
			}
			return (&setup.Setup{Host: p.Host}).UnitNames(user || os.Geteuid() != 0), flagset.NoFiles
		},
	})

	l.addFlags(p, cmd)
	cmd.Flags().BoolVar(&user, "user", false, "a service of root's own manager (for other users this is the default)")

	return cmd
}

// unitAndCommand splits the arguments at -- into the unit and the command.
func unitAndCommand(cmd *cobra.Command, args []string) (unit string, command []string, err error) {
	dash := cmd.ArgsLenAtDash()
	if dash < 0 {
		dash = len(args)
	}

	switch {
	case dash == 0:
		return "", nil, failure.Usagef("cannot set up a service without its name: gpuard setup systemd UNIT, such as vllm")
	case dash > 1:
		return "", nil, failure.Usagef("cannot set up %d services with one command: write one UNIT, and a command after --: gpuard setup systemd %s -- %s", dash, args[0], shellquote.JoinQuoted(shellquote.Sh, args[1:]...))
	case dash < len(args) && args[dash] == "":
		return "", nil, failure.Usagef("cannot write a service that starts \"\": say which command it starts")
	}

	return args[0], args[dash:], nil
}
