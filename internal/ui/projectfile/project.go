// Package projectfile reads a gpuard.yaml, and checks the options of each service with the parser of gpuard run.
package projectfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gpuard/internal/app/machine"
	"gpuard/internal/app/run"
	"gpuard/internal/app/services"
	"gpuard/internal/core/diagnostic"
	"gpuard/internal/core/policy"
	"gpuard/internal/core/service"
	"gpuard/internal/core/status"
	"gpuard/internal/core/suggest"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
	"gpuard/internal/ui/jobflags"
	"gpuard/internal/ui/planview"
	"gpuard/internal/ui/translate"
)

// LoadProject reads a project's file and checks the flags of every service with the parser of gpuard run, so that both
// accept the same. It returns all mistakes of the file together, and then nothing is started.
func LoadProject(p *cli.Program, file string) (*service.Project, error) {
	project, err := ProjectsOf(p).Load(file)
	wrong := &diagnostic.Many{}
	if err != nil && (!errors.As(err, &wrong) || project == nil) {
		return nil, AsMistake(err)
	}

	if err == nil {
		wrong.File = cmp.Or(file, filepath.Base(project.File))
	}

	for i := range project.Services {
		if m := checkService(&project.Services[i], project.Policy); m != nil && !slices.Contains(wrong.List, *m) {
			// A mistake in a default is reported once for all services.
			wrong.List = append(wrong.List, *m)
		}
	}

	if len(wrong.List) > 0 {
		return nil, failure.AsUsage(wrong)
	}

	return project, nil
}

// AsMistake gives mistakes of a file the exit code of wrong usage.
func AsMistake(err error) error {
	var wrong *diagnostic.Many
	if errors.As(err, &wrong) {
		return failure.AsUsage(err)
	}
	return err
}

// checkService returns the first mistake. A value with a template is checked when the instance is started.
func checkService(s *service.Service, defaults *policy.File) *diagnostic.One {
	trial := &cli.Program{Host: &machine.Host{Project: defaults}}
	o, cmd := newParser(trial)
	set := false
	for _, flag := range s.Flags {
		if strings.Contains(flag.Value, "{{") {
			continue
		}

		known := cmd.Flags().Lookup(flag.Name)
		if known == nil {
			// The key table of text/projectyaml is tested against the flags.
			continue
		}

		value := flag.Value
		if value == "" {
			value = known.NoOptDefVal
		}

		if err := cmd.Flags().Set(flag.Name, value); err != nil {
			return &diagnostic.One{Line: flag.Line, Column: flag.Column, Text: flagset.FlagsToKeys(flagset.ExplainError(cmd, err).Error())}
		}

		set = true
	}

	if !set && defaults == nil {
		return nil
	}

	if cmd.Flags().Lookup("log").Value.String() == "" {
		// Every service is supervised and has a log.
		_ = cmd.Flags().Set("log", s.Name)
	}

	err := checkFlags(trial, cmd, o, s.Name)
	if err == nil {
		return nil
	}

	var wrong *diagnostic.Many
	if errors.As(err, &wrong) && len(wrong.List) > 0 {
		return &wrong.List[0]
	}

	at := &diagnostic.One{Line: s.Line, Column: s.Column, Text: "service " + s.Name + ": " + flagset.FlagsToKeys(err.Error())}
	first := len(err.Error())
	for _, flag := range s.Flags {
		// The flag that the error names first.
		if i := strings.Index(err.Error()+" ", "--"+flag.Name); i >= 0 && i < first {
			first = i
			at.Line, at.Column, at.Text = flag.Line, flag.Column, flagset.FlagsToKeys(err.Error())
		}
	}

	return at
}

// newParser is the parser of the options of a service: those of gpuard run.
func newParser(p *cli.Program) (*jobflags.RunOptions, *cobra.Command) {
	o, cmd := &jobflags.RunOptions{}, &cobra.Command{Use: "service", Hidden: true}
	o.Add(p, cmd)
	return o, cmd
}

// KeeperWords are what the keepers of instances read and write for people.
func KeeperWords() services.Words {
	standing := func(s status.Standing) string { return planview.StandingLine(s, time.Now(), translate.Language{}, 0) }
	return services.Words{Read: readInstance, Standing: standing}
}

// readInstance reads what an instance asks for, which has a log.
func readInstance(ctx context.Context, host *machine.Host, i service.Instance) (task run.Task, err error) {
	p := &cli.Program{Host: host}
	o, cmd := newParser(p)
	cmd.SetContext(ctx)
	err = cmd.ParseFlags(i.Flags)
	if err != nil {
		return task, flagset.ExplainError(cmd, err)
	}

	err = flagset.RefuseEmpty(cmd)
	if err != nil {
		return task, err
	}

	spec, care, err := o.Parse(p, cmd, i.Command)
	if err != nil {
		return task, err
	}

	task.Spec, task.Care = spec, *care
	task.Oversight, err = o.ReadVerify(p, cmd)

	return task, err
}

// checkFlags checks the flags of a service that the command line has taken.
func checkFlags(trial *cli.Program, cmd *cobra.Command, o *jobflags.RunOptions, name string) error {
	err := flagset.RefuseEmpty(cmd)
	if err != nil {
		return err
	}

	share := cmd.Flags().Lookup("share").Value.String()
	if strings.HasSuffix(share, "%") {
		return fmt.Errorf("cannot read --share %q: a part of a GPU is only known on a command line; write a size, such as 8G", share)
	}

	_, _, err = o.Parse(trial, cmd, []string{name})

	return err
}

// ProjectsOf are the projects of this machine.
func ProjectsOf(p *cli.Program) *services.Projects { return &services.Projects{Host: p.Host} }

// UnknownService is the error for an unknown name, with the nearest known one.
func UnknownService(name, file string, known []string, otherwise string) error {
	if near := suggest.ClosestWord(name, known); near != "" {
		otherwise = "; did you mean " + near + "?"
	}
	return failure.Usagef("cannot find service %q in %s%s", name, file, otherwise)
}

// NeededServices returns the named services and their dependencies; all services if names is empty.
func NeededServices(project *service.Project, names []string) (map[string]bool, error) {
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
			return nil, UnknownService(line[0], project.File, known, "; it has "+strings.Join(known, ", "))
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
