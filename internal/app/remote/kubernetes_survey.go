package remote

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/kubernetes"
	"gpuard/internal/host/kube"
)

// atOnce is how many calls of kubectl run at the same time: each is a process of some 60 MiB.
const atOnce = 4

// Kubernetes reads what the cluster has and what this person may do there. What cannot be read says so, and hides nothing
// else. The error is about kubectl itself.
func Kubernetes(ctx context.Context, host *machine.Host, context, namespace string) (*kubernetes.Cluster, error) {
	k, err := kube.Find(host.Env, context, namespace)
	if err != nil {
		return nil, err
	}
	c := &kubernetes.Cluster{}
	if c.Context, c.Namespace, err = k.Where(ctx); err != nil {
		return nil, fmt.Errorf("cannot read the configuration of kubectl: %w; see: kubectl config view", err)
	}
	if c.Namespace == "" {
		c.Namespace = "default"
	}
	if c.Serves = read(ctx, k.Serves); c.Serves.Problem != "" { // nobody waits for ten answers that do not come
		return c, nil
	}
	var all sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	ask := func(f func()) {
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			f()
		})
	}
	dra := slices.Contains(c.Serves.Found, "resource.k8s.io/v1")
	if dra {
		ask(func() { c.Classes = read(ctx, k.Classes) })
		ask(func() { c.Slices = read(ctx, k.Slices) })
		ask(func() { c.Claims = read(ctx, k.Claims) })
	}
	ask(func() { c.Nodes = read(ctx, k.Nodes) })
	ask(func() { c.Pods = read(ctx, k.Pods) })
	ask(func() { c.Quotas = read(ctx, k.Quotas) })
	rights := wanted(dra)
	answers := make([]error, len(rights))
	for i := range rights {
		ask(func() { rights[i].Granted, answers[i] = k.Can(ctx, rights[i].Verb, rights[i].Resource) })
	}
	all.Wait()
	for i, err := range answers {
		if err == nil {
			c.Allowed.Found = append(c.Allowed.Found, rights[i])
		} else if c.Allowed.Problem == "" {
			c.Allowed.Problem = err.Error()
		}
	}
	return c, ctx.Err()
}

// wanted lists what gpuard does in a namespace.
func wanted(dra bool) []kubernetes.Right {
	list := []kubernetes.Right{
		{Verb: "create", Resource: "jobs.batch"}, {Verb: "get", Resource: "jobs.batch"}, {Verb: "delete", Resource: "jobs.batch"},
		{Verb: "list", Resource: "pods"}, {Verb: "get", Resource: "pods/log"}, {Verb: "list", Resource: "events"},
	}
	if dra {
		list = append(list, kubernetes.Right{Verb: "create", Resource: "resourceclaimtemplates.resource.k8s.io"})
	}
	return list
}

// read makes an answer of a call.
func read[T any](ctx context.Context, call func(context.Context) (T, error)) kubernetes.Answer[T] {
	found, err := call(ctx)
	if err != nil {
		return kubernetes.Answer[T]{Problem: plain(err)}
	}
	return kubernetes.Answer[T]{Found: found}
}

// plain is what an error says on one line.
func plain(err error) string { return strings.TrimSuffix(strings.TrimSpace(err.Error()), ".") }
