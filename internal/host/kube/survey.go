package kube

import (
	"context"
	"slices"
	"strings"

	"gpuard/internal/core/kubernetes"
)

// Serves lists the groups and versions of the API.
func (c *Cluster) Serves(ctx context.Context) ([]string, error) {
	out, err := c.runKubectl(ctx, nil, "api-versions")
	return strings.Fields(string(out)), err
}

// Nodes lists all nodes.
func (c *Cluster) Nodes(ctx context.Context) ([]kubernetes.Node, error) {
	return listObjects[kubernetes.Node](ctx, c, "nodes")
}

// ListPods lists the pods of all namespaces that have a node and have not ended.
func (c *Cluster) ListPods(ctx context.Context) ([]kubernetes.Pod, error) {
	return listObjects[kubernetes.Pod](ctx, c, "pods", "--all-namespaces", "--field-selector=spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed")
}

// ListDeviceClasses lists the names of the device classes.
func (c *Cluster) ListDeviceClasses(ctx context.Context) ([]string, error) {
	out, err := c.runKubectl(ctx, nil, "get", "deviceclasses.resource.k8s.io", "--output=name")
	names := strings.Fields(string(out))
	for i, n := range names {
		names[i] = n[strings.Index(n, "/")+1:]
	}

	return names, err
}

// ListSlices lists the devices that drivers offer for claims.
func (c *Cluster) ListSlices(ctx context.Context) ([]kubernetes.Slice, error) {
	return listObjects[kubernetes.Slice](ctx, c, "resourceslices.resource.k8s.io")
}

// ListClaims lists the claims of all namespaces.
func (c *Cluster) ListClaims(ctx context.Context) ([]kubernetes.Claim, error) {
	return listObjects[kubernetes.Claim](ctx, c, "resourceclaims.resource.k8s.io", "--all-namespaces")
}

// ListQuotas lists the quotas of the namespace.
func (c *Cluster) ListQuotas(ctx context.Context) ([]kubernetes.Quota, error) {
	return listObjects[kubernetes.Quota](ctx, c, "resourcequotas")
}

// CanDo reports whether this person may do something in the namespace, such as create jobs.batch. kubectl answers yes
// or no, and ends with 1 for no.
func (c *Cluster) CanDo(ctx context.Context, verb, resource string) (bool, error) {
	out, err := c.runKubectl(ctx, nil, "auth", "can-i", verb, resource)
	if word := strings.TrimSpace(string(out)); word == "no" || strings.HasPrefix(word, "no - ") {
		return false, nil
	} else if err == nil && slices.Contains(strings.Fields(word), "yes") {
		return true, nil
	}
	return false, err
}
