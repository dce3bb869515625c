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
	"gpuard/internal/core/batchlog"
	"gpuard/internal/core/check"
	"gpuard/internal/core/cluster"
	"gpuard/internal/core/handoff"
	"gpuard/internal/core/job"
	"gpuard/internal/host/slurmcmd"
	"gpuard/internal/text/slurmout"
)

type slurmScheduler struct {
	host     *machine.Host
	commands slurmcmd.Commands
	// What was read; one command asks once.
	site *cluster.Site
}

func openSlurm(h *machine.Host) *Scheduler {
	s := &slurmScheduler{host: h, commands: slurmCommands(h)}
	return &Scheduler{Name: "slurm", Title: "Slurm", Write: s.writeJob, Test: s.testJob, Submit: s.submitJob, Look: s.lookAtJobs,
		Cancel: func(ctx context.Context, jobs []batchlog.Away) error {
			var ids []string
			for _, j := range jobs {
				ids = append(ids, j.ID)
			}
			return s.commands.CancelJobs(ctx, ids)
		},
		Hold: func(ctx context.Context, job batchlog.Away, on bool) error {
			return s.commands.ControlJob(ctx, map[bool]string{true: "hold", false: "release"}[on], job.ID)
		}}
}

func slurmCommands(h *machine.Host) slurmcmd.Commands {
	return slurmcmd.Commands{Env: h.Env, Patience: cmp.Or(h.Times.Engine, 10*time.Second)}
}

// ReadSlurmLines reads what the #SBATCH lines of a script ask for.
func ReadSlurmLines(script string) (slurmout.ScriptOptions, error) {
	return slurmout.ReadScript(script)
}

// ReadSlurm reads what the cluster is made of. What does not answer is said in it.
func ReadSlurm(ctx context.Context, h *machine.Host) cluster.Site {
	c := slurmCommands(h)
	settings, err := c.Settings(ctx)
	if err != nil {
		return cluster.Site{Problem: err.Error()}
	}

	said := slurmout.ParseSettings(settings)
	site := cluster.Site{Name: said["ClusterName"], Version: said["SLURM_VERSION"], Keeps: said["MinJobAge"],
		Types: slices.Contains(strings.Split(said["GresTypes"], ","), "gpu"), Accounting: strings.HasSuffix(said["AccountingStorageType"], "/slurmdbd")}

	err = readParts(ctx, c, &site)
	if err != nil {
		site.Problem = err.Error()
	}

	return site
}

// readParts reads the nodes and the partitions of a cluster.
func readParts(ctx context.Context, c slurmcmd.Commands, site *cluster.Site) error {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return err
	}

	site.Nodes, err = slurmout.ParseNodes(nodes)
	if err != nil {
		return err
	}

	partitions, err := c.ReadPartitions(ctx, slurmout.PartitionFormat)
	if err != nil {
		return err
	}

	site.Partitions, err = slurmout.ParsePartitions(partitions)

	return err
}

// DiagnoseSlurm judges whether Slurm can give GPUs to this user.
func DiagnoseSlurm(ctx context.Context, h *machine.Host) (check.Diagnosis, error) {
	config, err := h.Config()
	if err != nil {
		return check.Diagnosis{}, err
	}
	return cluster.Diagnose(ReadSlurm(ctx, h), config.MergeSlurm()), nil
}

// writeJob writes the script with the words that the cluster knows.
func (s *slurmScheduler) writeJob(ctx context.Context, w handoff.Work) (handoff.Output, error) {
	config, err := s.host.Config()
	if err != nil {
		return handoff.Output{}, err
	}

	said := config.MergeSlurm()
	if out, err := handoff.Write(handoff.Slurm, w, said); err != nil {
		return out, err
	}

	if s.site == nil {
		site := ReadSlurm(ctx, s.host)
		s.site = &site
		if site.Problem != "" {
			return handoff.Output{}, fmt.Errorf("cannot hand the job to Slurm: %s", site.Problem)
		}
	}

	out, err := handoff.Write(handoff.Slurm, w, cluster.KnownTerms(said, *s.site))
	if err != nil {
		return out, cmp.Or(cluster.CheckTerms(said, *s.site, w.Spec), err)
	}

	return out, nil
}

func (s *slurmScheduler) testJob(ctx context.Context, path string) (string, error) {
	said, err := s.commands.TestSubmit(ctx, path)
	return said, slurmRefusal(err)
}

