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

	"gpuard/internal/core/kubernetes"
	"gpuard/internal/core/runs"
	"gpuard/internal/host/kube"
)

// look asks each place once. A place that does not answer hides no other: its jobs get no answer.
func (s *pods) look(ctx context.Context, jobs []Asked) ([]Told, error) {
	told := make([]Told, len(jobs))
	by := map[string][]int{}
	for i := range jobs {
		by[jobs[i].Place] = append(by[jobs[i].Place], i)
	}
	var problems []error
	for place, list := range by {
		if err := s.lookAt(ctx, place, jobs, list, told); err != nil {
			if place != "" {
				err = fmt.Errorf("%s: %w", place, err)
			}
			problems = append(problems, err)
		}
	}
	return told, errors.Join(problems...)
}

func (s *pods) lookAt(ctx context.Context, place string, jobs []Asked, list []int, told []Told) error {
	k, err := s.at(place)
	if err == nil && place == "" { // handed in without an answer: to where kubectl goes now, unless it was told otherwise since
		if k.Context, k.Namespace, err = k.Where(ctx); err == nil {
			place = k.Context + "/" + cmp.Or(k.Namespace, "default")
		}
	}
	if err != nil {
		return err
	}
	var names []string
	for _, i := range list {
		if jobs[i].ID == "" { // it has to be looked for
			names = nil
			break
		}
		names = append(names, base(jobs[i].ID))
	}
	v := view{}
	selector := kube.Managed(unique(names))
	if v.jobs, err = k.Jobs(ctx, selector); err != nil {
		return err
	}
	if v.pods, err = k.JobPods(ctx, selector); err != nil {
		return err
	}
	if v.silent(jobs, list) {
		v.events, _ = k.JobEvents(ctx) // a person who may not see events still gets the state
	}
	for _, i := range list {
		told[i] = v.told(jobs[i])
		if told[i].code == "no-gpu" && v.nodes == nil { // would it wait for ever?
			v.nodes, _ = k.Nodes(ctx)
			told[i] = v.told(jobs[i])
		}
		if told[i].ID != "" {
			told[i].Place = place
		}
	}
	return nil
}

// view is what a place says.
type view struct {
	jobs   []kubernetes.Job
	pods   []kubernetes.Pod
	events []kubernetes.Event
	nodes  []kubernetes.Node
}

// of finds the Job and its pods.
func (v *view) of(a Asked) (*kubernetes.Job, []kubernetes.Pod) {
	i := slices.IndexFunc(v.jobs, func(j kubernetes.Job) bool {
		if a.ID != "" {
			return j.Meta.Name == base(a.ID)
		}
		return strings.HasSuffix(j.Meta.Name, strings.TrimPrefix(a.Mark, "gpuard")) // "train-1f2e" of the mark "gpuard-1f2e"
	})
	if i < 0 {
		return nil, nil
	}
	var own []kubernetes.Pod
	for _, p := range v.pods {
		if p.Meta.Labels["batch.kubernetes.io/job-name"] == v.jobs[i].Meta.Name {
			own = append(own, p)
		}
	}
	return &v.jobs[i], own
}

// silent reports whether a job has no pod: then only events say why.
func (v *view) silent(jobs []Asked, list []int) bool {
	return slices.ContainsFunc(list, func(i int) bool {
		j, own := v.of(jobs[i])
		return j != nil && len(own) == 0
	})
}

func (v *view) told(a Asked) Told {
	j, own := v.of(a)
	switch {
	case j == nil && a.ID == "" && time.Since(a.Submitted) < unasked:
		a.State, a.Why = runs.Queued, "it is being handed in"
		return Told{Away: a.Away}
	case j == nil && a.ID == "":
		return lost(a.Away, "gpuard was killed while it handed the job in, and the cluster has no Job with its mark")
	case j == nil:
		return lost(a.Away, "the cluster has no Job %s any more: somebody has deleted it, or its time there is over", base(a.ID))
	}
	events := slices.DeleteFunc(slices.Clone(v.events), func(e kubernetes.Event) bool { return e.About.Name != j.Meta.Name })
	var p kubernetes.Progress
	if task, err := strconv.Atoi(a.Task); err == nil {
		p = kubernetes.LookTask(j, task, own, events, v.nodes)
	} else {
		p = kubernetes.Look(j, own, events, v.nodes)
	}
	t := Told{Away: a.Away, Ended: p.Ended}
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
		if t.State = runs.Queued; t.code == "suspended" {
			t.State = runs.Stopped
		}
	case kubernetes.Running:
		t.State, t.Began = runs.Active, p.Started
	case kubernetes.Done:
		t.State, t.Began = runs.Finished, p.Started
	case kubernetes.Failed:
		t.State, t.Began, t.Exit = runs.Broken, p.Started, *cmp.Or(p.Exit, new(1))
	}
	return t
}
