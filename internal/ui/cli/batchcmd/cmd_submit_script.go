package batchcmd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpuard/internal/app/remote"
	"gpuard/internal/core/shellquote"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/flagset"
	"gpuard/internal/ui/jobflags"
)

// slurmLines is what became of the #SBATCH lines of a script.
type slurmLines struct {
	path string
	// Flags of gpuard that they count as.
	flags []string
	// The type of the GPUs in Slurm's own word; "" for any.
	kind string
	// Options that Slurm alone can follow.
	cluster []string
	// Those that have no effect.
	without []string
}

// scriptFlags sets the flags that the script of a command has in lines such as "#GPUARD --gpus 2 --mem 20G", as those
// of sbatch, and what its #SBATCH lines mean for gpuard. Flags of the command line count more. A service of a file has none.
func scriptFlags(p *cli.Program, cmd *cobra.Command, file string, command []string) (*slurmLines, error) {
	if file != "" {
		return &slurmLines{}, nil
	}

	path, head, lines := jobflags.ScriptOf(command)
	if path == "" {
		return &slurmLines{}, nil
	}

	asked := NewSubmitCommand(p)

	// A line that was meant for gpuard, as it seems.
	foreign := ""
	for i, line := range lines {
		rest, ours := jobflags.FlagsIn(line)
		zero := strings.IndexByte(line, 0)
		switch {
		case !ours && looksLikeFlags(line) && foreign == "":
			foreign = fmt.Sprintf("%s, line %d is not read: flags of gpuard stand in lines that begin with #GPUARD, such as #GPUARD --gpus 2", path, i+1)
		case !ours:
		case zero >= 0:
			return nil, fmt.Errorf("cannot read %s, line %d, column %d: there is a NUL character, which no argument can have", path, i+1, zero+1)
		default:
			if err := scriptLine(asked, rest); err != nil {
				return nil, fmt.Errorf("cannot read %s, line %d: %w", path, i+1, err)
			}
		}
	}

	late := strings.Split(head, "\n")[len(lines):]
	at := slices.IndexFunc(late, func(line string) bool {
		flags, ours := jobflags.FlagsIn(line)
		return ours && strings.TrimSpace(flags) != ""
	})

	if at >= 0 && foreign == "" {
		foreign = fmt.Sprintf("%s, line %d is not read: lines with #GPUARD stand before the first command", path, len(lines)+at+1)
	}

	if foreign != "" {
		_ = p.PrintMessage(foreign)
	}

	slurm, err := readSlurmLines(cmd, asked, path, head)
	if err != nil {
		return nil, err
	}

	asked.Flags().Visit(func(f *pflag.Flag) {
		value := f.Value.String()
		if list, ok := f.Value.(pflag.SliceValue); ok {
			value = strings.Join(list.GetSlice(), ",")
		}
		if err == nil && !cmd.Flags().Changed(f.Name) {
			err = cmd.Flags().Set(f.Name, value)
		}
	})

	return slurm, err
}

// readSlurmLines sets flags that the #SBATCH lines of a script ask for. Lines of gpuard count more.
func readSlurmLines(cmd, asked *cobra.Command, path, text string) (*slurmLines, error) {
	options, err := remote.ReadSlurmLines(text)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s, %w", path, err)
	}

	lines := &slurmLines{path: path, kind: options.Type, cluster: options.Cluster, without: options.Without}
	said := flagsSaid(cmd, asked)
	for _, flag := range options.Flags {
		name, value, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		if said[name] {
			continue
		}

		if name == "cpu" || name == "hold" {
			value = "true"
		}

		if err := asked.Flags().Set(name, value); err != nil {
			return nil, fmt.Errorf("cannot read the #SBATCH lines of %s: %w", path, err)
		}

		lines.flags = append(lines.flags, flag)
	}

	return lines, nil
}

// gpuType is the type of the GPUs in Slurm's own word, where nothing else says which model they are.
func (l *slurmLines) gpuType() string {
	if slices.ContainsFunc(l.flags, func(flag string) bool { return strings.HasPrefix(flag, "--model=") }) {
		return l.kind
	}
	return ""
}

// directivesFor are the options that Slurm gets as they are, and none where the job goes elsewhere.
func (l *slurmLines) directivesFor(isSlurm bool) []string {
	if !isSlurm {
		return nil
	}
	return l.cluster
}

// sayTo says which of the lines count as what, where the directives are handed on.
func (l *slurmLines) sayTo(p *cli.Program, directives []string) {
	without := slices.Clone(l.without)
	for _, option := range l.cluster {
		if !slices.Contains(directives, option) {
			without = append(without, option)
		}
	}

	var says []string
	if len(l.flags) > 0 {
		says = append(says, "count as "+shellquote.JoinQuoted(shellquote.Sh, l.flags...))
	}

	if len(directives) > 0 {
		says = append(says, "are for Slurm: "+strings.Join(directives, ", "))
	}

	if len(without) > 0 {
		says = append(says, "have no effect: "+strings.Join(without, ", "))
	}

	if len(says) > 0 {
		_ = p.PrintMessage("the #SBATCH lines of " + l.path + " " + strings.Join(says, "; these "))
	}
}

// flagsSaid are the flags that the command line or a line of gpuard has. Of those about which GPUs one replaces all.
func flagsSaid(by ...*cobra.Command) map[string]bool {
	said := map[string]bool{}
	for _, c := range by {
		c.Flags().Visit(func(f *pflag.Flag) { said[f.Name] = true })
	}

	which := []string{"gpus", "model", "cpu", "device", "mig"}
	if slices.ContainsFunc(which, func(name string) bool { return said[name] }) {
		for _, name := range which {
			said[name] = true
		}
	}

	return said
}

// looksLikeFlags reports whether a comment looks like flags of gpuard.
func looksLikeFlags(line string) bool {
	text := strings.ToUpper(strings.TrimLeft(line, "# \t"))
	return strings.HasPrefix(text, "GPUARD -") && !strings.HasPrefix(line, "#GPUARD ")
}

// scriptLine reads the flags of one line.
func scriptLine(asked *cobra.Command, line string) error {
	words, err := shellquote.SplitBeforeComment(line)
	if err != nil {
		return err
	}
	if err := asked.ParseFlags(words); err != nil {
		return err
	}
	if err := flagset.RefuseEmpty(asked); err != nil {
		return err
	}
	if extra := asked.Flags().Args(); len(extra) > 0 {
		return fmt.Errorf("%q is no flag; the command is the script itself", extra[0])
	}

	return nil
}
