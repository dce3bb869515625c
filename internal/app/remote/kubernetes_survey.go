package remote

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"gpuard/internal/app/machine"
	"gpuard/internal/core/kubernetes"
	"gpuard/internal/host/kube"
)

// maxCallsAtOnce is how many calls of kubectl run at the same time: each is a process of some 60 MiB.
const maxCallsAtOnce = 4

// ReadKubernetes reads what the cluster has and what this person may do there. What cannot be read says so, and hides
// nothing else. The error is about kubectl itself.
func ReadKubernetes(ctx context.Context, host *machine.Host, context, namespace string) (*kubernetes.Cluster, error) {
	k, err := kube.FindKubectl(host.Env, context, namespace)
	if err != nil {
		return nil, err
	}

	c := &kubernetes.Cluster{}
	c.Context, c.Namespace, err = k.CurrentContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot read the configuration of kubectl: %w; see: kubectl config view", err)
	}

	if c.Namespace == "" {
		c.Namespace = "default"
	}

	c.Serves = readAnswer(ctx, k.Serves)
	if c.Serves.Problem != "" {
		// Nobody waits for ten answers that do not come.
		return c, nil
	}

	var all sync.WaitGroup
	turns := make(chan struct{}, maxCallsAtOnce)
	ask := func(f func()) {
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			f()
		})
	}

	dra := slices.Contains(c.Serves.Found, "resource.k8s.io/v1")
	if dra {
		ask(func() { c.Classes = readAnswer(ctx, k.ListDeviceClasses) })
		ask(func() { c.Slices = readAnswer(ctx, k.ListSlices) })
		ask(func() { c.Claims = readAnswer(ctx, k.ListClaims) })
	}

	ask(func() { c.Nodes = readAnswer(ctx, k.Nodes) })
	ask(func() { c.Pods = readAnswer(ctx, k.ListPods) })
	ask(func() { c.Quotas = readAnswer(ctx, k.ListQuotas) })
	rights := wantedRights(dra)
	answers := make([]error, len(rights))
	for i := range rights {
		ask(func() { rights[i].Granted, answers[i] = k.CanDo(ctx, rights[i].Verb, rights[i].Resource) })
	}

	all.Wait()

	for i, err := range answers {
		if err != nil {
			c.Allowed.Problem = cmp.Or(c.Allowed.Problem, err.Error())
			continue
		}

		c.Allowed.Found = append(c.Allowed.Found, rights[i])
	}

	return c, ctx.Err()
}

// wantedRights lists what gpuard does in a namespace.
func wantedRights(dra bool) []kubernetes.Right {
	list := []kubernetes.Right{
		{Verb: "create", Resource: "jobs.batch"}, {Verb: "get", Resource: "jobs.batch"}, {Verb: "delete", Resource: "jobs.batch"},
		{Verb: "list", Resource: "pods"}, {Verb: "get", Resource: "pods/log"}, {Verb: "list", Resource: "events"},
	}
	if dra {
		list = append(list, kubernetes.Right{Verb: "create", Resource: "resourceclaimtemplates.resource.k8s.io"})
	}
	return list
}

// readAnswer makes an answer of a call.
func readAnswer[T any](ctx context.Context, call func(context.Context) (T, error)) kubernetes.Answer[T] {
	found, err := call(ctx)
	if err != nil {
		return kubernetes.Answer[T]{Problem: plainText(err)}
	}
	return kubernetes.Answer[T]{Found: found}
}

// plainText is what an error says on one line.
func plainText(err error) string { return strings.TrimSuffix(strings.TrimSpace(err.Error()), ".") }
