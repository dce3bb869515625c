package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/core/batchlog"
	"gpuard/internal/core/kubernetes"
	"gpuard/internal/host/kube"
)

// lookAtJobs asks each place once. A place that does not answer hides no other: its jobs get no answer.
func (s *kubernetesCluster) lookAtJobs(ctx context.Context, jobs []AskedJob) ([]ReportedJob, error) {
	told := make([]ReportedJob, len(jobs))
	by := map[string][]int{}
	for i := range jobs {
		by[jobs[i].Place] = append(by[jobs[i].Place], i)
	}

	var problems []error
	for place, list := range by {
		if err := s.lookAtPlace(ctx, place, jobs, list, told); err != nil {
			if place != "" {
				err = fmt.Errorf("%s: %w", place, err)
			}
			problems = append(problems, err)
		}
	}

	return told, errors.Join(problems...)
}

func (s *kubernetesCluster) lookAtPlace(ctx context.Context, place string, jobs []AskedJob, list []int, told []ReportedJob) error {
	k, err := s.clusterAt(place)
	if err != nil {
		return err
	}

	if place == "" {
		// Handed in without an answer: to where kubectl goes now, unless it was told otherwise since.
		k.Context, k.Namespace, err = k.CurrentContext(ctx)
		if err != nil {
			return err
		}

		place = k.Context + "/" + cmp.Or(k.Namespace, "default")
	}

	var names []string
	for _, i := range list {
		if jobs[i].ID == "" {
			// It has to be looked for.
			names = nil
			break
		}
		names = append(names, baseID(jobs[i].ID))
	}

	v := clusterView{}
	selector := kube.ManagedSelector(sortUnique(names))
	v.jobs, err = k.Jobs(ctx, selector)
	if err != nil {
		return err
	}

	v.pods, err = k.ListJobPods(ctx, selector)
	if err != nil {
		return err
	}

	if v.hasSilentJob(jobs, list) {
		// A person who may not see events still gets the state.
		v.events, _ = k.ListJobEvents(ctx)
	}

	for _, i := range list {
		told[i] = v.jobReport(jobs[i])
		if told[i].code == "no-gpu" && v.nodes == nil {
			// Would it wait for ever?
			v.nodes, _ = k.Nodes(ctx)
			told[i] = v.jobReport(jobs[i])
		}
		if told[i].ID != "" {
			told[i].Place = place
		}
	}

	return nil
}

// clusterView is what a place says.
type clusterView struct {
	jobs   []kubernetes.Job
	pods   []kubernetes.Pod
	events []kubernetes.Event
	nodes  []kubernetes.Node
}

// findJob finds the Job and its pods.
func (c *clusterView) findJob(a AskedJob) (*kubernetes.Job, []kubernetes.Pod) {
	i := slices.IndexFunc(c.jobs, func(j kubernetes.Job) bool {
		if a.ID != "" {
			return j.Meta.Name == baseID(a.ID)
		}

		// "train-1f2e" of the mark "gpuard-1f2e".
		return strings.HasSuffix(j.Meta.Name, strings.TrimPrefix(a.Mark, "gpuard"))
	})

	if i < 0 {
		return nil, nil
	}

	var own []kubernetes.Pod
	for _, p := range c.pods {
		if p.Meta.Labels["batch.kubernetes.io/job-name"] == c.jobs[i].Meta.Name {
			own = append(own, p)
		}
	}

	return &c.jobs[i], own
}

// hasSilentJob reports whether a job has no pod: then only events say why.
func (c *clusterView) hasSilentJob(jobs []AskedJob, list []int) bool {
	return slices.ContainsFunc(list, func(i int) bool {
		j, own := c.findJob(jobs[i])
		return j != nil && len(own) == 0
	})
}

func (c *clusterView) jobReport(a AskedJob) ReportedJob {
	j, own := c.findJob(a)
	switch {
	case j == nil && a.ID == "" && time.Since(a.Submitted) < maxTimeWithoutID:
		a.State, a.Why = batchlog.Queued, "it is being handed in"
		return ReportedJob{Away: a.Away}
	case j == nil && a.ID == "":
		return lostJob(a.Away, "gpuard was killed while it handed the job in, and the cluster has no Job with its mark")
	case j == nil:
		return lostJob(a.Away, "the cluster has no Job %s any more: somebody has deleted it, or its time there is over", baseID(a.ID))
	}

	events := slices.DeleteFunc(slices.Clone(c.events), func(e kubernetes.Event) bool { return e.About.Name != j.Meta.Name })
	var p kubernetes.Progress
	if task, err := strconv.Atoi(a.Task); err == nil {
		p = kubernetes.TaskProgress(j, task, own, events, c.nodes)
	} else {
		p = kubernetes.JobProgress(j, own, events, c.nodes)
	}

	t := ReportedJob{Away: a.Away, Ended: p.Ended}
	t.ID, t.Node, t.Began, t.Why, t.pod = j.Meta.Name, p.Node, nil, "", p.Pod
	if a.Task != "" {
		t.ID += "_" + a.Task
	}

	if p.Why != nil {
		t.Why, t.code = p.Why.Text, p.Why.Code
		if p.Why.Do != "" {
			t.Why += "; " + p.Why.Do
		}
	}

	switch p.Phase {
	case kubernetes.Waiting:
		t.State = batchlog.Queued
		if t.code == "suspended" {
			t.State = batchlog.Stopped
		}
	case kubernetes.Running:
		t.State, t.Began = batchlog.Active, p.Started
	case kubernetes.Done:
		t.State, t.Began = batchlog.Finished, p.Started
	case kubernetes.Failed:
		t.State, t.Began, t.Exit = batchlog.Broken, p.Started, *cmp.Or(p.Exit, new(1))
	}

	return t
}
