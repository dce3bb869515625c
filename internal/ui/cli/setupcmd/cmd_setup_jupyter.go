package setupcmd

import (
	"github.com/spf13/cobra"

	"gpuard/internal/app/setup"
	"gpuard/internal/core/job"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
	"gpuard/internal/ui/jobflags"
)

func setupJupyter(p *cli.Program) *cobra.Command {
	var t setupFlags
	var c deviceChoice
	var w jobflags.WaitFlags
	j := setup.Jupyter{Host: p.Host}
	cmd := t.addFlags(&cobra.Command{
		Use:   "jupyter",
		Short: "A Jupyter kernel that leases its GPU, also for VS Code",
		Long: `Adds a kernel with a choice of GPUs, and keeps the one that you have. Each
notebook that uses it has a lease of its own, from the start of its kernel to
the end. A restart of the kernel keeps the lease and the GPU. While no GPU is
free the kernel waits in line, unless --no-wait or --fallback says otherwise.`,
		Example: `  gpuard setup jupyter                     the kernel "Python 3 (GPU)"
  gpuard setup jupyter --mem 20G --name "Python 3, big GPU"
  gpuard setup jupyter --share 8G          shares a GPU with others
  gpuard setup jupyter --kernel ir         for the kernel of R
  gpuard setup jupyter --mem 20G --remove  removes the one of this choice`,
		Args: flagset.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			flags, err := c.flagWords(p, cmd)
			if err != nil {
				return failure.AsUsage(err)
			}

			_, err = w.Parse(p, cmd)
			if err != nil {
				return failure.AsUsage(err)
			}
			if c.spec.Quota == job.MPS || c.spec.Require == job.MPS {
				return failure.Usagef("cannot set up a kernel with --quota mps: its lease could not be kept over a restart; leave it out")
			}

			more := &cobra.Command{}
			(&jobflags.SpecFlags{}).AddCommand(more)
			(&jobflags.WaitFlags{}).Add(more)
			jobflags.AddPrivateState(p, more)
			j.Flags, j.Spec = append(flags, chosenFlags(cmd, more.Flags())...), c.spec
			t.doubts = c.doubtNotes(p, cmd)

			return runSetup(p, &t, setupPart{j.Key, j.Wish})
		},
	})

	c.Add(p, cmd)
	c.AddCommand(cmd)
	w.Add(cmd)
	jobflags.AddPrivateState(p, cmd)
	cmd.Flags().StringVar(&j.Kernel, "kernel", "", "`NAME` of the kernel that it starts (default python3)")
	cmd.Flags().StringVar(&j.Name, "name", "", "the `NAME` that users see")
	_ = cmd.RegisterFlagCompletionFunc("kernel", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return j.Names(), flagset.NoFiles
	})

	_ = cmd.RegisterFlagCompletionFunc("name", cobra.NoFileCompletions)

	return cmd
}
