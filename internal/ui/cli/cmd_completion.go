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
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/prose"
	"gpuard/internal/core/visible"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
	"gpuard/internal/ui/manual"
)

// completeWithin limits completion by the Tab key: a driver that hangs must not hang the shell.
const completeWithin = 2 * time.Second

// NewCompletionCommand makes gpuard completion.
func (p *Program) NewCompletionCommand() *cobra.Command {
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
				return failure.Usagef("cannot write a completion script: name the shell, such as gpuard completion %s", p.callerShell(shells))
			}
			if len(args) > 1 || !slices.Contains(shells, args[0]) {
				return failure.Usagef("cannot write a completion script for %q: name one shell: bash, zsh, fish or powershell", strings.Join(args, " "))
			}
			return completionScript(cmd.Root(), args[0], p.Out)
		},
	}
}

func completionScript(root *cobra.Command, shell string, w io.Writer) error {
	switch shell {
	case "bash":
		return manual.BashScript(root, w)
	case "zsh":
		return root.GenZshCompletion(w)
	case "fish":
		return root.GenFishCompletion(w, true)
	}
	return root.GenPowerShellCompletionWithDesc(w)
}

// Completions returns the completion scripts that gpuard can install, by the name of the shell. root has all commands.
func Completions(root *cobra.Command) (map[string]string, error) {
	scripts := map[string]string{}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		var b strings.Builder
		if err := completionScript(root, shell, &b); err != nil {
			return nil, err
		}
		scripts[shell] = b.String()
	}
	return scripts, nil
}

// callerShell is the caller's shell by $SHELL, or the first of known.
func (p *Program) callerShell(known []string) string {
	path, _ := p.Host.Env.Lookup("SHELL")
	if name := path[strings.LastIndex(path, "/")+1:]; slices.Contains(known, name) {
		return name
	}
	return known[0]
}

// Complete offers words that are found within completeWithin, and no files.
func Complete(offer func(ctx context.Context, args []string, typed string) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
		defer cancel()

		return offer(ctx, args, typed), flagset.NoFiles
	}
}

// CompleteDevices registers the completions of flags whose values are read from the machine.
func (p *Program) CompleteDevices(cmd *cobra.Command, flags ...string) {
	for _, name := range flags {
		of := DeviceNames
		if name == "model" || name == "mig" {
			of = namesOf(name == "mig")
		}
		_ = cmd.RegisterFlagCompletionFunc(name, Complete(func(ctx context.Context, _ []string, typed string) []string {
			m, err := leases.ReadIdentity(ctx, p.Host)
			if err != nil {
				return nil
			}
			return of(m, typed)
		}))
	}
}

// DeviceNames completes the last name of a list: with an index, or with a UUID if the word begins with a letter.
func DeviceNames(m gpu.Machine, typed string) (names []string) {
	before := typed[:strings.LastIndex(typed, ",")+1]
	last := strings.ToLower(typed[len(before):])
	offer := func(name, about string) {
		if !slices.Contains(strings.Split(before, ","), name) {
			names = append(names, before+name+"\t"+prose.Clean(about))
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

// namesOf are the models of a machine, or with profiles those of its MIG slices.
func namesOf(profiles bool) func(gpu.Machine, string) []string {
	return func(m gpu.Machine, _ string) (names []string) {
		for i := range m.Devices {
			if !profiles {
				names = append(names, prose.Clean(m.Devices[i].Name))
				continue
			}
			for _, s := range m.Devices[i].MIG {
				names = append(names, prose.Clean(s.Profile))
			}
		}

		slices.Sort(names)

		return slices.Compact(names)
	}
}

// completeMachines completes --machine: invented machines by name, recorded ones as files. A shell offers either names
// or files, so the list has the files of this folder too.
func completeMachines(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, offer := range []string{"demo\tfour A100", "demo:8xH100\teight H100", "demo:2xL4+1xH100\tdifferent models"} {
		if strings.HasPrefix(offer, typed) {
			names = append(names, offer)
		}
	}

	if len(names) == 0 {
		return nil, flagset.Files
	}

	// An unreadable folder offers nothing.
	entries, _ := os.ReadDir(".")
	for _, e := range entries {
		switch {
		case !strings.HasPrefix(e.Name(), typed) || strings.HasPrefix(e.Name(), "."):
		case e.IsDir():
			names = append(names, e.Name()+"/\tfolder")
		case strings.HasSuffix(e.Name(), ".json"):
			names = append(names, e.Name()+"\tfile")
		}
	}

	return names, flagset.NoFiles
}

// completeVariables completes the arguments of explain; a value follows without a space.
func completeVariables(_ *cobra.Command, _ []string, typed string) (names []string, _ cobra.ShellCompDirective) {
	for _, name := range visible.Variables() {
		if strings.HasPrefix(name, typed) {
			names = append(names, name+"=")
		}
	}
	return names, flagset.NoFiles | cobra.ShellCompDirectiveNoSpace
}

// CompleteExplain completes variables, and the caller's leases and processes.
func (p *Program) CompleteExplain(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	names, how := completeVariables(cmd, args, typed)
	if len(args) > 0 || len(names) > 0 && typed != "" {
		return names, how
	}

	jobs, _ := p.Jobs(cmd, args, typed)
	if typed == "" {
		// One directive is for all: without it a space would follow the variables.
		return append(names, jobs...), how
	}

	return jobs, flagset.NoFiles
}

// Jobs completes one of the caller's leases or processes.
func (p *Program) Jobs(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, flagset.NoFiles
	}
	if typed != "" && typed[0] >= '0' && typed[0] <= '9' {
		return leases.OwnProcesses(p.Host, typed), flagset.NoFiles
	}

	ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
	defer cancel()

	return append(leases.OwnLeases(ctx, p.Host), leases.OwnProcesses(p.Host, typed)...), flagset.NoFiles
}

// CompletePrograms completes the command of run: the first word as a program in PATH, the others as files.
func (p *Program) CompletePrograms(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 || typed == "" || strings.Contains(typed, "/") {
		return nil, flagset.Files
	}
	found := leases.ExecutablesInPath(p.Host, typed)
	if len(found) == 0 {
		return nil, flagset.Files
	}

	return found, flagset.NoFiles
}
