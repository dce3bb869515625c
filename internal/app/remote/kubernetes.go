package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/batchlog"
	"gpuard/internal/core/handoff"
	"gpuard/internal/core/kubernetes"
	"gpuard/internal/host/kube"
)

// kubernetesForms are the names under which a user asks for Kubernetes, and what a job then asks for GPUs; "" whatever
// the cluster has.
func kubernetesForms() map[string]handoff.Target {
	return map[string]handoff.Target{"kubernetes": "", "kubernetes-plugin": handoff.Kubernetes, "kubernetes-dra": handoff.KubernetesDRA}
}

// kubernetesCluster is a cluster of Kubernetes. A job there is known by the name of its Job, and its place is
// CONTEXT/NAMESPACE.
type kubernetesCluster struct {
	host *machine.Host
	form handoff.Target
}

func openKubernetes(h *machine.Host, name string) *Scheduler {
	s := &kubernetesCluster{h, kubernetesForms()[name]}
	return &Scheduler{Name: "kubernetes", Title: "Kubernetes", Write: s.writeJob, Test: s.testJob, Submit: s.submitJob, Look: s.lookAtJobs, Cancel: s.cancelJobs, Hold: s.holdJob, Logs: s.copyLogs, Image: true, Ends: true}
}

// clusterAt is the way to a place; "" is the one that kubectl takes now.
func (s *kubernetesCluster) clusterAt(place string) (*kube.Cluster, error) {
	context, namespace := "", ""
	if i := strings.LastIndexByte(place, '/'); i >= 0 {
		// Names of contexts may have more of them.
		context, namespace = place[:i], place[i+1:]
	}

	k, err := kube.FindKubectl(s.host.Env, context, namespace)
	if err == nil && s.host.Times.Engine > 0 {
		k.Patience = s.host.Times.Engine
	}

	return k, err
}

// writeJob writes the job in the form that the cluster can serve.
func (s *kubernetesCluster) writeJob(ctx context.Context, w handoff.Work) (handoff.Output, error) {
	if s.form == "" {
		k, err := s.clusterAt("")
		if err != nil {
			return handoff.Output{}, err
		}

		var why string
		s.form, why, err = chooseForm(ctx, k, &w)
		if err != nil {
			return handoff.Output{}, err
		}

		if why != "" {
			s.host.Say(why)
		}
	}
	config, err := s.host.Config()
	if err != nil {
		return handoff.Output{}, err
	}

	return handoff.Write(s.form, w, config.MergeSlurm())
}

// chooseForm says whether the job claims devices (DRA) or asks the device plugin, by what the cluster has.
func chooseForm(ctx context.Context, k *kube.Cluster, w *handoff.Work) (handoff.Target, string, error) {
	if w.Spec.CPU {
		return handoff.Kubernetes, "", nil
	}

	c := &kubernetes.Cluster{Serves: readAnswer(ctx, k.Serves)}
	if c.Serves.Problem != "" {
		return "", "", silenceError(c.Serves.Problem)
	}

	if slices.Contains(c.Serves.Found, "resource.k8s.io/v1") {
		c.Classes, c.Slices = readAnswer(ctx, k.ListDeviceClasses), readAnswer(ctx, k.ListSlices)
	}

	if dra, _ := c.SupportsDRA(); !dra {
		c.Nodes = readAnswer(ctx, k.Nodes)
	}

	if dra, why := c.ChooseForm(); dra {
		return handoff.KubernetesDRA, "it claims devices (kubernetes-dra): " + why, ctx.Err()
	} else {
		return handoff.Kubernetes, "it asks the device plugin (kubernetes-plugin): " + why, ctx.Err()
	}
}

func silenceError(problem string) error {
	return fmt.Errorf("cannot ask the Kubernetes cluster: %s; see: gpuard doctor --engine kubernetes", strings.TrimSuffix(problem, "."))
}

// testJob has the cluster check the manifest strictly.
func (s *kubernetesCluster) testJob(ctx context.Context, path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}

	k, err := s.clusterAt("")
	if err != nil {
		return "", err
	}

	err = submitError(k.DryRun(ctx, text))
	if err != nil {
		return "", err
	}

	return "the cluster accepts it; whether a node has room is seen when it is handed in, and in gpuard doctor --engine kubernetes", nil
}

// submitError is an error of handing a job in.
func submitError(err error) error {
	switch {
	case err == nil:
		return nil
	case kube.IsKind(err, kube.Silent):
		return silenceError(err.Error())
	case kube.IsKind(err, kube.Forbidden):
		return fmt.Errorf("%w; see what you may do: gpuard doctor --engine kubernetes", err)
	}
	return fmt.Errorf("the cluster refuses it: %w", err)
}

