package cli

import (
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/diagnostic"
	"gpuard/internal/core/policy"
	"gpuard/internal/core/service"
)

// load reads a project's file and checks the flags of every service with the parser of gpuard run, so that both accept
// the same. It returns all mistakes of the file together, and then nothing is started.
func (p *Program) load(file string) (*service.Project, error) {
	project, err := p.projects().Load(file)
	wrong := &diagnostic.Many{}
	if err != nil && (!errors.As(err, &wrong) || project == nil) {
		return nil, asMistake(err)
	}
	if err == nil {
		wrong.File = orElse(file, filepath.Base(project.File))
	}
	for i := range project.Services {
		if m := checkService(&project.Services[i], project.Policy); m != nil && !slices.Contains(wrong.List, *m) { // a mistake in a default is reported once for all services
			wrong.List = append(wrong.List, *m)
		}
	}
	if len(wrong.List) > 0 {
		return nil, asUsage(wrong)
	}
	return project, nil
}

// asMistake gives mistakes of a file the exit code of wrong usage.
func asMistake(err error) error {
	var wrong *diagnostic.Many
	if errors.As(err, &wrong) {
		return asUsage(err)
	}
	return err
}

// checkService returns the first mistake. A value with a template is checked when the instance is started.
func checkService(s *service.Service, defaults *policy.File) *diagnostic.One {
	trial := &Program{Host: &machine.Host{Project: defaults}}
	o := &runOptions{}
	cmd := &cobra.Command{Use: "run"}
	o.add(trial, cmd)
	set := false
	for _, flag := range s.Flags {
		if strings.Contains(flag.Value, "{{") {
			continue
		}
		known := cmd.Flags().Lookup(flag.Name)
		if known == nil { // the key table of text/project is tested against the flags
			continue
		}
		value := flag.Value
		if value == "" {
			value = known.NoOptDefVal
		}
		if err := cmd.Flags().Set(flag.Name, value); err != nil {
			return &diagnostic.One{Line: flag.Line, Column: flag.Column, Text: asKeys(flagError(cmd, err).Error())}
		}
		set = true
	}
	if !set && defaults == nil {
		return nil
	}
	if cmd.Flags().Lookup("log").Value.String() == "" { // every service is supervised and has a log
		_ = cmd.Flags().Set("log", s.Name)
	}
	err := refuseEmpty(cmd)
	if err == nil {
		_, _, err = o.parse(trial, cmd, []string{s.Name})
	}
	if err == nil && cmd.Flags().Changed("verify") {
		if _, err = oversight(o.verify); err == nil {
			err = refuseTogether(cmd, []conflict{{"verify", "cpu", "--cpu asks for no GPU at all"}})
		}
	}
	if err == nil {
		return nil
	}
	var wrong *diagnostic.Many
	if errors.As(err, &wrong) && len(wrong.List) > 0 {
		return &wrong.List[0]
	}
	at := &diagnostic.One{Line: s.Line, Column: s.Column, Text: "service " + s.Name + ": " + asKeys(err.Error())}
	first := len(err.Error())
	for _, flag := range s.Flags { // the flag that the error names first
		if i := strings.Index(err.Error()+" ", "--"+flag.Name); i >= 0 && i < first {
			first = i
			at.Line, at.Column, at.Text = flag.Line, flag.Column, asKeys(err.Error())
		}
	}
	return at
}

// asKeys rewrites flags in an error as the keys of a file.
func asKeys(text string) string {
	text = strings.TrimPrefix(text, "cannot read ")
	return flagWord().ReplaceAllStringFunc(text, func(word string) string {
		lead, flag, _ := strings.Cut(word, "--")
		end := strings.IndexAny(flag+" ", "= ")
		key, value := strings.ReplaceAll(flag[:end], "-", "_"), flag[end:]
		if strings.HasPrefix(value, "=") || lead != "" && value != "" {
			value = ": " + value[1:]
		}
		return lead + key + value
	})
}

// flagWord matches a flag. It includes a value after a space only in an example of what to type.
func flagWord() *regexp.Regexp {
	const value = `[^\s;]*[^\s;,:]`
	return regexp.MustCompile(`(\b(such as|write|instance|or) )?--[a-z][a-z-]*(=` + value + `| ` + value + `)?`)
}
