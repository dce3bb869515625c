package batchcmd

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"gpuard/internal/app/judge"
	"gpuard/internal/app/machine"
	"gpuard/internal/app/run"
	"gpuard/internal/app/userqueue"
	"gpuard/internal/core/handoff"
	"gpuard/internal/core/job"
	"gpuard/internal/core/policy"
	"gpuard/internal/core/service"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/jobflags"
	"gpuard/internal/ui/projectfile"
)

// NewExportCommand is the group of commands that write a job for another engine, one for each.
func NewExportCommand(p *cli.Program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Print a job for Slurm, Kubernetes or Docker Compose",
		Long: `Writes the job that the flags, or a service of a gpuard.yaml, describe, in the
words of another engine: ready for sbatch, for kubectl apply -f - or for docker
compose -f - up. Nothing is started, and nothing of this machine counts: neither
its GPUs nor its rules and defaults.

What an engine can be told only approximately is said on standard error. What it
cannot be told is refused, with the way out; nothing is left out in silence.`,
		Example: `  gpuard export slurm --gpus 2 --timeout 24h -- python train.py | sbatch
  gpuard export kubernetes -f gpuard.yaml train | kubectl apply -f -`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return fmt.Errorf("cannot write a job for %q: write gpuard export slurm, kubernetes, kubernetes-dra or compose", args[0])
		},
		RunE: func(*cobra.Command, []string) error {
			return failure.Usagef("cannot write a job: for which engine? Write for instance gpuard export slurm -- python train.py; there are slurm, kubernetes, kubernetes-dra and compose")
		},
	}
	cmd.AddCommand(
		exportTo(p, handoff.Slurm, "Write an sbatch script", `Writes a script for sbatch, whose last line becomes COMMAND. What the types of
your cluster's GPUs and the features of its nodes mean is for slurm: in
config.yaml: --model and --mem need that.`, `  gpuard export slurm --gpus 2 --timeout 24h -- python train.py | sbatch
  gpuard export slurm --model '*H100*' --array 0-9%3 -- ./one.sh > job.sh
  gpuard export slurm -f gpuard.yaml train | sbatch --account=physics`),
		exportTo(p, handoff.Kubernetes, "Write a Job that asks NVIDIA's device plugin for GPUs", `Writes a Job of batch/v1 with the resource of NVIDIA's device plugin. Models,
memory and compute capability are labels of nodes there.`, `  gpuard export kubernetes --image train:1 -- ./train | kubectl apply -f -
  gpuard export kubernetes -f gpuard.yaml train | kubectl apply -f -`),
		exportTo(p, handoff.KubernetesDRA, "Write a Job that claims GPUs (DRA)", `Writes a Job of batch/v1 and a ResourceClaimTemplate of resource.k8s.io/v1,
which NVIDIA's DRA driver serves. Models, memory and compute capability are
looked for GPU by GPU.`, `  gpuard export kubernetes-dra --image train:1 --model '*H100*' -- ./train \
    | kubectl apply -f -`),
		exportTo(p, handoff.Compose, "Write a project of Docker Compose", `Writes a project with one service. Docker gives it the first GPUs, whoever uses
them: gpuard docker -- compose up leases them.`, `  gpuard export compose --image train:1 -- python train.py > compose.yaml
  gpuard export compose -f gpuard.yaml train | docker compose -f - up`))
	return cmd
}

type exportOptions struct {
	spec jobflags.SpecFlags
	batchFlags
	awayFlags
	json, quiet bool
}

func exportTo(p *cli.Program, t handoff.Target, short, long, example string) *cobra.Command {
	o := &exportOptions{}
	cmd := &cobra.Command{
		Use:   string(t) + " [flags] [--] COMMAND [ARG...] | -f FILE SERVICE",
		Short: short, Example: example, ValidArgsFunction: p.CompletePrograms,
		Long: long + `

Exit codes: 0 written, 122 the engine cannot be told something that was asked
for, 125 gpuard failed or was used wrongly.`,
		RunE: func(cmd *cobra.Command, args []string) error { return exportWith(p, cmd, t, o, args) },
	}

	f := cmd.Flags()
	f.SetInterspersed(false)
	o.spec.Add(p, cmd)
	o.spec.AddAnyway(cmd)
	o.addBatchFlags(cmd)
	f.Lookup("log").Usage = "its output goes into this file, where it starts (default: that of the engine)"
	f.Lookup("expect").Usage = "your estimate of how long it runs: a remark for people"
	jobflags.AddPrivateState(p, cmd)
	o.addAwayFlags(cmd, "write a service of this `FILE`, such as gpuard.yaml; the flags that choose devices are its own")
	f.BoolVar(&o.json, "json", false, "answer as one JSON object")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "do not say what is only approximate")

	return cmd
}

