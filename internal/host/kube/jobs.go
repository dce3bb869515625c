package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"gpuard/internal/core/kubernetes"
)

// CreatedObject is an object that was made.
type CreatedObject struct {
	// The kind as kubectl takes it: "job.batch".
	Kind string          `json:"kind"`
	Meta kubernetes.Meta `json:"metadata"`
}

// CurrentContext is the context and the namespace that kubectl takes now. Both are "" in a pod, where kubectl has no
// configuration file.
func (c *Cluster) CurrentContext(ctx context.Context) (string, string, error) {
	type named struct {
		Name    string
		Context struct{ Namespace string }
	}

	found, err := getObject[struct {
		Current  string `json:"current-context"`
		Contexts []named
	}](ctx, c, "config", "view")

	if err != nil {
		return "", "", err
	}

	name, space := c.Context, c.Namespace
	if name == "" {
		name = found.Current
	}

	for _, one := range found.Contexts {
		if one.Name == name && space == "" {
			space = one.Context.Namespace
		}
	}

	return name, space, nil
}

// DryRun has the cluster check manifests strictly, as if it made them.
func (c *Cluster) DryRun(ctx context.Context, manifests []byte) error {
	_, err := c.runKubectl(ctx, manifests, "create", "--dry-run=server", "--validate=strict", "--output=name", "--filename=-")
	return err
}

// Create makes the objects of manifests, and returns those that were made, also with an error.
func (c *Cluster) Create(ctx context.Context, manifests []byte) ([]CreatedObject, error) {
	out, err := c.runKubectl(ctx, manifests, "create", "--validate=strict", "--output=json", "--filename=-")
	made, unread := decodeCreated(out)
	return made, errors.Join(err, unread)
}

// decodeCreated reads what kubectl create prints: an object, several, or a list.
func decodeCreated(text []byte) (made []CreatedObject, err error) {
	type raw struct {
		Version string `json:"apiVersion"`
		Kind    string
		Meta    kubernetes.Meta `json:"metadata"`
	}
	add := func(r raw) {
		group, _, grouped := strings.Cut(r.Version, "/")
		kind := strings.ToLower(r.Kind)
		if grouped {
			kind += "." + group
		}
		made = append(made, CreatedObject{kind, r.Meta})
	}
	for in := json.NewDecoder(bytes.NewReader(text)); ; {
		var one struct {
			raw
			Items []raw
		}
		switch err := in.Decode(&one); {
		case errors.Is(err, io.EOF):
			return made, nil
		case err != nil:
			return made, &Error{Refused, fmt.Sprintf("cannot read what kubectl printed: %v", err)}
		case one.Kind == "List":
			for _, r := range one.Items {
				add(r)
			}
		default:
			add(one.raw)
		}
	}
}

// Own makes job the owner of what was made for it: who deletes the job deletes it too, and so does the cluster when the
// job's time is over (ttlSecondsAfterFinished).
func (c *Cluster) Own(ctx context.Context, job CreatedObject, part CreatedObject) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"ownerReferences": []map[string]any{
		{"apiVersion": "batch/v1", "kind": "Job", "name": job.Meta.Name, "uid": job.Meta.UID}}}})
	if err != nil {
		return err
	}
	_, err = c.runKubectl(ctx, nil, "patch", part.Kind, part.Meta.Name, "--type=merge", "--output=name", "--patch="+string(patch))

	return err
}

// deleteTimeout is how long the end of a deleted object is waited for: a pod has 30 s to end by itself, if its job says
// nothing else.
const deleteTimeout = 60 * time.Second

// Delete deletes objects, such as "job.batch/train", and waits until they and what they own are gone. What is gone
// already is no error.
func (c *Cluster) Delete(ctx context.Context, names ...string) error {
	patient := *c
	patient.Patience = deleteTimeout + c.answerTimeout()
	_, err := patient.runKubectl(ctx, nil, append([]string{"delete", "--ignore-not-found", "--cascade=foreground", "--wait=true", fmt.Sprintf("--timeout=%ds", int(deleteTimeout.Seconds())), "--output=name"}, names...)...)

	return err
}

// ManagedSelector selects what gpuard has made in the namespace: of these jobs, or of all if there are none or very
// many.
func ManagedSelector(jobs []string) string {
	// The selector is part of a URL.
	const by, most = "app.kubernetes.io/managed-by=gpuard", 50
	if len(jobs) == 0 || len(jobs) > most {
		return by
	}
	return by + ",app.kubernetes.io/instance in (" + strings.Join(jobs, ",") + ")"
}

// Jobs lists the jobs of a selector.
func (c *Cluster) Jobs(ctx context.Context, selector string) ([]kubernetes.Job, error) {
	return listObjects[kubernetes.Job](ctx, c, "jobs.batch", "--selector="+selector)
}

// ListJobPods lists the pods of a selector.
func (c *Cluster) ListJobPods(ctx context.Context, selector string) ([]kubernetes.Pod, error) {
	return listObjects[kubernetes.Pod](ctx, c, "pods", "--selector="+selector)
}

// ListJobEvents lists what was reported about all Jobs of the namespace.
func (c *Cluster) ListJobEvents(ctx context.Context) ([]kubernetes.Event, error) {
	return listObjects[kubernetes.Event](ctx, c, "events", "--field-selector=involvedObject.kind=Job")
}

// SetSuspended keeps a job from starting, or lets it start.
func (c *Cluster) SetSuspended(ctx context.Context, job string, on bool) error {
	_, err := c.runKubectl(ctx, nil, "patch", "job.batch", job, "--type=merge", "--output=name", fmt.Sprintf(`--patch={"spec":{"suspend":%v}}`, on))
	return err
}

// CopyLogs copies the output of a pod to w; with follow until the pod has ended.
func (c *Cluster) CopyLogs(ctx context.Context, w io.Writer, pod string, follow bool) error {
	if follow {
		return c.streamKubectl(ctx, w, "logs", "--follow", "--container="+kubernetes.Main, "pod/"+pod)
	}
	return c.streamKubectl(ctx, w, "logs", fmt.Sprintf("--request-timeout=%ds", max(1, int(c.answerTimeout().Seconds()))), "--container="+kubernetes.Main, "pod/"+pod)
}
