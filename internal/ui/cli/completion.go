package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gpuard/internal/app/leases"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/visible"
)

const (
	noFiles = cobra.ShellCompDirectiveNoFileComp
	files   = cobra.ShellCompDirectiveDefault
)

// completeWithin: nobody waits longer for a Tab; a driver that hangs must not hang the shell.
const completeWithin = 2 * time.Second

// completion prints the script that a shell needs.
func (p *Program) completion() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print the completion script of a shell",
		Long: `Prints a script that completes commands, flags, devices and leases with the Tab
key, for bash, zsh, fish or powershell.`,
		Example: `  source <(gpuard completion bash)         # in ~/.bashrc
  source <(gpuard completion zsh)          # in ~/.zshrc, after compinit
  gpuard completion fish | source          # in ~/.config/fish/config.fish`,
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("cannot write a completion script: name the shell, such as gpuard completion %s", p.shell(shells))
			}
			if len(args) > 1 || !slices.Contains(shells, args[0]) {
				return fmt.Errorf("cannot write a completion script for %q: name one shell: bash, zsh, fish or powershell", strings.Join(args, " "))
			}
			return report(func() error { return completionScript(cmd.Root(), args[0], p.Out) })
		},
	}
}

func completionScript(root *cobra.Command, shell string, w io.Writer) error {
	switch shell {
	case "bash":
		return bashScript(root, w)
	case "zsh":
		return root.GenZshCompletion(w)
	case "fish":
		return root.GenFishCompletion(w, true)
	}
	return root.GenPowerShellCompletionWithDesc(w)
}

// Completions are the scripts of the shells whose folders for them gpuard knows, by the shell's name.
func Completions() (map[string]string, error) {
	scripts := map[string]string{}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		var b strings.Builder
		if err := completionScript((&Program{Host: &machine.Host{}}).root(), shell, &b); err != nil {
			return nil, err
		}
		scripts[shell] = b.String()
	}
	return scripts, nil
}

// shell is the one that the caller uses, as far as SHELL says.
func (p *Program) shell(known []string) string {
	path, _ := p.Host.Env.Lookup("SHELL")
	if name := path[strings.LastIndex(path, "/")+1:]; slices.Contains(known, name) {
		return name
	}
	return known[0]
}

// completeWords registers what is usual for the flags that supervise and look back, as far as the command has them.
func completeWords(cmd *cobra.Command) {
	words := map[string][]string{
		"timeout": {"30m", "2h", "12h", "1d"}, "time": {"30m", "2h", "12h", "1d"}, "retry": {"1", "2", "3", "2:any"}, "log-limit": {"10M", "100M", "1G"},
		"grace": {"10s", "30s", "2m"}, "idle": {"30m", "2h", "1d"},
	}
	for name, list := range words {
		if cmd.Flags().Lookup(name) != nil {
			_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(list, noFiles))
		}
	}
}

// completeSpec registers what the flags of a choice can be completed with.
func (p *Program) completeSpec(cmd *cobra.Command) {
	words := map[string][]string{"place": {"spread", "packed"}, "ids": {"auto", "uuid", "index"}, "gpus": nil, "mem": {"8G", "16G", "24G", "40G", "80G"}, "share": {"4G", "8G", "16G", "24G"}, "min-compute": {"7.5", "8.0", "8.6", "8.9", "9.0", "10.0"}}
	for name, list := range words {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(list, noFiles))
	}
	for name, of := range map[string]func(gpu.Machine, string) []string{"device": deviceNames, "exclude": deviceNames, "model": modelNames, "mig": profileNames} {
		_ = cmd.RegisterFlagCompletionFunc(name, func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
			defer cancel()
			m, err := leases.Look(ctx, p.Host)
			if err != nil {
				return nil, noFiles
			}
			return of(m, typed), noFiles
		})
	}
}

// deviceNames completes the last name of a list: numbers, or identifiers when the beginning of one is typed.
func deviceNames(m gpu.Machine, typed string) (names []string) {
	before := typed[:strings.LastIndex(typed, ",")+1]
	last := strings.ToLower(typed[len(before):])
	offer := func(name, about string) {
		if !slices.Contains(strings.Split(before, ","), name) {
			names = append(names, before+name+"\t"+gpu.Clean(about))
		}
	}
	for i := range m.Devices {
		d := &m.Devices[i]
		if last == "" || last[0] >= '0' && last[0] <= '9' {
			offer(fmt.Sprint(d.Index), d.Name)
			continue
		}
		offer(string(d.UUID), fmt.Sprintf("GPU %d, %s", d.Index, d.Name))
		for _, s := range d.MIG {
			offer(string(s.UUID), fmt.Sprintf("%s of GPU %d", s.Profile, d.Index))
		}
	}
	return names
}

func modelNames(m gpu.Machine, _ string) (names []string) {
	for i := range m.Devices {
		names = append(names, gpu.Clean(m.Devices[i].Name))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func profileNames(m gpu.Machine, _ string) (names []string) {
	for i := range m.Devices {
		for _, s := range m.Devices[i].MIG {
			names = append(names, gpu.Clean(s.Profile))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// machines completes --machine: the invented ones by name, recorded ones as files. A shell offers no files beside
// names, so that files of this folder are among the names where both could be meant.
func machines(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, offer := range []string{"demo\tfour A100", "demo:8xH100\teight H100", "demo:2xL4+1xH100\tdifferent models"} {
		if strings.HasPrefix(offer, typed) {
			names = append(names, offer)
		}
	}
	if len(names) == 0 {
		return nil, files
	}
	entries, _ := os.ReadDir(".") // an unreadable folder offers nothing
	for _, e := range entries {
		switch {
		case !strings.HasPrefix(e.Name(), typed) || strings.HasPrefix(e.Name(), "."):
		case e.IsDir():
			names = append(names, e.Name()+"/\tfolder")
		case strings.HasSuffix(e.Name(), ".json"):
			names = append(names, e.Name()+"\tfile")
		}
	}
	return names, noFiles
}

// variables completes the arguments of explain; a value follows without a space.
func variables(_ *cobra.Command, _ []string, typed string) (names []string, _ cobra.ShellCompDirective) {
	for _, name := range visible.Variables() {
		if strings.HasPrefix(name, typed) {
			names = append(names, name+"=")
		}
	}
	return names, noFiles | cobra.ShellCompDirectiveNoSpace
}

// explainable completes variables, and one's own leases and processes.
func (p *Program) explainable(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	names, how := variables(cmd, args, typed)
	if len(args) > 0 || len(names) > 0 && typed != "" {
		return names, how
	}
	jobs, _ := p.jobs(cmd, args, typed)
	if typed == "" { // they would take the blank away from the variables
		return append(names, jobs...), how
	}
	return jobs, noFiles
}

// jobs completes one lease or process of one's own.
func (p *Program) jobs(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, noFiles
	}
	if typed != "" && typed[0] >= '0' && typed[0] <= '9' {
		return leases.OwnProcesses(p.Host, typed), noFiles
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
	defer cancel()
	return append(leases.OwnLeases(ctx, p.Host), leases.OwnProcesses(p.Host, typed)...), noFiles
}

// ownProcesses completes one process of one's own.
func (p *Program) ownProcesses(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, noFiles
	}
	return leases.OwnProcesses(p.Host, typed), noFiles
}

// programs completes the command of run: the first word like a shell does, files after it.
func (p *Program) programs(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 || typed == "" || strings.Contains(typed, "/") {
		return nil, files
	}
	found := leases.Programs(p.Host, typed)
	if len(found) == 0 {
		return nil, files
	}
	return found, noFiles
}