// exportAnswer is the JSON answer of export.
type exportAnswer struct {
	Schema string         `json:"schema"` // "gpuard.export/1"
	Target handoff.Target `json:"target"` // what it is for
	Name   string         `json:"name"`   // of the job there
	// The script or the manifest.
	Text string `json:"text"`
	// What became of each thing that was asked for.
	Verdicts []handoff.Verdict `json:"verdicts"`
}

func exportWith(p *cli.Program, cmd *cobra.Command, t handoff.Target, o *exportOptions, args []string) error {
	lines, err := scriptFlags(p, cmd, o.file, args)
	if err != nil {
		return failure.AsUsage(err)
	}

	w, err := buildWork(p, cmd, t, o, lines, args)
	if err != nil {
		return failure.AsUsage(err)
	}

	config, err := p.Host.Config()
	if err != nil {
		return err
	}

	out, err := handoff.Write(t, w, config.MergeSlurm())
	switch {
	case err != nil:
		return err
	case o.json:
		return cli.WriteJSON(p.Out, exportAnswer{cli.SchemaOf(cmd), t, out.Name, out.Text, out.Verdicts})
	}

	sayApproximate(p, out, o.quiet)
	_, err = fmt.Fprint(p.Out, out.Text)

	return err
}

// buildWork is the job of the flags and the lines of a script, or of a service.
func buildWork(p *cli.Program, cmd *cobra.Command, t handoff.Target, o *exportOptions, lines *slurmLines, args []string) (w handoff.Work, err error) {
	switch {
	case o.file != "":
		w, err = serviceWork(p, cmd, t, o, args)
	case len(args) == 0:
		return w, fmt.Errorf("cannot write nothing: write a command, such as %s -- python train.py, or -f gpuard.yaml SERVICE", cmd.CommandPath())
	default:
		w, err = commandWork(p, cmd, t, o, args)
	}

	if err != nil {
		return w, err
	}

	if o.workdir != "" {
		w.Folder = o.workdir
		if t == handoff.Slurm {
			w.Folder, err = filepath.Abs(o.workdir)
			if err != nil {
				return w, err
			}
		}
	}

	w.Image, w.Namespace, w.Queue = cmp.Or(o.image, w.Image), o.namespace, o.queue
	if kind := lines.gpuType(); t == handoff.Slurm && kind != "" {
		w.Type, w.Spec.Model = kind, ""
	}

	w.Directives = lines.directivesFor(t == handoff.Slurm)
	lines.sayTo(p, w.Directives)

	err = addVariables(p, &w, o.env)

	return w, err
}

// commandWork is the job of a command line.
func commandWork(p *cli.Program, cmd *cobra.Command, t handoff.Target, o *exportOptions, args []string) (w handoff.Work, err error) {
	w, err = readWork(p, cmd, &o.spec, &o.batchFlags, args)
	if err != nil {
		return w, err
	}

	if t == handoff.Slurm {
		if !w.Spec.StartsTorchrun() {
			err = refuseBareFile(args[0])
		}
		if err != nil {
			return w, err
		}

		w.Folder, err = thisFolder()
		if err != nil {
			return w, err
		}
	}

	return w, judgeAway(p, cmd, t, w.Spec)
}

// refuseBareFile refuses the name of a file of this folder that no node would find as a command.
func refuseBareFile(command string) error {
	if strings.Contains(command, "/") {
		return nil
	}

	info, err := os.Stat(command)
	if err == nil && info.Mode().IsRegular() {
		_, err = userqueue.FindProgram(command)
		return err
	}

	return nil
}

