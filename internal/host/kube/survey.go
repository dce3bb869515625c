package kube

import (
	"context"
	"slices"
	"strings"

	"gpuard/internal/core/kubernetes"
)

// Serves lists the groups and versions of the API.
func (c *Cluster) Serves(ctx context.Context) ([]string, error) {
	out, err := c.call(ctx, nil, "api-versions")
	return strings.Fields(string(out)), err
}

// Nodes lists all nodes.
func (c *Cluster) Nodes(ctx context.Context) ([]kubernetes.Node, error) {
	return list[kubernetes.Node](ctx, c, "nodes")
}

// Pods lists the pods of all namespaces that have a node and have not ended.
func (c *Cluster) Pods(ctx context.Context) ([]kubernetes.Pod, error) {
	return list[kubernetes.Pod](ctx, c, "pods", "--all-namespaces", "--field-selector=spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed")
}

// Classes lists the names of the device classes.
func (c *Cluster) Classes(ctx context.Context) ([]string, error) {
	out, err := c.call(ctx, nil, "get", "deviceclasses.resource.k8s.io", "--output=name")
	names := strings.Fields(string(out))
	for i, n := range names {
		names[i] = n[strings.Index(n, "/")+1:]
	}
	return names, err
}

// Slices lists the devices that drivers offer for claims.
func (c *Cluster) Slices(ctx context.Context) ([]kubernetes.Slice, error) {
	return list[kubernetes.Slice](ctx, c, "resourceslices.resource.k8s.io")
}

// Claims lists the claims of all namespaces.
func (c *Cluster) Claims(ctx context.Context) ([]kubernetes.Claim, error) {
	return list[kubernetes.Claim](ctx, c, "resourceclaims.resource.k8s.io", "--all-namespaces")
}

// Quotas lists the quotas of the namespace.
func (c *Cluster) Quotas(ctx context.Context) ([]kubernetes.Quota, error) {
	return list[kubernetes.Quota](ctx, c, "resourcequotas")
}

// Can reports whether this person may do something in the namespace, such as create jobs.batch. kubectl answers yes or no,
// and ends with 1 for no.
func (c *Cluster) Can(ctx context.Context, verb, resource string) (bool, error) {
	out, err := c.call(ctx, nil, "auth", "can-i", verb, resource)
	if word := strings.TrimSpace(string(out)); word == "no" || strings.HasPrefix(word, "no - ") {
		return false, nil
	} else if err == nil && slices.Contains(strings.Fields(word), "yes") {
		return true, nil
	}
	return false, err
}
