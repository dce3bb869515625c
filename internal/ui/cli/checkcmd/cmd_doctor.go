// Package checkcmd has the commands that find mistakes: doctor, explain, verify, lint.
package checkcmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/app/doctor"
	"gpuard/internal/core/check"
	"gpuard/internal/core/shellquote"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/console"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
)

// DoctorAnswer is the JSON answer of doctor.
type DoctorAnswer struct {
	Schema string `json:"schema"` // "gpuard.doctor/1"
	check.Diagnosis
}

type doctorFlags struct {
	of, code, bundle           string
	engine, context, namespace string
	run, all, asJSON, bare     bool
}

// NewDoctorCommand makes gpuard doctor.
func NewDoctorCommand(p *cli.Program) *cobra.Command {
	var flags doctorFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say whether GPU programs run here, and what to mend",
		Long: `Says on the first line whether GPU programs will run here and, if not, what to
do next. The findings follow: driver, devices, libraries, Python environments,
variables, containers. Nothing is changed. With --engine it says whether that
cluster can give GPUs to you: nodes, types or labels, limits and permissions.

The exit code is 1 for a warning or an error, otherwise 0; with --bundle it is 0
when the archive was written.`,
		Example: `  gpuard doctor
  gpuard doctor --for .venv                only this Python environment
  gpuard doctor --for train --run          also import its libraries
  gpuard doctor --why xid-errors           what does this code mean?
  gpuard doctor --engine slurm             can the cluster give me GPUs?
  gpuard doctor --engine kubernetes        can that cluster give me a GPU?
  gpuard doctor --json                     every check, for programs
  gpuard doctor --bundle                   an archive for a bug report`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && cmd.Flags().Changed("bundle") {
				return fmt.Errorf("cannot use %q: write --bundle=%[1]s", args[0])
			}
			return flagset.NoArguments(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.checkFlags(cmd); err != nil {
				return failure.AsUsage(err)
			}
			if flags.code != "" {
				return printFindingPage(p, flags.code)
			}
			if flags.engine != "" {
				return diagnoseEngine(cmd.Context(), p, flags)
			}

			return diagnoseMachine(cmd.Context(), p, flags)
		},
	}

	f := cmd.Flags()
	f.StringVar(&flags.of, "for", "", "only the Python environment `PYTHON|ENV`: an interpreter, the folder of an environment, or the name of one of conda's")
	f.BoolVar(&flags.run, "run", false, "also import the libraries of the environments, and ask them for their devices")
	f.BoolVar(&flags.all, "all", false, "also show the checks that passed")
	f.StringVar(&flags.code, "why", "", "explain the `CODE` of a finding of doctor or lint, without checking the machine")
	_ = cmd.RegisterFlagCompletionFunc("why", completeWhy)
	f.StringVar(&flags.engine, "engine", "", "check this `ENGINE` instead of this machine: slurm, kubernetes")
	_ = cmd.RegisterFlagCompletionFunc("engine", cobra.FixedCompletions([]string{"slurm", "kubernetes"}, flagset.NoFiles))
	f.StringVar(&flags.context, "context", "", "`NAME` of the context of kubectl (default: the current one)")
	f.StringVar(&flags.namespace, "namespace", "", "`NAME` of the namespace (default: that of the context)")
	f.BoolVar(&flags.asJSON, "json", false, "answer as one JSON object")
	f.StringVar(&flags.bundle, "bundle", "", "write an archive for a bug report to a new `FILE`, or to a new file in a folder")

	// The current folder; the file gets a generated name.
	f.Lookup("bundle").NoOptDefVal = "."
	f.BoolVar(&flags.bare, "no-scrub", false, "leave names, paths and addresses in the archive as they are")

	return cmd
}

