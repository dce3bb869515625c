package cli

import (
	"github.com/spf13/cobra"

	"gpuard/internal/app/setup"
	"gpuard/internal/core/job"
)

func (p *Program) setupJupyter() *cobra.Command {
	var t target
	var c choice
	var w waitFlags
	j := setup.Jupyter{Host: p.Host}
	cmd := &cobra.Command{
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
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return report(func() error {
				flags, err := c.flags(p, cmd)
				if err == nil {
					_, err = w.parse(p, cmd)
				}
				if err != nil {
					return asUsage(err)
				}
				if spec, err := c.spec(cmd, nil); err == nil && (spec.Quota == job.MPS || spec.Require == job.MPS) {
					return usagef("cannot set up a kernel with --quota mps: its lease could not be kept over a restart; leave it out")
				}
				more := &cobra.Command{}
				(&waitFlags{}).add(more)
				p.privateState(more)
				j.Flags, j.CPU = append(flags, chosen(cmd, more.Flags())...), c.cpu
				t.doubts = c.doubts(p, cmd)
				return p.do(&t, part{j.Key, j.Wish})
			})
		},
	}
	c.add(p, cmd)
	w.add(cmd)
	p.privateState(cmd)
	cmd.Flags().StringVar(&j.Kernel, "kernel", "", "`NAME` of the kernel that it starts (default python3)")
	cmd.Flags().StringVar(&j.Name, "name", "", "the `NAME` that users see")
	t.add(cmd)
	_ = cmd.RegisterFlagCompletionFunc("kernel", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return j.Names(), noFiles
	})
	_ = cmd.RegisterFlagCompletionFunc("name", cobra.NoFileCompletions)
	return cmd
}
