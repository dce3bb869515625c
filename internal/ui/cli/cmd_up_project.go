package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"gpuard/internal/app/services"
	"gpuard/internal/core/service"
	"gpuard/internal/core/shellquote"
	"gpuard/internal/core/suggest"
)

// projectFlags are the flags of the commands about a gpuard.yaml.
type projectFlags struct {
	file string
	json bool
}

func (o *projectFlags) add(cmd *cobra.Command, asJSON string) {
	cmd.Flags().StringVar(&o.file, "file", "", "the project's `FILE` (default: gpuard.yaml here or in a folder above, if no other user can write it)")
	cmd.Flags().BoolVar(&o.json, "json", false, asJSON)
}

func (p *Program) projects() *services.Projects { return &services.Projects{Host: p.Host} }

// found returns the folder of a project and its current view.
func (p *Program) found(ctx context.Context, file string) (*services.Folder, *services.View, error) {
	folder, err := p.projects().Find(file)
	if err != nil {
		return nil, nil, err
	}
	view, err := folder.Look(ctx)
	return folder, view, err
}

// selection is the services and instances that were named. An empty selection is all.
type selection []string

func (s selection) has(row *services.Row) bool {
	return len(s) == 0 || slices.Contains(s, row.Name) || slices.Contains(s, serviceOf(row))
}

// serviceOf is the service of an instance, also of one that is not in the file any more.
func serviceOf(row *services.Row) string {
	if row.Service != "" {
		return row.Service
	}
	return row.Record.Service
}

// named checks names against a view.
func named(view *services.View, names []string) (selection, error) {
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
			return nil, usagef("cannot find service %q: %s", name, nothingUp(view))
		}
		return nil, unknownService(name, view.File, append(known, single...), "; those that are up: gpuard ps")
	}
	return names, nil
}

// unknownService is the error for an unknown name, with the nearest known one.
func unknownService(name, file string, known []string, otherwise string) error {
	if near := suggest.Word(name, known); near != "" {
		otherwise = "; did you mean " + near + "?"
	}
	return usagef("cannot find service %q in %s%s", name, file, otherwise)
}

// needed returns the named services and their dependencies; all services if names is empty.
func needed(project *service.Project, names []string) (map[string]bool, error) {
	all := map[string]*service.Service{}
	var known []string
	for i := range project.Services {
		s := &project.Services[i]
		all[s.Name], known = s, append(known, s.Name)
	}
	line := slices.Clone(names)
	if len(names) == 0 {
		line = known
	}
	out := map[string]bool{}
	for ; len(line) > 0; line = line[1:] {
		s := all[line[0]]
		if s == nil {
			return nil, unknownService(line[0], project.File, known, "; it has "+strings.Join(known, ", "))
		}
		if out[s.Name] {
			continue
		}
		out[s.Name] = true
		for _, d := range s.After {
			line = append(line, d.Service)
		}
	}
	return out, nil
}

// onlyHere is the project without the services that another engine gets, which is said.
func (p *Program) onlyHere(project *service.Project, names []string) (*service.Project, error) {
	here := project.Here()
	for _, s := range project.Services {
		how := shellquote.Words(shellquote.Sh, "gpuard", "submit", "-f", project.File, s.Name)
		switch {
		case !s.Elsewhere():
		case slices.Contains(names, s.Name) || len(here.Services) == 0:
			return nil, usagef("cannot start service %s on this machine: it is for %s; hand it in: %s", s.Name, s.Engine, how)
		case len(names) == 0:
			if err := p.tell("service " + s.Name + " is for " + s.Engine + " and is left out; hand it in: " + how); err != nil {
				return nil, err
			}
		}
	}
	return here, nil
}

// completeServices completes the services of the file for up, else those that are up; with single also their instances.
func (p *Program) completeServices(o *projectFlags, single bool) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
		defer cancel()
		var names []string
		if project, err := p.projects().Load(o.file); err == nil && cmd.Name() == "up" {
			for _, s := range project.Here().Services {
				names = append(names, s.Name)
			}
		} else if _, view, err := p.found(ctx, o.file); err == nil {
			for i := range view.Rows {
				row := &view.Rows[i]
				names = append(names, serviceOf(row))
				if single {
					names = append(names, row.Name)
				}
			}
		}
		slices.Sort(names)
		names = slices.DeleteFunc(slices.Compact(names), func(n string) bool { return slices.Contains(args, n) })
		return names, noFiles
	}
}

// interrupts catches the signals that end a program, except those that were ignored at its start: nohup ignores SIGHUP.
func interrupts(more ...os.Signal) chan os.Signal {
	caught := make(chan os.Signal, 8)
	for _, s := range append([]os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}, more...) {
		if !signal.Ignored(s) {
			signal.Notify(caught, s)
		}
	}
	return caught
}

// interrupted is the error of a command that a signal ended. how says what continues without it.
type interrupted struct {
	sig os.Signal
	how string
}

func (i *interrupted) Error() string { return fmt.Sprintf("%s: %s", i.sig, i.how) }

// dieOf reports what continues, and ends this process by the signal, so that the calling script ends too.
func (p *Program) dieOf(i *interrupted) error {
	if i.how != "" {
		_ = p.tell(i.how)
	}
	number, _ := i.sig.(syscall.Signal)
	if number != syscall.SIGPIPE { // the Go runtime dies of SIGPIPE only after a write
		signal.Reset(number)
		_ = syscall.Kill(syscall.Getpid(), number)
		time.Sleep(time.Second) // the signal arrives before that
	}
	return &failure{&silent{i}, 1}
}