// slurmRefusal is what Slurm does not want, with what to do about it.
func slurmRefusal(err error) error {
	var refused *slurmcmd.RefusedError
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

func (s *slurmScheduler) submitJob(ctx context.Context, path string) (id, place string, err error) {
	id, place, err = s.commands.Submit(ctx, path)
	err = slurmRefusal(err)
	if err == nil && place == "" && s.site != nil {
		place = s.site.Name
	}

	return id, place, err
}

// lookAtJobs asks squeue, then for those that have ended scontrol, and for those that are forgotten sacct.
func (s *slurmScheduler) lookAtJobs(ctx context.Context, jobs []AskedJob) ([]ReportedJob, error) {
	known, err := s.queuedJobs(ctx, jobs)
	if err != nil {
		return nil, err
	}

	told := make([]ReportedJob, len(jobs))
	var ended, gone []string
	for i, j := range jobs {
		found, ok := findJob(known, j)
		switch {
		case ok:
			told[i] = ReportedJob{Away: found.ToAway()}
			if found.ToAway().State.Over() {
				ended = append(ended, baseID(found.ID))
			}
		case j.ID != "":
			gone = append(gone, baseID(j.ID))
		}
	}

	past, err := s.pastJobs(ctx, sortUnique(ended), sortUnique(gone))
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
			told[i], err = s.missingJob(ctx, j)
		}
		if err != nil {
			return nil, err
		}
	}

	return told, nil
}

// queuedJobs is what squeue says: of all jobs of this user where one is looked for by its comment.
func (s *slurmScheduler) queuedJobs(ctx context.Context, jobs []AskedJob) ([]slurmout.Job, error) {
	var ids []string
	marked := false
	for _, j := range jobs {
		marked = marked || j.ID == ""
		ids = append(ids, baseID(j.ID))
	}

	out, err := s.commands.ReadQueue(ctx, slurmout.QueueFormat, slices.DeleteFunc(sortUnique(ids), func(id string) bool { return id == "" }))
	if err == nil && marked {
		var mine string
		mine, err = s.commands.ReadOwnQueue(ctx, slurmout.QueueFormat)
		out += mine
	}

	if err != nil {
		return nil, err
	}

	return slurmout.ParseQueue(out, time.Local)
}

// findJob finds a job by its ID, or by its comment if the ID was never written down.
func findJob(known []slurmout.Job, j AskedJob) (slurmout.Job, bool) {
	i := slices.IndexFunc(known, func(k slurmout.Job) bool {
		if j.ID != "" {
			return k.ID == j.ID
		}
		_, task, _ := strings.Cut(k.ID, "_")
		return k.Mark == j.Mark && task == j.Task
	})
	if i < 0 {
		return slurmout.Job{}, false
	}
	return known[i], true
}

// pastJobs is how jobs ended, by ID.
func (s *slurmScheduler) pastJobs(ctx context.Context, ended, gone []string) (map[string]slurmout.Job, error) {
	all := map[string]slurmout.Job{}
	add := func(jobs []slurmout.Job, err error) error {
		for _, j := range jobs {
			if j.ToAway().State.Over() {
				all[j.ID] = j
			}
		}
		return err
	}

	for _, id := range ended {
		out, err := s.commands.ReadJob(ctx, id)
		if err != nil {
			return nil, err
		}
		err = add(slurmout.ParseDetails(out, time.Local))
		if err != nil {
			return nil, err
		}
	}

	if len(gone) == 0 {
		return all, nil
	}

	out, err := s.commands.ReadAccounting(ctx, slurmout.PastFields, gone)
	if err != nil {
		return all, err
	}

	err = add(slurmout.ParsePast(out, time.Local))

	return all, err
}

func toldOf(j slurmout.Job) ReportedJob {
	return ReportedJob{Away: j.ToAway(), Exit: j.Exit, Signal: slurmcmd.SignalName(j.Signal), Ended: j.Ended}
}

// missingJob is a job that neither squeue nor the accounting has. That it is not there says nothing where the commands
// now ask another cluster.
func (s *slurmScheduler) missingJob(ctx context.Context, j AskedJob) (ReportedJob, error) {
	if j.ID == "" && time.Since(j.Submitted) < maxTimeWithoutID {
		j.State, j.Why = batchlog.Queued, "it is being handed in"
		return ReportedJob{Away: j.Away}, nil
	}

	settings, err := s.commands.Settings(ctx)
	said := slurmout.ParseSettings(settings)
	switch {
	case err != nil:
		return ReportedJob{}, err
	case j.Place != "" && said["ClusterName"] != j.Place:
		return ReportedJob{}, fmt.Errorf("the commands of Slurm ask the cluster %s now, and job %s is one of %s: set SLURM_CONF, or log in there", said["ClusterName"], j.ID, j.Place)
	case j.ID == "":
		return lostJob(j.Away, "gpuard was killed while it handed the job in, and Slurm has no job with its mark"), nil
	}

	return lostJob(j.Away, "Slurm does not know job %s any more (it forgets one %s after its end), and has no accounting of it: how it ended is unknown", j.ID, cmp.Or(said["MinJobAge"], "some time")), nil
}

// baseID is the number of a job, without that of the task of an array.
func baseID(id string) string {
	id, _, _ = strings.Cut(id, "_")
	return id
}

func sortUnique(words []string) []string {
	slices.Sort(words)
	return slices.Compact(words)
}
