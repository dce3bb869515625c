package batchcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"gpuard/internal/app/machine"
	"gpuard/internal/app/remote"
	"gpuard/internal/app/userqueue"
	"gpuard/internal/core/handoff"
	core "gpuard/internal/core/service"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
	"gpuard/internal/ui/projectfile"
)

// awayFlags are those of a job that another scheduler gets.
type awayFlags struct {
	file, queue, workdir, image, namespace string
	env                                    []string
}

// addAwayFlags adds the flags; file is the help of --file.
func (a *awayFlags) addAwayFlags(cmd *cobra.Command, file string) {
	cmd.Flags().StringVarP(&a.file, "file", "f", "", file)
	flagset.AddOption(cmd, "env", &a.env)
	flagset.AddOption(cmd, "queue", &a.queue)
	flagset.AddOption(cmd, "image", &a.image)
	flagset.AddOption(cmd, "namespace", &a.namespace)
	flagset.AddOption(cmd, "workdir", &a.workdir)
}

// engineFlags are those of a job that is handed in, here or there.
type engineFlags struct {
	awayFlags
	engine string
	dry    bool
}

func (e *engineFlags) addEngineFlags(cmd *cobra.Command) {
	flagset.AddOption(cmd, "engine", &e.engine)
	e.addAwayFlags(cmd, "hand in a service of this `FILE`, such as gpuard.yaml; write its name in place of COMMAND")
	cmd.Flags().BoolVar(&e.dry, "dry-run", false, "with --engine: ask whether and when it would start, and hand nothing in")
}

// engineHere is the value of --engine for this machine, where the configuration says otherwise.
const engineHere = "here"

// engineOf is the scheduler that is to have the job: that of --engine, else that of the service in a file, else that of
// the configuration; nil this machine.
func engineOf(p *cli.Program, cmd *cobra.Command, e *engineFlags, service string) (*remote.Scheduler, error) {
	name, err := e.engine, error(nil)
	if name == "" && e.file != "" {
		name, err = engineInFile(p, e.file, service)
	}

	if name == "" && err == nil {
		name, err = engineInConfig(p)
	}

	switch {
	case err != nil:
		return nil, err
	case name != "" && name != engineHere:
		return remote.Open(p.Host, name)
	}

	for _, flag := range []string{"env", "queue", "workdir", "image", "namespace", "dry-run"} {
		if flagset.IsSet(cmd, flag) {
			return nil, failure.Usagef("cannot use --%s without --engine: a job of this machine has this shell's environment and folder; gpuard run --dry-run shows what it would get", flag)
		}
	}

	return nil, nil //nolint:nilnil // this machine
}

// engineInFile is the engine of a service; "" for none.
func engineInFile(p *cli.Program, file, service string) (string, error) {
	project, err := projectfile.LoadProject(p, file)
	if err != nil {
		return "", err
	}

	_, err = projectfile.NeededServices(project, []string{service})
	if err != nil {
		return "", err
	}

	one := slices.IndexFunc(project.Services, func(s core.Service) bool { return s.Name == service })

	return project.Services[one].Engine, nil
}

// engineInConfig is the engine that the configuration says; "" for none.
func engineInConfig(p *cli.Program) (name string, err error) {
	config, err := p.Host.Config()
	if err != nil {
		return "", err
	}

	for _, d := range config.MergeDefaults() {
		if d.Flag == "engine" {
			name = d.Value
		}
	}

	return name, nil
}

// handIn hands the job to another scheduler. Of this machine neither the GPUs nor the rules count.
func handIn(p *cli.Program, cmd *cobra.Command, s *remote.Scheduler, o *submitOptions, lines *slurmLines, args []string) error {
	t := handoff.Slurm
	if s.Image {
		t = handoff.Kubernetes
	}

	w, err := buildWork(p, cmd, t, &exportOptions{spec: o.spec, batchFlags: o.batchFlags, awayFlags: o.awayFlags}, lines, args)
	if err != nil {
		return failure.AsUsage(err)
	}
	if o.dry {
		return testIn(p, cmd, s, w, o)
	}

	q, err := userqueue.Open(p.Host, true)
	if err != nil {
		return err
	}

	defer q.Close()
	j := userqueue.Job{Command: w.Spec.Command, Folder: w.Folder, Spec: w.Spec, Note: w.Note}
	j.Spec.Name = machine.JobName(w.Spec)
	number, logs, out, err := q.HandIn(cmd.Context(), s, w, j, userqueue.CommandHash(w.Spec.Command))

	for _, line := range q.OddLines() {
		p.Host.Say(line)
	}

	if err != nil {
		return err
	}

	sayApproximate(p, out, o.quiet || o.json)
	list, err := q.List(func(userqueue.State) bool { return true })
	if err != nil {
		return err
	}

	e := list[number-1]
	switch {
	case o.json:
		return cli.WriteJSON(p.Out, submitAnswer{cli.SchemaOf(cmd), number, len(logs), logs[0], s.Name, e.ID, ""})
	case o.quiet:
		_, err = fmt.Fprintln(p.Out, number)
	case len(logs) > 1:
		err = p.Answer("jobs %d-%d are handed to %s (%s and the next); the output of the first: %s", number, number+len(logs)-1, s.Title, e.ID, logs[0])
	case s.Logs != nil:
		err = p.Answer("job %d is handed to %s (%s); its output: gpuard logs -f %[1]d", number, s.Title, e.ID)
	default:
		err = p.Answer("job %d is handed to %s (%s); its output: %s", number, s.Title, e.ID, logs[0])
	}

	return err
}

// testIn has the scheduler judge a job.
func testIn(p *cli.Program, cmd *cobra.Command, s *remote.Scheduler, w handoff.Work, o *submitOptions) error {
	// Their numbers are the queue's.
	w.After = nil
	out, err := s.Write(cmd.Context(), w)
	if err != nil {
		return err
	}

	said, err := testScript(cmd.Context(), s, out.Text)
	if err != nil {
		return err
	}

	sayApproximate(p, out, o.quiet || o.json)
	if o.json {
		return cli.WriteJSON(p.Out, submitAnswer{Schema: cli.SchemaOf(cmd), Engine: s.Name, Test: said})
	}

	return p.Answer("%s would take it: %s", s.Title, said)
}

func testScript(ctx context.Context, s *remote.Scheduler, text string) (said string, err error) {
	file, err := os.CreateTemp("", "gpuard-dry-run-")
	if err != nil {
		return "", fmt.Errorf("cannot try the job: %w", err)
	}

	defer os.Remove(file.Name()) //nolint:errcheck // in the folder for such files
	_, err = file.WriteString(text)
	err = errors.Join(err, file.Close())
	if err != nil {
		return "", fmt.Errorf("cannot try the job: %w", err)
	}

	return s.Test(ctx, file.Name())
}

// sayApproximate says what the scheduler could only be told approximately.
func sayApproximate(p *cli.Program, out handoff.Output, quiet bool) {
	for _, v := range out.Verdicts {
		if v.Level != handoff.Exact && !quiet {
			p.Host.Say(v.String())
		}
	}
}
