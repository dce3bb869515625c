package projectcmd

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"gpuard/internal/app/services"
	"gpuard/internal/core/service"
	"gpuard/internal/core/shellquote"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/projectfile"
)

// ProjectFlags are the flags of the commands about a gpuard.yaml.
type ProjectFlags struct {
	File string
	JSON bool
}

// Add adds the flags; asJSON is the help of --json.
func (p *ProjectFlags) Add(cmd *cobra.Command, asJSON string) {
	cmd.Flags().StringVar(&p.File, "file", "", "the project's `FILE` (default: gpuard.yaml here or in a folder above, if no other user can write it)")
	cmd.Flags().BoolVar(&p.JSON, "json", false, asJSON)
}

// FindProject returns the folder of a project and its current view.
func FindProject(ctx context.Context, p *cli.Program, file string) (*services.Folder, *services.View, error) {
	folder, err := projectfile.ProjectsOf(p).FindFolder(file)
	if err != nil {
		return nil, nil, err
	}
	view, err := folder.ReadView(ctx)

	return folder, view, err
}

// FindInstances returns the folder of a project, its current view, and which of its instances the names mean.
func FindInstances(ctx context.Context, p *cli.Program, file string, names []string) (*services.Folder, *services.View, Selection, error) {
	folder, view, err := FindProject(ctx, p, file)
	if err != nil {
		return nil, nil, nil, err
	}

	mine, err := SelectInstances(view, names)

	return folder, view, mine, err
}

// Selection is the services and instances that were named. An empty selection is all.
type Selection []string

// Has reports whether an instance is meant.
func (s Selection) Has(row *services.Row) bool {
	return len(s) == 0 || slices.Contains(s, row.Name) || slices.Contains(s, serviceOf(row))
}

// serviceOf is the service of an instance, also of one that is not in the file any more.
func serviceOf(row *services.Row) string { return cmp.Or(row.Service, row.Record.Service) }

// SelectInstances checks names against a view.
func SelectInstances(view *services.View, names []string) (Selection, error) {
	var known, single []string
	for i := range view.Rows {
		known = append(known, serviceOf(&view.Rows[i]))
		single = append(single, view.Rows[i].Name)
	}
	for _, name := range names {
		if slices.Contains(known, name) || slices.Contains(single, name) {
			continue
		}
		if len(view.Rows) == 0 {
			return nil, failure.Usagef("cannot find service %q: %s", name, NothingUpText(view))
		}
		return nil, projectfile.UnknownService(name, view.File, append(known, single...), "; those that are up: gpuard ps")
	}

	return names, nil
}

// localServices is the project without the services that another engine gets, which is said.
func localServices(p *cli.Program, project *service.Project, names []string) (*service.Project, error) {
	here := project.LocalPart()
	for _, s := range project.Services {
		how := shellquote.JoinQuoted(shellquote.Sh, "gpuard", "submit", "-f", project.File, s.Name)
		switch {
		case !s.HasOtherEngine():
		case slices.Contains(names, s.Name) || len(here.Services) == 0:
			return nil, failure.Usagef("cannot start service %s on this machine: it is for %s; hand it in: %s", s.Name, s.Engine, how)
		case len(names) == 0:
			if err := p.PrintMessage("service " + s.Name + " is for " + s.Engine + " and is left out; hand it in: " + how); err != nil {
				return nil, err
			}
		}
	}
	return here, nil
}

// CompleteServices completes the services of the file for up, else those that are up; with single also their instances.
func CompleteServices(p *cli.Program, o *ProjectFlags, single bool) cobra.CompletionFunc {
	return cli.Complete(func(ctx context.Context, args []string, _ string) []string {
		var names []string
		if project, err := projectfile.ProjectsOf(p).Load(o.File); err == nil && !single {
			for _, s := range project.LocalPart().Services {
				names = append(names, s.Name)
			}
		} else if _, view, err := FindProject(ctx, p, o.File); err == nil {
			for i := range view.Rows {
				row := &view.Rows[i]
				names = append(names, serviceOf(row))
				if single {
					names = append(names, row.Name)
				}
			}
		}

		slices.Sort(names)

		return slices.DeleteFunc(slices.Compact(names), func(n string) bool { return slices.Contains(args, n) })
	})
}

// catchInterrupts catches the signals that end a program, except those that were ignored at its start: nohup ignores
// SIGHUP.
func catchInterrupts(more ...os.Signal) chan os.Signal {
	caught := make(chan os.Signal, 8)
	for _, s := range append([]os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}, more...) {
		if !signal.Ignored(s) {
			signal.Notify(caught, s)
		}
	}
	return caught
}

// interruptError is the error of a command that a signal ended. how says what continues without it.
type interruptError struct {
	sig os.Signal
	how string
}

func (i *interruptError) Error() string { return fmt.Sprintf("%s: %s", i.sig, i.how) }

// dieBySignal reports what continues, and ends this process by the signal, so that the calling script ends too.
func dieBySignal(p *cli.Program, i *interruptError) error {
	if i.how != "" {
		_ = p.PrintMessage(i.how)
	}
	number, _ := i.sig.(syscall.Signal)
	if number != syscall.SIGPIPE {
		// The Go runtime dies of SIGPIPE only after a write.
		signal.Reset(number)
		_ = syscall.Kill(syscall.Getpid(), number)

		// The signal arrives before that.
		time.Sleep(time.Second)
	}

	return &failure.CodedError{Err: &failure.ShownError{Err: i}, Code: 1}
}
