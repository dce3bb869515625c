// Package cli is the command line. It reads the flags, calls package app, and writes the result as text or JSON. It
// makes no decisions and does not touch the machine.
//
//	p := &cli.Program{App: a, Out: os.Stdout, Err: os.Stderr, Args: os.Args[1:]}
//	os.Exit(cli.Main(ctx, p))
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"

	"github.com/spf13/cobra"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
)

// Program is one call of gpuard: the app, the outputs and the arguments.
type Program struct {
	Host     *machine.Host
	Out, Err io.Writer
	Args     []string // without the program's name
	Views    Views    // what only gpuard-view has

	filling filling  // flags that configuration files set
	said    []string // remarks for the JSON answer
}

// tell writes a message to standard error, on a terminal broken between words. Errors, whose commands are copied, are
// left to the terminal.
func (p *Program) tell(text string) error {
	const lead = "gpuard: "
	t := p.term(p.Err)
	if !t.TTY {
		_, err := fmt.Fprintln(p.Err, lead+text)
		return err
	}
	lines := page{term: t}
	lines.paragraph(span{normal, lead}, normal, text)
	_, err := io.WriteString(p.Err, lines.out.String())
	return err
}

// Main runs one command and returns the exit code. A successful gpuard run does not return: the process becomes the
// command.
func Main(ctx context.Context, p *Program) int {
	p.Host.Say = func(line string) { _ = p.tell(line) }
	p.Host.Loud = p.Host.Say
	out := &checkedWriter{Writer: p.Out}
	p.Out = out
	root := p.root()
	p.Args = joinWait(root, p.Args)
	root.SetArgs(p.Args)
	root.SetOut(p.Out)
	root.SetErr(p.Err)
	if len(p.Args) > 0 && p.Args[0] == cobra.ShellCompRequestCmd {
		unquoteUsages(root)
	}
	cmd, err := root.ExecuteContextC(ctx)
	broken, misused := 1, 2
	if kindOf(cmd) > kindAnswer {
		broken, misused = 125, 125
	}
	if out.err != nil {
		fmt.Fprintln(p.Err, "gpuard: cannot write the answer: "+out.err.Error())
		return broken
	}
	if err == nil {
		return 0
	}
	var f *failure
	if !errors.As(err, &f) {
		f = &failure{err, misused}
	}
	p.showError(cmd, f)
	p.failEval(cmd)
	return f.code
}

// report runs f and gives its error the exit code of commands that do not start a program.
func report(f func() error) error {
	if err := f(); err != nil {
		return &failure{err, exit.Plain(err)}
	}
	return nil
}

func (p *Program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "gpuard",
		Short: "Choose, lease and prove GPUs on a shared machine",
		Long: `gpuard finds the GPUs of this machine, picks one that really is free, leases it
so that no other job gets it, sets the right variables and starts your command.`,
		Example:       `  gpuard run -- python train.py`,
		Version:       version(),
		SilenceErrors: true, SilenceUsage: true,
	}
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if p.wantsJSON(cmd) { // text next to the object would not be JSON
			p.Host.Say = func(line string) { p.said = append(p.said, line) }
			p.Host.Loud = p.Host.Say
		}
		if err := refuseEmpty(cmd); err != nil {
			return asUsage(err)
		}
		return nil
	}
	root.SetVersionTemplate("gpuard {{.Version}}\n")
	root.PersistentFlags().StringVar(&p.Host.Machine, "machine", p.machineVariable(), "use this machine `FILE`, or demo, or demo:4xA100-80GB, instead of the hardware")
	_ = root.RegisterFlagCompletionFunc("machine", machines)
	root.PersistentFlags().BoolP("help", "h", false, "show this text")
	root.Flags().BoolP("version", "v", false, "print the version")
	root.SetFlagErrorFunc(flagError)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { fmt.Fprint(cmd.OutOrStdout(), shortHelp(cmd, p.helpWidth())) })
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(p.helpCommand())
	commands := commandTable()
	switch i := slices.IndexFunc(commands, func(c command) bool { return len(p.Args) > 0 && c.name == p.Args[0] }); {
	case len(p.Args) == 1 && p.Args[0] == "--version":
		return root
	case i >= 0: // making all the others with their flags takes a twentieth of the time of a run
		if alone := commands[i].make(p); !alone.HasSubCommands() { // the help of a group lists commands in columns as wide as for the whole tree
			root.AddCommand(alone)
			return root
		}
	}
	status := p.status()
	root.RunE = status.RunE
	root.Args = func(cmd *cobra.Command, args []string) error {
		if isSet(cmd, "watch") { // gpuard --watch 1s
			return status.Args(cmd, args)
		}
		return unknownCommand(cmd, args)
	}
	root.Flags().AddFlagSet(status.Flags())
	for _, c := range commands {
		root.AddCommand(c.make(p))
	}
	root.InitDefaultHelpCmd()
	return root
}

func (p *Program) machineVariable() string {
	m, _ := p.Host.Env.Lookup("GPUARD_MACHINE")
	return m
}

// released is the version of a release build; the linker sets it (cmd/release).
var released string

// version is the version of a release, else that of the module for an installed program, else the commit of a local
// build.
func version() string {
	if released != "" {
		return released
	}
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

// term describes the terminal of w. What is not a file has the width of COLUMNS, else 80.
func (p *Program) term(w io.Writer) Term {
	if out, ok := w.(*checkedWriter); ok {
		w = out.Writer
	}
	file, ok := w.(*os.File)
	if !ok {
		return Term{Width: number(p.Host.Env, "COLUMNS", usualWidth)}
	}
	return Terminal(file, p.Host.Env)
}
