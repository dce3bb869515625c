// Package cli is the command line without its commands: it makes them, runs one, and writes its error or its answer as
// text or JSON. It makes no decisions and does not touch the machine. The commands are in the packages below it, and in
// package commands.
//
//	p := &cli.Program{Host: host, Commands: commands.CommandTable(), Out: os.Stdout, Err: os.Stderr, Args: os.Args[1:]}
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

	"gpuard/internal/app/machine"
	"gpuard/internal/ui/cmdtable"
	"gpuard/internal/ui/console"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
	"gpuard/internal/ui/manual"
	"gpuard/internal/ui/translate"
)

// Program is one call of gpuard: the app, the outputs and the arguments.
type Program struct {
	Host     *machine.Host
	Out, Err io.Writer
	// The words without the program's name.
	Args []string
	// The commands in the order of the help.
	Commands []Command
	// What only gpuard-view has.
	Views Views

	// What configuration files set.
	Defaults defaults
	// The remarks on what was done, for the JSON answer.
	Remarks []string

	language translate.Language
}

// PrintMessage writes a message to standard error, on a terminal broken between words. Errors, whose commands are
// copied, are left to the terminal.
func (p *Program) PrintMessage(text string) error {
	const lead = "gpuard: "
	t := p.Term(p.Err)
	if !t.TTY {
		_, err := fmt.Fprintln(p.Err, lead+t.Translate(text))
		return err
	}

	lines := console.Page{Term: t}
	lines.WriteParagraph(console.Normal.Span(lead), console.Normal, t.Translate(text))
	_, err := io.WriteString(p.Err, lines.Out.String())

	return err
}

// Answer writes a line of the answer, in the language of the user. Main reports that it could not be written; return
// the error where the command must then not go on.
func (p *Program) Answer(form string, args ...any) error {
	_, err := fmt.Fprintln(p.Out, SafeText(p.Host.Localize(fmt.Sprintf(form, args...))))
	return err
}

// Show writes the answer of a command: as JSON, or what view puts on a page.
func (p *Program) Show(asJSON bool, answer any, view func(*console.Page)) error {
	if asJSON {
		return WriteJSON(p.Out, answer)
	}
	console.Draw(p.Out, p.Term(p.Out), view)

	return nil
}

// Main runs one command and returns the exit code. A successful gpuard run does not return: the process becomes the
// command.
func Main(ctx context.Context, p *Program) int {
	p.Host.Say = func(line string) { _ = p.PrintMessage(line) }
	p.Host.Loud = p.Host.Say
	p.language = translate.ChooseLanguage(p.Host.Env)
	p.Host.Translate = p.language.Translate
	out := &checkedWriter{Writer: p.Out}
	p.Out = out
	root := p.RootCommand()
	p.Args = JoinWait(root, p.Args)
	root.SetArgs(p.Args)
	root.SetOut(p.Out)
	root.SetErr(p.Err)
	if len(p.Args) > 0 && p.Args[0] == cobra.ShellCompRequestCmd {
		manual.UnquoteUsages(root)
	}

	cmd, err := root.ExecuteContextC(ctx)
	broken, misused := 1, 2
	if cmdtable.KindOf(cmd) != cmdtable.KindAnswer {
		broken, misused = 125, 125
	}

	if out.err != nil {
		fmt.Fprintln(p.Err, "gpuard: cannot write the answer: "+out.err.Error())
		return broken
	}

	if err == nil {
		return 0
	}

	var f *failure.CodedError
	if !errors.As(err, &f) {
		f = &failure.CodedError{Err: err, Code: misused}
	}

	p.showError(cmd, f)
	p.failEval(cmd)

	return f.Code
}

// RootCommand makes gpuard with the command that the arguments name, or with all.
func (p *Program) RootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "gpuard",
		Short: "Choose, lease and prove GPUs on a shared machine",
		Long: `gpuard finds the GPUs of this machine, picks one that really is free, leases it
so that no other job gets it, sets the right variables and starts your command.`,
		Example:       `  gpuard run -- python train.py`,
		Version:       Version(),
		SilenceErrors: true, SilenceUsage: true,
	}

	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if p.wantsJSON(cmd) {
			// Text next to the object would not be JSON.
			p.Host.Say = func(line string) { p.Remarks = append(p.Remarks, line) }
			p.Host.Loud = p.Host.Say
		}
		if err := flagset.RefuseEmpty(cmd); err != nil {
			return failure.AsUsage(err)
		}
		return nil
	}

	root.SetVersionTemplate("gpuard {{.Version}}\n")
	machine, _ := p.Host.Env.Lookup("GPUARD_MACHINE")
	root.PersistentFlags().StringVar(&p.Host.Machine, "machine", machine, "use this machine `FILE`, or demo, or demo:4xA100-80GB, instead of the hardware")
	_ = root.RegisterFlagCompletionFunc("machine", completeMachines)
	root.PersistentFlags().BoolP("help", "h", false, "show this text")
	root.Flags().BoolP("version", "v", false, "print the version")
	root.SetFlagErrorFunc(flagset.ExplainError)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		fmt.Fprint(cmd.OutOrStdout(), manual.ShortHelp(cmd, p.helpWidth()))
	})

	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(manual.HelpCommand(p.helpWidth))

	switch i := slices.IndexFunc(p.Commands, func(c Command) bool { return len(p.Args) > 0 && c.Name == p.Args[0] }); {
	case len(p.Args) == 1 && p.Args[0] == "--version":
		return root
	case i >= 0:
		// Making all the others with their flags takes a twentieth of the time of a run.
		if !p.addCommand(root, i).HasSubCommands() {
			return root
		}

		// The help of a group lists commands in columns as wide as for the whole tree.
		root.ResetCommands()
	}

	status := p.Commands[slices.IndexFunc(p.Commands, func(c Command) bool { return c.Name == "status" })].Make(p)
	giveExitCodes(status)
	root.RunE = status.RunE
	root.Args = func(cmd *cobra.Command, args []string) error {
		if flagset.IsSet(cmd, "watch") {
			// gpuard --watch 1s.
			return status.Args(cmd, args)
		}
		return flagset.UnknownCommand(cmd, args)
	}

	root.Flags().AddFlagSet(status.Flags())

	for i := range p.Commands {
		p.addCommand(root, i)
	}

	root.InitDefaultHelpCmd()

	return root
}

// released is the version of a release build; the linker sets it (cmd/release).
var released string

// Version is the version of a release, else that of the module for an installed program, else the commit of a local
// build.
func Version() string {
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

// Term describes the terminal of w. What is not a file has the width of COLUMNS, else 80.
func (p *Program) Term(w io.Writer) console.Term {
	if out, ok := w.(*checkedWriter); ok {
		w = out.Writer
	}

	file, ok := w.(*os.File)
	if !ok {
		return console.Term{Width: console.NumberIn(p.Host.Env, "COLUMNS", console.UsualWidth), UTF8: translate.IsUTF8(p.Host.Env), Language: p.language}
	}

	t := console.DescribeTerminal(file, p.Host.Env)
	t.Language = p.language

	return t
}

// helpWidth is the width of the help on this output: at most 80 columns, fewer on a narrow terminal.
func (p *Program) helpWidth() int { return min(manual.HelpWidth, p.Term(p.Out).Width) }