func (d *doctorFlags) checkFlags(cmd *cobra.Command) error {
	const other, inside, elsewhere = "--why explains a code of any machine", "the archive contains every finding and the JSON answer", "--engine checks a cluster and not this machine"
	if err := flagset.RefuseTogether(cmd, []flagset.Conflict{{One: "why", Other: "json", Why: other}, {One: "why", Other: "for", Why: other}, {One: "why", Other: "run", Why: other}, {One: "why", Other: "bundle", Why: other},
		{One: "engine", Other: "for", Why: elsewhere}, {One: "engine", Other: "run", Why: elsewhere}, {One: "engine", Other: "bundle", Why: elsewhere}, {One: "engine", Other: "why", Why: other}, {One: "bundle", Other: "json", Why: inside}, {One: "bundle", Other: "all", Why: inside}}); err != nil {
		return err
	}
	if d.bare && d.bundle == "" {
		return errors.New("cannot use --no-scrub without --bundle: it keeps names, paths and addresses in the archive")
	}
	if d.engine == "" && (d.context != "" || d.namespace != "") {
		return errors.New("cannot use --context or --namespace without --engine kubernetes: this machine has neither")
	}

	return nil
}

// diagnoseMachine checks the machine and shows the findings. A warning or an error sets the exit code without another
// message.
func diagnoseMachine(ctx context.Context, p *cli.Program, flags doctorFlags) error {
	d, err := doctor.Diagnose(ctx, p.Host, flags.of, flags.run)
	switch {
	case err != nil:
		return err
	case flags.bundle != "":
		return writeBundle(p, d, flags.bundle, flags.bare)
	}

	return showDiagnosis(p, d, flags)
}

// showDiagnosis writes a diagnosis, of which a bad finding makes doctor end with 1.
func showDiagnosis(p *cli.Program, d check.Diagnosis, flags doctorFlags) error {
	err := p.Show(flags.asJSON, DoctorAnswer{"gpuard.doctor/1", d}, func(v *console.Page) { doctorView(v, d, flags.all) })
	return badFinding(d, err)
}

// badFinding is the error of a diagnosis that was written, where a finding is one.
func badFinding(d check.Diagnosis, err error) error {
	if err == nil && slices.ContainsFunc(d.Findings, func(f check.Finding) bool { return f.Severity.Bad() }) {
		err = &failure.ShownError{Err: errors.New(d.Summary)}
	}
	return err
}

// writeBundle writes the archive and lists its files. Findings do not make it fail.
func writeBundle(p *cli.Program, d check.Diagnosis, path string, raw bool) error {
	made, err := doctor.Bundle(p.Host, d, path, cli.Version(), raw)
	if err != nil {
		return err
	}

	return p.Show(false, nil, func(q *console.Page) {
		writeVerdict(q, d.Verdict)
		q.Line()
		q.WriteParagraph(console.Span{}, console.Bold, q.Text(fmt.Sprintf("wrote %s (%s), readable only by you", made.Path, made.Size)))
		for _, f := range made.Files {
			q.WriteParagraph(console.Normal.Span("  "+console.Pad(f.Name, 16, false, "")+"  "), console.Dim, q.Text(f.About))
		}

		what := "Names, paths, addresses, serial numbers and UUIDs are replaced."
		if raw {
			what = "Names, paths and addresses are not replaced."
		}

		q.Line()
		q.WriteParagraph(console.Span{}, console.Normal, what+" Check the archive before you send it:")
		// Never cut: users copy it.
		q.Out.WriteString("  tar -xzOf " + shellquote.Sh(made.Path) + " | less\n")
	})
}

// printFindingPage prints the page of one code.
func printFindingPage(p *cli.Program, code string) error {
	pages := FindingPages()
	i := slices.IndexFunc(pages, func(page check.Page) bool { return page.Code == strings.ToLower(strings.TrimSpace(code)) })
	if i < 0 {
		return failure.AsUsage(fmt.Errorf("cannot explain the code %q: there is no such code; %s", code, nearestCodes(code, pages)))
	}

	return p.Show(false, nil, func(v *console.Page) { findingPageView(v, pages[i]) })
}

// completeWhy completes the codes with their titles.
func completeWhy(*cobra.Command, []string, string) (codes []string, _ cobra.ShellCompDirective) {
	for _, page := range FindingPages() {
		codes = append(codes, page.Code+"\t"+page.Title)
	}
	return codes, flagset.NoFiles
}
