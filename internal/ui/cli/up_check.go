package cli

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/app"
	"gpuard/internal/core/service"
)

// checkFlags has gpuard run look at the flags of every service, so that both understand the same, and nothing is started of a
// file with a mistake in it.
func checkFlags(project *service.Project) error {
	wrong := &service.Mistakes{File: filepath.Base(project.File)}
	for i := range project.Services {
		if m := checkService(&project.Services[i]); m != nil {
			wrong.List = append(wrong.List, *m)
		}
	}
	if len(wrong.List) > 0 {
		return asUsage(wrong)
	}
	return nil
}

// checkService finds the first mistake. A value that becomes another one for each instance is looked at when that is started.
func checkService(s *service.Service) *service.Mistake {
	trial := &Program{App: &app.App{}}
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
			return &service.Mistake{Line: flag.Line, Column: flag.Column, Text: keyed(misread(cmd, err).Error())}
		}
		set = true
	}
	if !set {
		return nil
	}
	if cmd.Flags().Lookup("log").Value.String() == "" { // every service has one, and somebody beside it who ends it
		_ = cmd.Flags().Set("log", s.Name)
	}
	_, _, err := o.read(trial, cmd, []string{s.Name})
	if err == nil && cmd.Flags().Changed("verify") {
		if _, err = oversight(o.verify); err == nil {
			err = together(cmd, []conflict{{"verify", "cpu", "--cpu asks for no GPU at all"}})
		}
	}
	if err == nil {
		return nil
	}
	at := &service.Mistake{Line: s.Line, Column: s.Column, Text: "service " + s.Name + ": " + keyed(err.Error())}
	first := len(err.Error())
	for _, flag := range s.Flags { // the one that is named first
		if i := strings.Index(err.Error()+" ", "--"+flag.Name); i >= 0 && i < first {
			first = i
			at.Line, at.Column, at.Text = flag.Line, flag.Column, keyed(err.Error())
		}
	}
	return at
}

// keyed says of keys of a file what was said of flags.
func keyed(text string) string {
	text = strings.TrimPrefix(text, "cannot read ")
	key := func(name string) string { return strings.ReplaceAll(name, "-", "_") }
	return flagWord().ReplaceAllStringFunc(text, func(word string) string {
		name, value, given := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		if given {
			return key(name) + ": " + value
		}
		if name, value, given = strings.Cut(name, " "); given {
			if word != example(name) {
				return key(name) + " " + value
			}
			return key(name) + ": " + value
		}
		return key(name)
	})
}

// flagWord is a flag, with its value where that follows behind an equals sign, or in an example.
func flagWord() *regexp.Regexp {
	return regexp.MustCompile(`--[a-z][a-z-]*(=[^\s,;]*| [^\s,;]+)?`)
}
