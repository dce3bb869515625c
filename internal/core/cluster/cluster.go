// Package cluster has what another scheduler says of its nodes and of its jobs, and judges it: whether a job can be
// asked for there, and whether its owner can get GPUs.
//
//	err := cluster.Fits(site, slurm) // an error names the type or feature that no node has
//	findings := cluster.Findings(site, slurm)
//
// It must not ask anybody.
package cluster

import (
	"slices"
)

// Site is a cluster of Slurm as its own commands describe it.
type Site struct {
	Name    string // ClusterName
	Version string
	// Why the controller does not answer; "" it does.
	Problem string
	// That this user may see.
	Partitions []Partition
	Nodes      []Node // of all partitions
	// GresTypes has gpu: the cluster has GPUs as a resource.
	Types bool
	// Sacct answers: jobs are known after the controller has forgotten them.
	Accounting bool
	// MinJobAge, in Slurm's words: how long a job is known after its end.
	Keeps string
}

// Partition is one of the cluster's.
type Partition struct {
	Name    string
	Default bool
	// "up", "down", "drain", "inact".
	State string
	// The limit of time: "infinite", "1-00:00:00".
	Limit string
	Nodes int
}

// Node is one of the cluster's.
type Node struct {
	Name   string
	States []string // "IDLE", "DRAIN"
	// Why it is down or drained; "" nothing is said.
	Why        string
	Features   []string // active
	Partitions []string
	GPUs       []GPUs
}

// GPUs are those of one type on a node.
type GPUs struct {
	Type  string // "" without one
	All   int    // configured
	Taken int
}

// IsUsable reports whether the node takes new jobs, or will when its own have ended.
func (n Node) IsUsable() bool {
	return !slices.ContainsFunc(n.States, func(s string) bool {
		return slices.Contains([]string{"DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "NOT_RESPONDING", "INVALID_REG", "INVAL", "UNKNOWN", "FUTURE", "MAINT", "ERROR", "POWERED_DOWN_FAILED"}, s)
	})
}

// Features lists those of all nodes, each once.
func (s Site) Features() []string {
	var all []string
	for _, n := range s.Nodes {
		all = append(all, n.Features...)
	}
	slices.Sort(all)

	return slices.Compact(all)
}

// GPUTypes lists the types of all nodes, each once.
func (s Site) GPUTypes() []string {
	var all []string
	for _, n := range s.Nodes {
		for _, g := range n.GPUs {
			if g.Type != "" {
				all = append(all, g.Type)
			}
		}
	}
	slices.Sort(all)

	return slices.Compact(all)
}
