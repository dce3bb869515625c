package kubejobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/kubernetes"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/kube"
)

// Job is a job of a cluster: what is needed to find it again, from any shell.
type Job struct {
	Config    string   `json:"kubeconfig,omitempty"` // KUBECONFIG; "" what kubectl takes without it
	Context   string   `json:"context,omitempty"`    // "" in a pod
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	UID       string   `json:"uid"`
	Parts     []string `json:"parts,omitempty"` // what was made for it, such as "resourceclaimtemplate.resource.k8s.io/train"
}

// ErrGone is the error of a job that the cluster no longer has.
var ErrGone = errors.New("the cluster no longer has it: somebody has deleted it, or its time there is over")

// Claims says whether a job claims devices (DRA) or asks the device plugin, by what the cluster has, and why.
func Claims(ctx context.Context, host *machine.Host, context, namespace string) (bool, string, error) {
	k, err := kube.Find(host.Env, context, namespace)
	if err != nil {
		return false, "", err
	}
	c := &kubernetes.Cluster{Serves: read(ctx, k.Serves)}
	if c.Serves.Problem != "" {
		return false, "", silence(c.Serves.Problem)
	}
	if slices.Contains(c.Serves.Found, "resource.k8s.io/v1") {
		c.Classes, c.Slices = read(ctx, k.Classes), read(ctx, k.Slices)
	}
	if dra, _ := c.DRA(); !dra {
		c.Nodes = read(ctx, k.Nodes)
	}
	dra, why := c.Choose()
	return dra, why, ctx.Err()
}

func silence(problem string) error {
	return fmt.Errorf("cannot ask the Kubernetes cluster: %s; see: gpuard doctor --engine kubernetes", strings.TrimSuffix(problem, "."))
}

// Try has the cluster check manifests, and makes nothing.
func Try(ctx context.Context, host *machine.Host, context, namespace string, manifests string) error {
	k, err := kube.Find(host.Env, context, namespace)
	if err == nil {
		err = refused(k.DryRun(ctx, []byte(manifests)))
	}
	return err
}

// refused is an error of handing a job in.
func refused(err error) error {
	switch {
	case err == nil:
		return nil
	case kube.Is(err, kube.Silent):
		return silence(err.Error())
	case kube.Is(err, kube.Forbidden):
		return fmt.Errorf("cannot hand the job in: %w; see what you may do: gpuard doctor --engine kubernetes", err)
	}
	return fmt.Errorf("cannot hand the job in: the cluster refuses it: %w", err)
}

// Submit makes the job of manifests and what belongs to it. Where one of the objects cannot be made, none stays.
func Submit(ctx context.Context, host *machine.Host, context, namespace string, manifests string) (j Job, err error) {
	k, err := kube.Find(host.Env, context, namespace)
	if err != nil {
		return j, err
	}
	j.Config, _ = host.Env.Lookup("KUBECONFIG")
	if j.Context, _, err = k.Where(ctx); err != nil {
		return j, refused(err)
	}
	k.Context = j.Context // also when the current context changes now
	made, err := k.Create(ctx, []byte(manifests))
	var own kube.Made
	for _, m := range made {
		if m.Kind == "job.batch" {
			own, j.Name, j.UID, j.Namespace = m, m.Meta.Name, m.Meta.UID, m.Meta.Namespace
		} else {
			j.Parts, j.Namespace = append(j.Parts, m.Kind+"/"+m.Meta.Name), m.Meta.Namespace
		}
	}
	if err == nil && j.Name == "" {
		err = errors.New("kubectl does not say which job it has made")
	}
	if err != nil {
		return Job{}, errors.Join(refused(err), j.unmake(ctx, k, made))
	}
	k.Namespace = j.Namespace
	for _, m := range made {
		if m.Kind != own.Kind {
			_ = k.Own(ctx, own, m) // without that right the part stays until gpuard cancel
		}
	}
	return j, nil
}

