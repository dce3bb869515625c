package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/check"
	"gpuard/internal/core/cluster"
	"gpuard/internal/core/handoff"
	"gpuard/internal/core/job"
	"gpuard/internal/core/runs"
	host "gpuard/internal/host/slurm"
	text "gpuard/internal/text/slurm"
)

type slurm struct {
	host     *machine.Host
	commands host.Commands
	site     *cluster.Site // what was read; one command asks once
}

func openSlurm(h *machine.Host) *Scheduler {
	s := &slurm{host: h, commands: commands(h)}
	return &Scheduler{Name: "slurm", Title: "Slurm", Write: s.write, Test: s.test, Submit: s.submit, Look: s.look,
		Cancel: func(ctx context.Context, jobs []runs.Away) error {
			var ids []string
			for _, j := range jobs {
				ids = append(ids, j.ID)
			}
			return s.commands.Cancel(ctx, ids)
		},
		Hold: func(ctx context.Context, job runs.Away, on bool) error {
			return s.commands.Control(ctx, map[bool]string{true: "hold", false: "release"}[on], job.ID)
		}}
}

func commands(h *machine.Host) host.Commands {
	return host.Commands{Env: h.Env, Patience: cmp.Or(h.Times.Engine, 10*time.Second)}
}

// SlurmLines is what the #SBATCH lines of a script mean on one machine, as flags of gpuard submit, and which of their options
// have no effect there.
func SlurmLines(script string) (flags, without []string, err error) {
	a, err := text.Script(script)
	return a.Flags, a.Without, err
}

// Slurm reads what the cluster is made of. What does not answer is said in it.
func Slurm(ctx context.Context, h *machine.Host) cluster.Site {
	c := commands(h)
	settings, err := c.Settings(ctx)
	if err != nil {
		return cluster.Site{Problem: err.Error()}
	}
	said := text.Settings(settings)
	site := cluster.Site{Name: said["ClusterName"], Version: said["SLURM_VERSION"], Keeps: said["MinJobAge"],
		Types: slices.Contains(strings.Split(said["GresTypes"], ","), "gpu"), Accounting: strings.HasSuffix(said["AccountingStorageType"], "/slurmdbd")}
	nodes, err := c.Nodes(ctx)
	if err == nil {
		site.Nodes, err = text.Nodes(nodes)
	}
	if err == nil {
		var partitions string
		if partitions, err = c.Partitions(ctx, text.PartitionFormat); err == nil {
			site.Partitions, err = text.Partitions(partitions)
		}
	}
	if err != nil {
		site.Problem = err.Error()
	}
	return site
}

// Diagnose judges whether Slurm can give GPUs to this user.
func Diagnose(ctx context.Context, h *machine.Host) (check.Diagnosis, error) {
	config, err := h.Config()
	if err != nil {
		return check.Diagnosis{}, err
	}
	return cluster.Diagnose(Slurm(ctx, h), config.Slurm()), nil
}

// write writes the script with the words that the cluster knows.
func (s *slurm) write(ctx context.Context, w handoff.Work) (handoff.Output, error) {
	config, err := s.host.Config()
	if err != nil {
		return handoff.Output{}, err
	}
	said := config.Slurm()
	if out, err := handoff.Write(handoff.Slurm, w, said); err != nil {
		return out, err
	}
	if s.site == nil {
		site := Slurm(ctx, s.host)
		if s.site = &site; site.Problem != "" {
			return handoff.Output{}, fmt.Errorf("cannot hand the job to Slurm: %s", site.Problem)
		}
	}
	out, err := handoff.Write(handoff.Slurm, w, cluster.Known(said, *s.site))
	if err != nil {
		return out, cmp.Or(cluster.Lacks(said, *s.site, w.Spec), err)
	}
	return out, nil
}

func (s *slurm) test(ctx context.Context, path string) (string, error) {
	said, err := s.commands.Test(ctx, path)
	return said, refusal(err)
}

// refusal is what Slurm does not want, with what to do about it.
func refusal(err error) error {
	var refused *host.Refused
	if !errors.As(err, &refused) {
		return err
	}
	do := "see what the cluster has: gpuard doctor --engine slurm"
	for sign, remedy := range map[string]string{
		"node configuration is not available": "no node has so many GPUs of that kind, or so much of something else: ask for less; " + do,
		"Invalid account":                     "name one of your accounts: SBATCH_ACCOUNT=NAME; sacctmgr show associations user=$USER lists them",
		"time limit":                          "ask for less time: --timeout; " + do,
	} {
		if strings.Contains(refused.Text, sign) {
			do = remedy
		}
	}
	return &job.Refusal{Never: true, Summary: "Slurm refuses the job: " + refused.Text, Remedy: do}
}