// submitJob makes the job and what belongs to it. Where one of the objects cannot be made, none stays.
func (s *kubernetesCluster) submitJob(ctx context.Context, path string) (id, place string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", "", err
	}

	k, err := s.clusterAt("")
	if err != nil {
		return "", "", err
	}

	k.Context, _, err = k.CurrentContext(ctx)
	if err != nil {
		// From now on the same, whatever the current context becomes.
		return "", "", submitError(err)
	}

	made, err := k.Create(ctx, text)
	var own kube.CreatedObject
	var names []string
	for _, m := range made {
		names, k.Namespace = append(names, m.Kind+"/"+m.Meta.Name), m.Meta.Namespace
		if m.Kind == "job.batch" {
			own = m
		}
	}

	if err == nil && own.Meta.Name == "" {
		err = errors.New("kubectl does not say which Job it has made")
	}

	if err != nil {
		if kube.IsKind(err, kube.Silent) && own.Meta.Name == "" {
			return "", "", fmt.Errorf("%w: %w", ErrUnsure, err)
		}
		err = submitError(err)
		if len(names) > 0 {
			if derr := k.Delete(ctx, names...); derr != nil {
				err = fmt.Errorf("%w; what was made before could not be deleted (%w): kubectl delete -n %s %s", err, derr, k.Namespace, strings.Join(names, " "))
			}
		}

		return "", "", err
	}

	for _, m := range made {
		if m.Kind != own.Kind {
			// Without the right to patch, the part stays until gpuard cancel.
			_ = k.Own(ctx, own, m)
		}
	}

	return own.Meta.Name, k.Context + "/" + k.Namespace, nil
}

// cancelJobs deletes jobs with all that was made for them, and waits until they are gone. A task of an array cannot be
// deleted alone: its number would count as failed, and be started again where the job says so. So who calls names all.
func (s *kubernetesCluster) cancelJobs(ctx context.Context, jobs []batchlog.Away) error {
	by := map[string][]string{}
	for _, j := range jobs {
		by[j.Place] = append(by[j.Place], baseID(j.ID))
	}
	for place, names := range by {
		k, err := s.clusterAt(place)
		if err != nil {
			return err
		}

		found, err := k.Jobs(ctx, kube.ManagedSelector(sortUnique(names)))
		if err != nil {
			return err
		}

		var all []string
		for _, j := range found {
			if !slices.Contains(names, j.Meta.Name) {
				continue
			}
			all = append(all, "job.batch/"+j.Meta.Name)
			for _, c := range j.Spec.Template.Spec.Claims {
				if c.Template == j.Meta.Name {
					all = append(all, "resourceclaimtemplate.resource.k8s.io/"+c.Template)
				}
			}
		}

		if len(all) == 0 {
			continue
		}
		if err := k.Delete(ctx, all...); err != nil {
			return err
		}
	}

	return nil
}

func (s *kubernetesCluster) holdJob(ctx context.Context, job batchlog.Away, on bool) error {
	k, err := s.clusterAt(job.Place)
	if err != nil {
		return err
	}

	found, err := k.Jobs(ctx, kube.ManagedSelector([]string{baseID(job.ID)}))
	switch {
	case err != nil:
		return err
	case len(found) > 0 && found[0].Meta.Labels[kubernetes.KueueLabel] != "":
		return errors.New("only Kueue decides when it starts; see: kubectl get workloads")
	}

	return k.SetSuspended(ctx, baseID(job.ID), on)
}

// copyLogs copies what the job prints. With follow it waits until there is a pod that has started, and goes on until
// that has ended.
func (s *kubernetesCluster) copyLogs(ctx context.Context, job batchlog.Away, follow bool, open Opener) error {
	k, err := s.clusterAt(job.Place)
	if err != nil {
		return err
	}
	said := ""
	for {
		told, err := s.lookAtJobs(ctx, []AskedJob{{Away: job}})
		switch {
		case err != nil && !follow:
			return err
		case err == nil && told[0].pod != "" && (told[0].State == batchlog.Active || told[0].State.Over()):
			w, err := open(told[0].pod)
			if err != nil {
				return err
			}
			return errors.Join(k.CopyLogs(ctx, w, told[0].pod, follow), w.Close())
		case err == nil && told[0].State.Over():
			return fmt.Errorf("its pod is gone, and its output with it: %s", cmp.Or(told[0].Why, "the cluster says no more"))
		case !follow:
			return fmt.Errorf("it has not started: %s", told[0].Why)
		}
		if now := cmp.Or(told[0].Why, fmt.Sprint(err)); now != said {
			s.host.Say("waiting for job " + baseID(job.ID) + ": " + now)
			said = now
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(cmp.Or(s.host.Times.Poll, 3*time.Second)):
		}
	}
}