// unmake deletes what was made before something could not be made.
func (j Job) unmake(ctx context.Context, k *kube.Cluster, made []kube.Made) error {
	if len(made) == 0 {
		return nil
	}
	k.Namespace = j.Namespace
	names := j.names()
	if err := k.Delete(ctx, names...); err != nil {
		return fmt.Errorf("cannot delete what was made before that: %w; do it with: kubectl delete -n %s %s", err, j.Namespace, strings.Join(names, " "))
	}
	return nil
}

func (j Job) names() []string {
	if j.Name == "" {
		return j.Parts
	}
	return append([]string{"job.batch/" + j.Name}, j.Parts...)
}

// kubectl is the way to the cluster of the job, whatever the current context is by now.
func (j Job) kubectl(host *machine.Host) (*kube.Cluster, error) {
	env := slices.DeleteFunc(slices.Clone(host.Env), func(pair string) bool { return strings.HasPrefix(pair, "KUBECONFIG=") })
	if j.Config != "" {
		env = append(env, "KUBECONFIG="+j.Config)
	}
	return kube.Find(visible.Env(env), j.Context, j.Namespace)
}

// Look asks the cluster where the job is. The error is ErrGone where it no longer has it.
func (j Job) Look(ctx context.Context, host *machine.Host) (p kubernetes.Progress, err error) {
	k, err := j.kubectl(host)
	if err != nil {
		return p, err
	}
	job, err := k.Job(ctx, j.Name)
	switch {
	case kube.Is(err, kube.NotFound), err == nil && job.Meta.UID != j.UID:
		return p, ErrGone
	case err != nil:
		return p, fmt.Errorf("the cluster does not say: %w", err)
	}
	pods, err := k.JobPods(ctx, j.Name)
	if err != nil {
		return p, fmt.Errorf("the cluster does not say: %w", err)
	}
	var events []kubernetes.Event
	if len(pods) == 0 {
		events, _ = k.Events(ctx, "Job", j.Name) // a person who may not see events still gets the state
	}
	p = kubernetes.Look(&job, pods, events, nil)
	if p.Why != nil && p.Why.Code == "no-gpu" { // would it wait for ever?
		if nodes, err := k.Nodes(ctx); err == nil {
			p = kubernetes.Look(&job, pods, events, nodes)
		}
	}
	return p, nil
}

// Follow asks again every pause until the job has ended, and tells each change of its state or reason. A cluster that
// does not answer is told once, and asked again.
func (j Job) Follow(ctx context.Context, host *machine.Host, pause time.Duration, tell func(kubernetes.Progress, error)) (kubernetes.Progress, error) {
	last := ""
	for {
		p, err := j.Look(ctx, host)
		switch {
		case ctx.Err() != nil:
			return p, ctx.Err()
		case errors.Is(err, ErrGone):
			return p, err
		case err != nil:
			p = kubernetes.Progress{}
		}
		now := fmt.Sprint(p.Phase, p.Pod, p.Node, err)
		if p.Why != nil {
			now += p.Why.Text
		}
		if now != last {
			tell(p, err)
		}
		if last = now; err == nil && p.Phase.Over() {
			return p, nil
		}
		select {
		case <-ctx.Done():
			return p, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// Logs copies what the job has printed to w. With follow it goes on until the job has ended.
func (j Job) Logs(ctx context.Context, host *machine.Host, w io.Writer, pod string, follow bool) error {
	k, err := j.kubectl(host)
	if err != nil {
		return err
	}
	if err := k.Logs(ctx, w, pod, follow); err != nil && ctx.Err() == nil {
		return fmt.Errorf("cannot read the log of the pod %s: %w", pod, err)
	}
	return ctx.Err()
}

// Cancel deletes the job and all that was made for it, and waits until it is gone.
func (j Job) Cancel(ctx context.Context, host *machine.Host) error {
	k, err := j.kubectl(host)
	if err != nil {
		return err
	}
	if job, err := k.Job(ctx, j.Name); err == nil && job.Meta.UID != j.UID {
		return ErrGone // another job has that name now
	}
	if err := k.Delete(ctx, j.names()...); err != nil {
		return fmt.Errorf("cannot delete the job %s in the namespace %s: %w", j.Name, j.Namespace, err)
	}
	return nil
}