func (s *slurm) submit(ctx context.Context, path string) (id, place string, err error) {
	id, place, err = s.commands.Submit(ctx, path)
	err = refusal(err)
	if err == nil && place == "" && s.site != nil {
		place = s.site.Name
	}
	return id, place, err
}

// look asks squeue, then for those that have ended scontrol, and for those that are forgotten sacct.
func (s *slurm) look(ctx context.Context, jobs []Asked) ([]Told, error) {
	known, err := s.known(ctx, jobs)
	if err != nil {
		return nil, err
	}
	told := make([]Told, len(jobs))
	var ended, gone []string
	for i, j := range jobs {
		found, ok := find(known, j)
		switch {
		case ok:
			told[i] = Told{Away: found.Away()}
			if found.Away().State.Over() {
				ended = append(ended, base(found.ID))
			}
		case j.ID != "":
			gone = append(gone, base(j.ID))
		}
	}
	past, err := s.past(ctx, unique(ended), unique(gone))
	if err != nil {
		return nil, err
	}
	for i, j := range jobs {
		if now := &told[i]; now.State != "" && !now.State.Over() {
			continue
		}
		if found, ok := past[cmp.Or(told[i].ID, j.ID)]; ok {
			told[i] = toldOf(found)
		} else if told[i].State == "" {
			told[i], err = s.unknown(ctx, j)
		}
		if err != nil {
			return nil, err
		}
	}
	return told, nil
}

// known is what squeue says: of all jobs of this user where one is looked for by its comment.
func (s *slurm) known(ctx context.Context, jobs []Asked) ([]text.Job, error) {
	var ids []string
	marked := false
	for _, j := range jobs {
		marked = marked || j.ID == ""
		ids = append(ids, base(j.ID))
	}
	out, err := s.commands.Queue(ctx, text.QueueFormat, slices.DeleteFunc(unique(ids), func(id string) bool { return id == "" }))
	if err == nil && marked {
		var mine string
		mine, err = s.commands.Mine(ctx, text.QueueFormat)
		out += mine
	}
	if err != nil {
		return nil, err
	}
	return text.Queue(out, time.Local)
}

// find finds a job by its ID, or by its comment if the ID was never written down.
func find(known []text.Job, j Asked) (text.Job, bool) {
	i := slices.IndexFunc(known, func(k text.Job) bool {
		if j.ID != "" {
			return k.ID == j.ID
		}
		_, task, _ := strings.Cut(k.ID, "_")
		return k.Mark == j.Mark && task == j.Task
	})
	if i < 0 {
		return text.Job{}, false
	}
	return known[i], true
}

// past is how jobs ended, by ID.
func (s *slurm) past(ctx context.Context, ended, gone []string) (map[string]text.Job, error) {
	all := map[string]text.Job{}
	add := func(jobs []text.Job, err error) error {
		for _, j := range jobs {
			if j.Away().State.Over() {
				all[j.ID] = j
			}
		}
		return err
	}
	for _, id := range ended {
		out, err := s.commands.Detail(ctx, id)
		if err == nil {
			err = add(text.Details(out, time.Local))
		}
		if err != nil {
			return nil, err
		}
	}
	if len(gone) == 0 {
		return all, nil
	}
	out, err := s.commands.Past(ctx, text.PastFields, gone)
	if err == nil {
		err = add(text.Past(out, time.Local))
	}
	return all, err
}

func toldOf(j text.Job) Told {
	return Told{Away: j.Away(), Exit: j.Exit, Signal: host.SignalName(j.Signal), Ended: j.Ended}
}

// unknown is a job that neither squeue nor the accounting has. That it is not there says nothing where the commands now
// ask another cluster.
func (s *slurm) unknown(ctx context.Context, j Asked) (Told, error) {
	if j.ID == "" && time.Since(j.Submitted) < unasked {
		j.State, j.Why = runs.Queued, "it is being handed in"
		return Told{Away: j.Away}, nil
	}
	settings, err := s.commands.Settings(ctx)
	said := text.Settings(settings)
	switch {
	case err != nil:
		return Told{}, err
	case j.Place != "" && said["ClusterName"] != j.Place:
		return Told{}, fmt.Errorf("the commands of Slurm ask the cluster %s now, and job %s is one of %s: set SLURM_CONF, or log in there", said["ClusterName"], j.ID, j.Place)
	case j.ID == "":
		return lost(j.Away, "gpuard was killed while it handed the job in, and Slurm has no job with its mark"), nil
	}
	return lost(j.Away, "Slurm does not know job %s any more (it forgets one %s after its end), and has no accounting of it: how it ended is unknown", j.ID, cmp.Or(said["MinJobAge"], "some time")), nil
}

// base is the number of a job, without that of the task of an array.
func base(id string) string {
	id, _, _ = strings.Cut(id, "_")
	return id
}

func unique(words []string) []string {
	slices.Sort(words)
	return slices.Compact(words)
}
