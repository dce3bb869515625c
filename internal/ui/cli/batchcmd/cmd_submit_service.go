package batchcmd

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/core/service"
	"gpuard/internal/core/shellquote"
	"gpuard/internal/core/visible"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/flagset"
	"gpuard/internal/ui/projectfile"
)

// serviceJob makes the flags and the folder of a service those of this command, and returns its words. What the queue
// cannot do, because a job ends and a service is kept, is refused.
func serviceJob(p *cli.Program, cmd *cobra.Command, o *submitOptions, args []string) (words []string, err error) {
	if len(args) != 1 {
		return nil, fmt.Errorf("cannot queue %d services: name one, with all flags before it, such as gpuard submit -f %s train", len(args), o.file)
	}
	if err := refuseBesideFile(cmd, "nice", "notify", "private-state", "retry", "name"); err != nil {
		return nil, err
	}

	project, err := projectfile.LoadProject(p, o.file)
	if err != nil {
		return nil, err
	}

	s, i, err := projectfile.ProjectsOf(p).Instance(project, args[0])
	if err != nil {
		return nil, err
	}

	start := shellquote.JoinQuoted(shellquote.Sh, "gpuard", "up", "-d", "--file", o.file, s.Name)
	if why := beyondJob(s); why != "" {
		return nil, fmt.Errorf("cannot queue service %s: %s, which only gpuard up does; leave that out, or start it: %s", s.Name, why, start)
	}

	for _, flag := range i.Flags {
		name, _, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		if cmd.Flags().Lookup(name) == nil {
			return nil, fmt.Errorf("cannot queue service %s: %s is nothing that a job of the queue can have; leave it out, or start it: %s", s.Name, strings.ReplaceAll(name, "-", "_"), start)
		}
	}

	if err := cmd.Flags().Parse(i.Flags); err != nil {
		return nil, err
	}
	if err := os.Chdir(i.WorkDir); err != nil {
		return nil, fmt.Errorf("cannot queue service %s: its workdir: %w", s.Name, err)
	}

	p.Host.Project, o.name = project.Policy, cmp.Or(o.name, i.Name)

	// It was read without the file's defaults and rules.
	p.Host.ForgetConfig()
	p.Host.Env = p.Host.Env.With(varsOf(i.Env))

	return i.Command, nil
}

// refuseBesideFile is an error for a flag that -f FILE has in its place. Those of more are none.
func refuseBesideFile(cmd *cobra.Command, more ...string) (err error) {
	beside := append(more, "file", "json", "quiet", "machine", "array", "hold", "note", "after", "engine")
	if flag := flagset.FlagBeside(cmd, beside...); flag != "" {
		return fmt.Errorf("cannot use --%s with -f: the file says that; write it there, or leave -f out", flag)
	}
	return nil
}

// beyondJob is what a service asks for beyond a command that ends; "" nothing.
func beyondJob(s service.Service) string {
	switch {
	case s.Each || s.Replicas > 1:
		return "it has several instances"
	case s.Restart != service.Never:
		return "restart starts it again"
	case len(s.After) > 0:
		return "depends_on has it wait for other services"
	case s.Ready != nil || s.Healthy != nil:
		return "ready and healthy check it"
	}
	return ""
}

func varsOf(env []string) (list []visible.Var) {
	for _, pair := range env {
		name, value, _ := strings.Cut(pair, "=")
		list = append(list, visible.Var{Name: name, Value: value})
	}
	return list
}