// judgeAway refuses a command that surely uses other GPUs than those that the engine gives it, in the words of gpuard
// run. A container is for the engine's own machine to judge. In a container it can open no other GPU.
func judgeAway(p *cli.Program, cmd *cobra.Command, t handoff.Target, spec job.Spec) error {
	if run.IsEngineCommand(spec.Command) {
		return nil
	}

	start := cmd.CommandPath()
	if cmd.Flags().NFlag() > 0 {
		start += " …"
	}

	remarks, err := judge.Later(spec, spec.Command, judge.Place{Typed: start, Away: true, Alone: t != handoff.Slurm})
	for _, r := range remarks {
		p.Host.Say(r)
	}

	return err
}

// addVariables adds --env, over those of the same name that the service has.
func addVariables(p *cli.Program, w *handoff.Work, env []string) error {
	for _, text := range env {
		name, value, given := strings.Cut(text, "=")
		if !given {
			value, given = p.Host.Env.Lookup(name)
			if !given {
				return fmt.Errorf("cannot hand on --env %s: this shell has no such variable, or does not export it; write --env %[1]s=VALUE", name)
			}
		}
		w.Env = slices.DeleteFunc(w.Env, func(v handoff.Variable) bool { return v.Name == name })
		w.Env = append(w.Env, handoff.Variable{Name: name, Value: value})
	}
	return nil
}

// serviceWork is a service of a project's file, read by the parser of gpuard run. Of the configuration only the file's
// own defaults and rules count.
func serviceWork(p *cli.Program, cmd *cobra.Command, t handoff.Target, o *exportOptions, args []string) (w handoff.Work, err error) {
	err = refuseBesideFile(cmd, "env", "image", "workdir", "namespace", "queue", "dry-run")
	switch {
	case err != nil:
		return w, err
	case len(args) != 1:
		return w, fmt.Errorf("cannot write %d services: name one, such as %s -f %s train", len(args), cmd.CommandPath(), o.file)
	}

	project, err := projectfile.LoadProject(p, o.file)
	if err != nil {
		return w, err
	}

	s, i, err := projectfile.ProjectsOf(p).Instance(project, args[0])
	if err != nil {
		return w, err
	}

	w, err = workOf(project.Policy, s, i)
	if err != nil {
		return w, err
	}

	w.Note, w.Held = o.note, o.hold
	if t != handoff.Slurm && w.Folder == filepath.Dir(project.File) {
		// Its default, which only this machine has.
		w.Folder = ""
	}

	return w, o.readOthers(&w)
}

// workOf is an instance of a service as a job.
func workOf(defaults *policy.File, s service.Service, i service.Instance) (w handoff.Work, err error) {
	trial := &cli.Program{Host: &machine.Host{Project: defaults}}
	o := &jobflags.RunOptions{}

	// Nobody typed it.
	cmd := &cobra.Command{Use: "run", Hidden: true}
	o.Add(trial, cmd)
	if err := cmd.ParseFlags(i.Flags); err != nil {
		return w, err
	}
	if o.Spec.HasAll() {
		return w, fmt.Errorf("cannot write service %s for another engine: gpus: all means the GPUs of this machine; write a number", s.Name)
	}

	logged := cmd.Flags().Changed("log")
	if !logged {
		// Every service is supervised and has a log.
		_ = cmd.Flags().Set("log", s.Name)
	}

	spec, care, err := o.Parse(trial, cmd, i.Command)
	if err != nil {
		return w, err
	}

	if !logged {
		care.Log = ""
	}

	if s.Restart != service.Never {
		care.Restart, care.Limit = job.Restart(s.Restart), s.Limit
	}

	dropDefaults(cmd, &spec, care)
	spec.Name = i.Name
	w = handoff.Work{Spec: spec, Care: *care, Folder: i.WorkDir, Image: i.Image, Verify: o.Verify, Private: trial.Host.PrivateState}
	for _, pair := range i.Env {
		name, value, _ := strings.Cut(pair, "=")
		w.Env = append(w.Env, handoff.Variable{Name: name, Value: value})
	}

	w.Service = handoff.Service{Each: s.Each, EnvFiles: s.EnvFiles, Ready: s.Ready != nil, Healthy: s.Healthy != nil}
	if s.Replicas > 1 {
		w.Service.Replicas = s.Replicas
	}

	for _, d := range s.After {
		w.Service.DependsOn = append(w.Service.DependsOn, d.Service)
	}

	return w, nil
}
