package checkcmd

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/verify"
	"gpuard/internal/core/proof"
	"gpuard/internal/core/prose"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/console"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
)

// NewVerifyCommand makes gpuard verify.
func NewVerifyCommand(p *cli.Program) *cobra.Command {
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
			if slices.Contains(p.Args, "--") {
				// ArgsLenAtDash counts one that completion itself adds.
				return p.CompletePrograms(cmd, args, typed)
			}
			return p.Jobs(cmd, args, typed)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			patience, err := flagset.ReadDuration("for", within)
			switch {
			case err != nil:
				return failure.AsUsage(err)
			case cmd.ArgsLenAtDash() == 0:
				return verifyCommand(p, cmd, args, patience, asJSON)
			}

			return verifyTarget(p, cmd, args[0], patience, asJSON)
		},
	}

	cmd.Flags().SetInterspersed(false)
	cmd.Flags().StringVar(&within, "for", "30s", "watch at most for this `TIME`, such as 90s or 10m")
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer as one JSON object (on standard error with COMMAND)")
	_ = cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions([]string{"10s", "30s", "2m"}, flagset.NoFiles))

	return cmd
}

// checkTarget accepts one process or lease, or a command after --.
func checkTarget(cmd *cobra.Command, args []string) error {
	dash := cmd.ArgsLenAtDash()
	switch {
	case dash == 0 && len(args) > 0, dash < 0 && len(args) == 1:
		return nil
	case dash == 0:
		return failure.Usagef("cannot verify: no command given; write it after --, such as gpuard verify -- python train.py")
	case len(args) == 0:
		return failure.Usagef("cannot verify: no command given; write gpuard verify -- COMMAND, or name a process or a lease (gpuard status shows both)")
	}
	return failure.Usagef("cannot verify %q: one process or lease at a time; to run a command: gpuard verify -- %s", prose.Clean(args[0]), prose.Clean(strings.Join(args, " ")))
}

func verifyTarget(p *cli.Program, cmd *cobra.Command, target string, patience time.Duration, asJSON bool) error {
	v, err := verify.ProveJob(cmd.Context(), p.Host, target, patience)
	if err != nil {
		return &failure.CodedError{Err: err, Code: exit.VerifyCode(err)}
	}

	return verdictError(v, p.Show(asJSON, v, func(page *console.Page) { verificationView(page, v) }))
}

func verifyCommand(p *cli.Program, cmd *cobra.Command, command []string, patience time.Duration, asJSON bool) error {
	var told error
	v, how, err := verify.ProveCommand(cmd.Context(), p.Host, command, patience, func(v *verify.Verification) {
		if asJSON {
			told = cli.LineJSON(p.Err, v)
			return
		}
		console.Draw(p.Err, terminalOf(p, p.Err), func(page *console.Page) { verdictView(page, v) })
	})

	if err != nil {
		return &failure.CodedError{Err: err, Code: exit.VerifyCode(err)}
	}

	if how != "exit status 0" && !asJSON {
		fmt.Fprintf(p.Err, "gpuard: %s ended with %s\n", v.Command, how)
	}

	return verdictError(v, told)
}

// verdictError returns the exit code of the result as an error.
func verdictError(v *verify.Verification, err error) error {
	if code := exit.VerdictCode(v.Verdict); err == nil && code != 0 {
		return &failure.CodedError{Err: &failure.ShownError{Err: fmt.Errorf("%s", v.Line())}, Code: code}
	}
	return err
}

// wordStyle is the colour of a verdict.
func wordStyle(v proof.Verdict) console.Style {
	switch {
	case v == proof.Proven:
		return console.Green
	case v.Bad():
		return console.Red
	}
	return console.Yellow
}

// terminalOf is the terminal of w. Other outputs are logs and have no width, so that each sentence is one line.
func terminalOf(p *cli.Program, w io.Writer) console.Term {
	term := p.Term(w)
	if !term.TTY {
		term.Width = 0
	}
	return term
}
