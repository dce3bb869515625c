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
	if starts(cmd) || p.leases(cmd) {
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

// starts reports whether the command leases for another program. Then gpuard's own exit codes begin at 120.
func starts(cmd *cobra.Command) bool {
	return takesCommand(cmd) || cmd != nil && (cmd.Name() == "hold" || cmd.Name() == "reserve")
}

// leases reports whether env has --lease. It reads the arguments, because the parser may have stopped before that flag.
func (p *Program) leases(cmd *cobra.Command) bool {
	return cmd != nil && cmd.Name() == "env" && (slices.Contains(p.Args, "--lease") || slices.Contains(p.Args, "--lease=true"))
}

// becomes reports whether the process becomes another program, which gets the remaining arguments and standard output.
func becomes(cmd *cobra.Command) bool {
	return cmd != nil && slices.Contains([]string{"run", "docker", "podman"}, cmd.Name())
}

// takesCommand reports whether the words after the command's flags belong to another program.
func takesCommand(cmd *cobra.Command) bool {
	return becomes(cmd) || cmd != nil && (slices.Contains([]string{"sweep", "submit", "compare"}, cmd.Name()) || cmd.HasParent() && cmd.Parent().Name() == "export")
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
so that no other job gets it, sets the right variables and starts your command.
Without a command it shows the machine.`,
		Example: `  gpuard run --mem 20G -- python train.py  run on a free GPU
  gpuard doctor                            will GPU programs run here?`,
		Version:       version(),
		Args:          unknownCommand,
		SilenceErrors: true, SilenceUsage: true,
	}
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if p.wantsJSON(cmd) { // text next to the object would not be JSON
			p.Host.Say = func(line string) { p.said = append(p.said, line) }
			p.Host.Loud = p.Host.Say
		}
		return refuseEmpty(cmd, "machine") // an empty shell variable must not mean the hardware
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
	commands := p.commands()
	switch i := slices.IndexFunc(commands, func(c command) bool { return len(p.Args) > 0 && c.name == p.Args[0] }); {
	case len(p.Args) == 1 && p.Args[0] == "--version":
		return root
	case i >= 0: // making all the others with their flags takes a twentieth of the time of a run
		if alone := commands[i].make(); !alone.HasSubCommands() { // the help of a group lists commands in columns as wide as for the whole tree
			root.AddCommand(alone)
			return root
		}
	}
	status := p.status()
	root.RunE = status.RunE
	root.Flags().AddFlagSet(status.Flags())
	for _, c := range commands {
		root.AddCommand(c.make())
	}
	root.InitDefaultHelpCmd()
	return root
}

// command is a name and the function that makes the command of that name.
type command struct {
	name string
	make func() *cobra.Command
}

// commands lists all commands in the order of the help. The hidden ones, which gpuard starts itself, are last.
func (p *Program) commands() []command {
	return []command{
		{"run", p.run}, {"docker", p.docker}, {"podman", p.podman}, {"sweep", p.sweep}, {"submit", p.submit}, {"export", p.export}, {"queue", p.queue}, {"wait", p.wait}, {"cancel", p.cancel}, {"history", p.history}, {"simulate", p.simulate}, {"compare", p.compare}, {"hold", p.hold}, {"reserve", p.reserve}, {"env", p.env}, {"release", p.release}, {"evict", p.evict},
		{"up", p.up}, {"ps", p.ps}, {"logs", p.logs}, {"restart", p.restart}, {"down", p.down},
		{"status", p.status}, {"top", p.top}, {"serve", p.serve}, {"explain", p.explain}, {"verify", p.verify}, {"doctor", p.doctor}, {"lint", p.lint},
		{"cdi", p.cdi}, {"setup", p.setup}, {"drain", p.drain}, {"undrain", p.undrain}, {"completion", p.completion},
		{"project-supervise", p.superviseProject}, {"project-keep", p.keepInstance},
	}
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
