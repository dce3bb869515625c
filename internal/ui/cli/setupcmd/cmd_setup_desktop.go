package setupcmd

import (
	"github.com/spf13/cobra"

	"gpuard/internal/app/setup"
	"gpuard/internal/core/shellquote"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
	"gpuard/internal/ui/jobflags"
)

const setupDesktopLong = `Adds a second entry for a program to your menu, "Blender (GPU 0)", which starts it
with a lease. It is a copy of the program's own entry, with its icon, translations
and actions. APP is the name of that entry, or its path; arguments after -- are
given to the program. For several entries of one program give each a --name.
A program without an entry gets one: after -- stands its command line then.

While no GPU is free the program does not start, and a window says why. With
--wait it waits in line, with --fallback cpu it starts without a GPU, and with
--ask it asks each time which GPU to use.`

func setupDesktop(p *cli.Program) *cobra.Command {
	var t setupFlags
	var l leaseFlags
	var ask bool
	var name string
	cmd := t.addFlags(&cobra.Command{
		Use:   "desktop [flags] APP [-- ARG...]",
		Short: "A menu entry that starts a program with a lease",
		Long:  setupDesktopLong,
		Example: `  gpuard setup desktop org.blender.Blender --device 0
  gpuard setup desktop mtools --ask        asks each time
  gpuard setup desktop mtools --name image --device 0 -- --module image
  gpuard setup desktop mtools --name image --remove
  gpuard setup desktop sim --device 0 -- ~/bin/sim --gui     has no entry yet`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			d := setup.Desktop{Setup: &setup.Setup{Host: p.Host}, Name: name}
			var err error
			d.App, d.More, err = entryAndArguments(cmd, args)
			if err != nil {
				return err
			}

			d.Flags, err = l.flagWords(p, cmd)
			if err != nil {
				return err
			}

			d.Spec = l.spec
			if ask {
				err = jobflags.CheckAsk(cmd)
				if err != nil {
					return err
				}
				d.Flags = append(d.Flags, "--ask")
			}

			if !cmd.Flags().Changed("wait") && !l.waiting.No && len(l.waiting.Fallback) == 0 && !l.spec.CPU {
				d.Flags = append(d.Flags, "--no-wait")
			}

			t.doubts = l.doubtNotes(p, cmd)

			return runSetup(p, &t, setupPart{d.Key, d.Wish})
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, flagset.Files
			}
			return (&setup.Setup{Host: p.Host}).EntryIDs(), flagset.NoFiles
		},
	})

	l.addFlags(p, cmd)
	jobflags.AddAsk(cmd, &ask)
	cmd.Flags().StringVar(&name, "name", "", "`TEXT` in the name of the entry, to distinguish several entries of one program")

	return cmd
}

// entryAndArguments splits the arguments at -- into the entry and the arguments of the program.
func entryAndArguments(cmd *cobra.Command, args []string) (app string, more []string, err error) {
	dash := cmd.ArgsLenAtDash()
	if dash < 0 {
		dash = len(args)
	}

	switch {
	case dash == 0:
		return "", nil, failure.Usagef("cannot set up a program without its name: gpuard setup desktop APP, such as org.blender.Blender")
	case dash > 1:
		return "", nil, failure.Usagef("cannot set up %d programs with one command: write one APP, and arguments of the program after --: gpuard setup desktop %s -- %s", dash, shellquote.JoinQuoted(shellquote.Sh, args[0]), shellquote.JoinQuoted(shellquote.Sh, args[1:]...))
	}

	return args[0], args[dash:], nil
}
