package batchcmd

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpuard/internal/app/remote"
	"gpuard/internal/core/shellquote"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/flagset"
)

// scriptSize is how much of a script is looked at for its flags, in bytes: they stand in front of its first command.
const scriptSize = 64 << 10

// scriptFlags sets the flags that a script has in lines such as "#GPUARD --gpus 2 --mem 20G", as those of sbatch, and what
// its #SBATCH lines mean on one machine. Flags of the command line count more.
func scriptFlags(p *cli.Program, cmd *cobra.Command, path string) error {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe without a writer would stop us
	if err != nil {
		return nil //nolint:nilerr // a program of PATH; whether it is there is asked later
	}
	defer file.Close() //nolint:errcheck // read only
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil //nolint:nilerr // likewise
	}
	text := make([]byte, scriptSize)
	n, _ := file.Read(text)
	if !strings.HasPrefix(string(text[:n]), "#") { // a program, or a script without any
		return nil
	}
	asked, number := Submit(p), 0
	foreign := "" // a line that was meant for gpuard, as it seems
	for line := range strings.Lines(string(text[:n])) {
		number++
		zero := strings.IndexByte(line, 0)
		line = strings.TrimSpace(line)
		if line != "" && line[0] != '#' {
			break
		}
		rest, ours := strings.CutPrefix(line, "#GPUARD")
		if !ours || rest != "" && rest[0] != ' ' && rest[0] != '\t' {
			if almost(line) && foreign == "" {
				foreign = fmt.Sprintf("%s, line %d is not read: flags of gpuard stand in lines that begin with #GPUARD, such as #GPUARD --gpus 2", path, number)
			}
			continue
		}
		if zero >= 0 {
			return fmt.Errorf("cannot read %s, line %d, column %d: there is a NUL character, which no argument can have", path, number, zero+1)
		}
		if err := scriptLine(asked, rest); err != nil {
			return fmt.Errorf("cannot read %s, line %d: %w", path, number, err)
		}
	}
	if foreign != "" {
		_ = p.Tell(foreign)
	}
	if err := readSlurmLines(p, cmd, asked, path, string(text[:n])); err != nil {
		return err
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
	return err
}

// readSlurmLines sets flags that the #SBATCH lines of a script ask for, and says which of these lines have no effect here. Lines
// of gpuard count more.
func readSlurmLines(p *cli.Program, cmd, asked *cobra.Command, path, text string) error {
	flags, without, err := remote.SlurmLines(text)
	if err != nil {
		return fmt.Errorf("cannot read %s, %w", path, err)
	}
	var set []string
	said := flagsSaid(cmd, asked)
	for _, flag := range flags {
		name, value, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		if said[name] {
			continue
		}
		if name == "cpu" || name == "hold" {
			value = "true"
		}
		if err := asked.Flags().Set(name, value); err != nil {
			return fmt.Errorf("cannot read the #SBATCH lines of %s: %w", path, err)
		}
		set = append(set, flag)
	}
	var says []string
	if len(set) > 0 {
		says = append(says, "count as "+shellquote.Words(shellquote.Sh, set...))
	}
	if len(without) > 0 {
		says = append(says, "have no effect: "+strings.Join(without, ", "))
	}
	if len(says) > 0 {
		_ = p.Tell("the #SBATCH lines of " + path + " " + strings.Join(says, "; these "))
	}
	return nil
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

// almost reports whether a comment looks like flags of gpuard.
func almost(line string) bool {
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
