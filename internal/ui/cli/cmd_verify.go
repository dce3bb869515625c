package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"io"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/run"
	"gpuard/internal/app/verify"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prose"
	core "gpuard/internal/core/verify"
)

func (p *Program) verify() *cobra.Command {
	var asJSON bool
	var within string
	cmd := &cobra.Command{
		Use:   "verify [flags] PID | LEASE | -- COMMAND [ARG...]",
		Short: "Prove that a job is on the GPU that it was promised",
		Long: `Compares three sources: the devices in the job's environment, the devices on
which the driver sees its processes, and the devices that its framework
(PyTorch, TensorFlow, JAX, ONNX Runtime, CuPy, llama.cpp) reports in a separate
process. Watches until the answer is clear, at most for the time of --for. With
-- it starts COMMAND, answers on standard error and waits for COMMAND to end.

Exit codes: 0 proven; 1 wrong device, outside the lease, or not on any GPU (CPU
fallback); 2 used wrongly; 123 too early to say, or not measurable.`,
		Example: `  gpuard verify 4242                       is process 4242 where it should be?
  gpuard verify k3f9                       and the job of lease k3f9?
  gpuard verify -- python train.py         run it and say where it is`,
		Args: checkTarget,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if slices.Contains(p.Args, "--") { // ArgsLenAtDash counts one that completion itself adds
				return p.programs(cmd, args, typed)
			}
			return p.jobs(cmd, args, typed)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			patience, err := duration("for", within)
			if err != nil {
				return &failure{err, 2}
			}
			if cmd.ArgsLenAtDash() == 0 {
				err = p.verifyCommand(cmd, args, patience, asJSON)
			} else {
				err = p.verifyTarget(cmd, args[0], patience, asJSON)
			}
			return err
		},
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().StringVar(&within, "for", "30s", "watch at most for this `TIME`, such as 90s or 10m")
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer as one JSON object (on standard error with COMMAND)")
	_ = cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions([]string{"10s", "30s", "2m"}, noFiles))
	return cmd
}

// checkTarget accepts one process or lease, or a command after --.
func checkTarget(cmd *cobra.Command, args []string) error {
	dash := cmd.ArgsLenAtDash()
	switch {
	case dash == 0 && len(args) > 0, dash < 0 && len(args) == 1:
		return nil
	case dash == 0:
		return usagef("cannot verify: no command given; write it after --, such as gpuard verify -- python train.py")
	case len(args) == 0:
		return usagef("cannot verify: no command given; write gpuard verify -- COMMAND, or name a process or a lease (gpuard status shows both)")
	}
	return usagef("cannot verify %q: one process or lease at a time; to run a command: gpuard verify -- %s", prose.Clean(args[0]), prose.Clean(strings.Join(args, " ")))
}

func (p *Program) verifyTarget(cmd *cobra.Command, target string, patience time.Duration, asJSON bool) error {
	v, err := verify.Verify(cmd.Context(), p.Host, target, patience)
	if err != nil {
		return &failure{err, exit.Verify(err)}
	}
	if asJSON {
		err = writeJSON(p.Out, v)
	} else {
		Verification(p.Out, v, p.term(p.Out))
	}
	return verdict(v, err)
}

func (p *Program) verifyCommand(cmd *cobra.Command, command []string, patience time.Duration, asJSON bool) error {
	var told error
	v, how, err := verify.Command(cmd.Context(), p.Host, command, patience, func(v *verify.Verification) {
		if asJSON {
			told = lineJSON(p.Err, v)
			return
		}
		Verdict(p.Err, v, p.lines(p.Err))
	})
	if err != nil {
		return &failure{err, exit.Verify(err)}
	}
	if how != "exit status 0" && !asJSON {
		fmt.Fprintf(p.Err, "gpuard: %s ended with %s\n", v.Command, how)
	}
	return verdict(v, told)
}

// verdict returns the exit code of the result as an error.
func verdict(v *verify.Verification, err error) error {
	if code := exit.Verdict(v.Verdict); err == nil && code != 0 {
		return &failure{&silent{fmt.Errorf("%s", v.Line())}, code}
	}
	return err
}

// verifyFlag returns the settings of --verify; nil without it. If they are not possible it fails before the lease.
func (p *Program) verifyFlag(cmd *cobra.Command, asked string) (*run.Oversight, error) {
	watch, err := p.verifyLater(cmd, asked)
	if watch != nil && err == nil {
		err = run.CanOversee()
	}
	return watch, err
}

// verifyLater is verifyFlag for a job that another process starts.
func (p *Program) verifyLater(cmd *cobra.Command, asked string) (*run.Oversight, error) {
	if !cmd.Flags().Changed("verify") {
		return nil, nil //nolint:nilnil // not asked for
	}
	if err := refuseTogether(cmd, []conflict{{"verify", "cpu", "--cpu asks for no GPU at all"}}); err != nil {
		return nil, err
	}
	if value, ok := p.valueAfterBlank(cmd.Flags().Args()); ok {
		return nil, usagef("cannot run %q: the time of --verify needs an equals sign: write --verify=%s; to run a command of that name: --verify -- %s", prose.Clean(cmd.Flags().Arg(0)), value, prose.Clean(cmd.Flags().Arg(0)))
	}
	watch, err := oversight(asked)
	if err != nil {
		return nil, err
	}
	return watch, verify.Verifiable(p.Host)
}

// valueAfterBlank finds a value of --verify that follows a space, which the parser takes for the command. It returns
// the value to write after an equals sign.
func (p *Program) valueAfterBlank(command []string) (value string, ok bool) {
	if len(command) == 0 {
		return "", false
	}
	value = command[0]
	i := slices.Index(p.Args, "--verify")
	if i < 0 || i+1 >= len(p.Args) || p.Args[i+1] != value {
		return "", false
	}
	if _, err := strconv.ParseUint(value, 10, 32); err == nil {
		value += "s"
	}
	_, err := oversight(value)
	return value, err == nil
}

// oversight reads --verify: a time, the word stop, or both.
func oversight(value string) (*run.Oversight, error) {
	o := &run.Oversight{Patience: 30 * time.Second}
	first, second, both := strings.Cut(value, ",")
	if !both && first == "stop" {
		first, second = "30s", "stop"
	}
	var err error
	if o.Patience, err = duration("verify", first); err != nil {
		return nil, err
	}
	if o.Stop = second == "stop"; both && !o.Stop {
		return nil, fmt.Errorf("cannot read --verify=%s: only stop can follow the comma, such as --verify=30s,stop", value)
	}
	return o, nil
}

// duration reads a time such as 90s, 10m, 24h or 7d.
func duration(flag, text string) (time.Duration, error) {
	d, err := job.ParseTime(text)
	if err == nil {
		return d, nil
	}
	if _, bare := strconv.ParseUint(text, 10, 32); bare == nil && strings.Trim(text, "0") != "" {
		return 0, fmt.Errorf("cannot read --%s %q: the unit is missing; write --%s=%ss for seconds, or --%s=%sm for minutes", flag, text, flag, text, flag, text)
	}
	return 0, fmt.Errorf("cannot read --%s %q: write a time, such as --%s=90s or --%s=10m", flag, text, flag, flag)
}

// wordStyle is the colour of a verdict.
func wordStyle(v core.Verdict) style {
	switch {
	case v == core.Proven:
		return green
	case v.Bad():
		return red
	}
	return yellow
}

// lines is the terminal of w. Other outputs are logs and have no width, so that each sentence is one line.
func (p *Program) lines(w io.Writer) Term {
	term := p.term(w)
	if !term.TTY {
		term.Width = 0
	}
	return term
}
