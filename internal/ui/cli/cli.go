// Package cli is the command line: flags in, app calls, text or JSON out. It decides nothing and touches no machine.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/app"
	"gpuard/internal/core/job"
)

// Program is what the process gives to the command line.
type Program struct {
	App      *app.App
	Out, Err io.Writer
	Args     []string // without the program's name
}

// failure carries an error together with the exit code that its command gives it.
type failure struct {
	err  error
	code int
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// Main runs one command and returns the exit code. A run that succeeds never returns: it has become the command.
func Main(ctx context.Context, p *Program) int {
	p.App.Say = func(line string) { fmt.Fprintln(p.Err, "gpuard: "+line) }
	root := p.root()
	root.SetArgs(p.Args)
	root.SetOut(p.Out)
	root.SetErr(p.Err)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	var f *failure
	if !errors.As(err, &f) {
		f = &failure{usage(cmd, err), 2}
		if starts(cmd) {
			f.code = 125
		}
	}
	p.complain(f.err)
	return f.code
}

// usage turns the flag parser's words into ours.
func usage(cmd *cobra.Command, err error) error {
	text := strings.TrimSpace(err.Error())
	if !strings.HasPrefix(text, "cannot ") {
		text = "cannot understand the command line: " + text
	}
	return fmt.Errorf("%s; see %s --help", text, cmd.CommandPath())
}

// starts reports whether the command becomes another program, so that its own exit codes begin at 120.
func starts(cmd *cobra.Command) bool { return cmd != nil && (cmd.Name() == "run" || cmd.Name() == "hold") }

func (p *Program) complain(err error) {
	var shown *silent
	var refusal *job.Refusal
	switch {
	case errors.As(err, &shown):
		return
	case errors.As(err, &refusal):
		Refusal(p.Err, refusal, p.term(p.Err))
		return
	}
	fmt.Fprintln(p.Err, "gpuard: "+err.Error())
	if r := app.Remedy(err); r != "" {
		fmt.Fprintln(p.Err, "gpuard: "+r)
	}
}

// report runs f and gives its error the exit code of commands that do not start a program.
func report(f func() error) error {
	if err := f(); err != nil {
		return &failure{err, app.PlainExit(err)}
	}
	return nil
}

func (p *Program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "gpuard",
		Short: "Choose, lease and prove GPUs on a shared machine",
		Long: `gpuard finds the GPUs of this machine, picks one that really is free, leases it so that nobody
else gets it, sets the right variables and starts your command. Without a command it shows the machine.`,
		Example: `  gpuard                                  what is free, and who has what
  gpuard run --mem 20G -- python train.py  run on a free GPU
  gpuard run --gpus 2 -- torchrun train.py
  gpuard explain CUDA_VISIBLE_DEVICES=0,0  what a program would see`,
		Version:       version(),
		Args:          cobra.NoArgs,
		SilenceErrors: true, SilenceUsage: true,
	}
	root.SetVersionTemplate("gpuard {{.Version}}\n")
	root.PersistentFlags().StringVar(&p.App.Machine, "machine", p.machineVariable(), "read this machine `file` (or demo, demo:4xA100-80GB) instead of the hardware")
	status := p.status()
	root.RunE = status.RunE
	root.Flags().AddFlagSet(status.Flags())
	root.AddCommand(p.run(), p.hold(), p.env(), p.release(), status, p.explain())
	root.CompletionOptions.HiddenDefaultCmd = false
	return root
}

func (p *Program) machineVariable() string {
	m, _ := p.App.Env.Lookup("GPUARD_MACHINE")
	return m
}

// version is what the build knows: the module's version for an installed program, the commit for a local build.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && v == "(devel)" {
			v = "devel " + s.Value[:min(12, len(s.Value))]
		}
	}
	return v
}

// term describes where w leads.
func (p *Program) term(w io.Writer) Term {
	file, ok := w.(*os.File)
	if !ok {
		return Term{Width: plainWidth}
	}
	return Terminal(file, p.App.Env)
}

// plainWidth is the width for files and pipes: nothing is cut there that a terminal of this width would show.
const plainWidth = 120
